"""A small web server on this machine that misbehaves on request: the first folder of an address says how."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Web:
    """What the server serves, and what it was asked for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.released = threading.Event()
        self.tries: Counter[str] = Counter()

    def at(self, behaviour: str) -> str:
        return f"{self.address}/{behaviour}"


class Handler(BaseHTTPRequestHandler):
    web: Web

    def log_message(self, *_: object) -> None:
        """Tests need no log."""

    def do_GET(self) -> None:
        behaviour, name = self.path.strip("/").split("/")
        wanted = self.headers.get("Range")
        self.web.requests.append((behaviour, wanted))
        self.web.tries[behaviour] += 1
        body = self.web.files[name]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        getattr(self, f"serve_{behaviour}")(body, start)

    def answer(self, body: bytes, start: int = 0, length: int | None = None, kind: str = "application/zip") -> None:
        if start >= len(body) > 0 and start:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) - start if length is None else length))
        self.end_headers()
        self.wfile.write(body[start:])

    def serve_good(self, body: bytes, start: int) -> None:
        self.answer(body, start)

    def serve_norange(self, body: bytes, start: int) -> None:
        self.answer(body)

    def serve_cut(self, body: bytes, start: int) -> None:
        """Half of what is left, then the line goes dead; the second time all of it."""
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        half = (len(body) - start) // 2 if self.web.tries["cut"] == 1 else len(body)
        self.wfile.write(body[start : start + half])

    def serve_alwayscut(self, body: bytes, start: int) -> None:
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start : start + 100])

    def serve_stall(self, body: bytes, start: int) -> None:
        """A third of the file, then silence with the connection open."""
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if not start:
            self.wfile.write(body[: len(body) // 3])
        self.wfile.flush()
        self.web.released.wait(30)

    def serve_silent(self, body: bytes, start: int) -> None:
        self.web.released.wait(30)

    def serve_html(self, body: bytes, start: int) -> None:
        self.answer(b"<!DOCTYPE html><html><body>Log in to go on</body></html>", kind="text/html")

    def serve_longer(self, body: bytes, start: int) -> None:
        """Promises more than it has."""
        self.answer(body, start, length=len(body) - start + 1000)

    def serve_shorter(self, body: bytes, start: int) -> None:
        """Promises less than it sends."""
        self.answer(body, start, length=(len(body) - start) // 2)

    def serve_wrong(self, body: bytes, start: int) -> None:
        self.answer(bytes(reversed(body)), start)

    def serve_missing(self, body: bytes, start: int) -> None:
        self.send_error(404)

    def serve_elsewhere(self, body: bytes, start: int) -> None:
        """Resumes at another byte than asked for."""
        self.send_response(206)
        self.send_header("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve_drip(self, body: bytes, start: int) -> None:
        """A byte now and then, never the whole."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            while not self.web.released.wait(0.02):
                self.wfile.write(b"P")
        except OSError:
            return

    def serve_busy(self, body: bytes, start: int) -> None:
        """Asks to come back at once, then serves."""
        if self.web.tries["busy"] > 1:
            self.answer(body, start)
            return
        self.send_response(503)
        self.send_header("Retry-After", "0")
        self.end_headers()

    def serve_endless(self, body: bytes, start: int) -> None:
        self.send_response(200)
        self.end_headers()
        try:
            while not self.web.released.is_set():
                self.wfile.write(bytes(1 << 16))
        except OSError:
            return


@contextmanager
def serving() -> Iterator[Web]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web = Web(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Bound", (Handler,), {"web": web})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
