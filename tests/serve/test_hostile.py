"""Hostile clients of a real process: bombs, scraps, floods and slow senders are refused, and others are answered."""

from __future__ import annotations

import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image

from handful.classifier import FewShotClassifier
from tests.classifier.drawings import SHAPES, encoded, write_folder
from tests.serve.server import Server, files, png, resident, serving
from tests.serve.test_decode import png_that_claims

PREDICT = "/models/shapes/predict"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    path = folder / "shapes.handful"
    FewShotClassifier(cache=False).fit(write_folder(folder / "shapes", dict.fromkeys(SHAPES, 3))).save(path)
    with serving(path, "--queue", 64) as started:
        started.client.post(PREDICT, files=files(png()))
        yield started


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    """Whatever a test did, the service lives, answers, and has not grown by more than a decoded image."""
    before = resident(server.process.pid)
    yield
    assert server.client.post(PREDICT, files=files(png("cross"))).json()["answers"][0]["label"] == "cross"
    assert resident(server.process.pid) - before < 400 * 2**20


def scraps() -> dict[str, bytes]:
    """Files that are no images, or not all of one, or far too much of one."""
    good = png()
    gif = io.BytesIO()
    frames = [Image.new("L", (8, 8), shade) for shade in range(40)]
    frames[0].save(gif, "GIF", save_all=True, append_images=frames[1:])
    return {
        "nothing": b"",
        "a text": b"hello",
        "half an image": good[: len(good) // 2],
        "a header": good[:30],
        "a bomb": png_that_claims(60_000, 60_000),
        "a large lie": png_that_claims(6_000, 6_000),
        "a script": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        "an archive": b"PK\x03\x04" + b"\0" * 100,
        "a cut animation": gif.getvalue()[: len(gif.getvalue()) // 4][:40],
        "a broken JPEG": encoded(Image.new("RGB", (64, 64)), "JPEG")[:-40].replace(b"\xff\xc4", b"\xff\xff"),
    }


@pytest.mark.parametrize("name", list(scraps()))
def test_what_is_not_a_whole_image_is_refused_and_named(server: Server, name: str) -> None:
    answered = server.client.post(PREDICT, files=files(png(), scraps()[name]))
    assert answered.status_code in (413, 422)
    assert "1.png" in answered.json()["error"]


def test_ten_thousand_tiny_files_are_refused(server: Server) -> None:
    answered = server.client.post(PREDICT, files=files(*[b"x"] * 10_000))
    assert answered.status_code in (400, 413)
    body = {"images": [{"data": "eA=="}] * 10_000}
    assert server.client.post(PREDICT, json=body).status_code == 413


def test_too_many_bytes_are_refused_before_they_are_read(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
        head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        line.sendall(f"{head}Content-Length: 99999999999\r\n\r\n".encode())
        assert b" 413 " in line.recv(4096)
        assert _closed(line)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"images":' * 50_000,
        b'{"images": [' + b"[]," * 1_100_000 + b"[]]}",
        b'{"features": [[NaN]]}',
        b'{"features": [[1e999]]}',
        b'{"images": [{"data": "' + b"A" * 1_000_003 + b'"}]}',
        b'{"images": [{"data": "\\ud800", "name": "\\ud800"}]}',
        b"\xff\xfe",
        b"1" * 10_000,
    ],
    ids=lambda body: str(body[:20]),
)
def test_json_that_means_harm_is_refused(server: Server, body: bytes) -> None:
    answered = server.client.post(PREDICT, content=body, headers={"content-type": "application/json"})
    assert answered.status_code in (400, 413, 422)
    assert json.loads(answered.content).keys() == {"error"}


@pytest.mark.parametrize(
    "body",
    [
        b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n",
        b"--c\r\n\r\n--c--",
        b"--b\r\n" + b"X: y\r\n" * 5000,
        b"\0" * 5000,
        b"",
    ],
    ids=lambda body: str(body[:20]),
)
def test_forms_that_are_none_are_refused(server: Server, body: bytes) -> None:
    answered = server.client.post(PREDICT, content=body, headers={"content-type": "multipart/form-data; boundary=b"})
    assert answered.status_code in (400, 413, 422)


def test_names_of_files_are_not_paths(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "secret.png"
    target.write_bytes(png("bar"))
    form = [("images", (str(target), b"")), ("images", ("../../../../etc/passwd", b""))]
    answered = server.client.post(PREDICT, files=form)
    assert answered.status_code == 422
    assert str(tmp_path) not in answered.text
    for address in ("/models/..%2f..%2fetc%2fpasswd", "/models/%2e%2e/classes", "/models/shapes%00"):
        assert server.client.get(address).status_code == 404


@pytest.mark.slow
def test_slow_senders_are_hung_up_on_while_others_are_answered(server: Server) -> None:
    """One sends its headers too slowly, one its body; the limit for both is 10 seconds."""
    whole = (
        f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
    )
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as headers,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as body,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent,
    ):
        body.sendall(f"{whole}Content-Length: 50\r\n\r\n{{".encode())
        for piece in "GET /health HT":
            try:
                headers.sendall(piece.encode())
            except OSError:
                break
            assert server.client.get("/health").json()["status"] == "ok"
            time.sleep(1)
        assert b" 408 " in body.recv(4096)
        assert _closed(headers)
        assert _closed(silent)


def test_more_images_at_once_than_the_queue_can_ever_hold_are_too_many(server: Server) -> None:
    answered = server.client.post(PREDICT, files=files(*[png()] * 65))
    assert answered.status_code == 413
    assert "retry-after" not in answered.headers  # the same request will never fit
    assert server.client.post(PREDICT, files=files(*[png()] * 64)).status_code == 200


def test_pages_of_other_sites_may_not_ask(server: Server) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert server.client.post(PREDICT, files=files(png()), headers=headers).status_code == 403
    assert server.client.get("/models", headers={"Host": "evil.example"}).status_code == 421
    allowed = server.client.post(PREDICT, files=files(png()), headers={"Origin": server.address})
    assert allowed.status_code == 200
    assert "access-control-allow-origin" not in allowed.headers


def test_a_client_that_leaves_does_no_harm(server: Server) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as line:
            head = f"POST {PREDICT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            line.sendall(f"{head}Content-Length: 5000\r\n\r\n{{".encode())
    deadline = time.monotonic() + 30
    while httpx.get(f"{server.address}/health").json()["pending"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert httpx.get(f"{server.address}/health").json()["pending"] == 0


def _closed(line: socket.socket) -> bool:
    """Whether the other side has hung up."""
    try:
        while line.recv(4096):
            pass
    except ConnectionResetError:
        return True
    return True
