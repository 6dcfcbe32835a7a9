"""A Label Studio machine-learning backend that pre-labels images through `handful serve`.

handful serve birds.handful --port 8080
python examples/label_studio_backend.py --service http://127.0.0.1:8080 --model birds --studio http://127.0.0.1:8081

Images are fetched from the Label Studio given by --studio and nowhere else; LABEL_STUDIO_TOKEN holds its access token.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LARGEST = 32 * 2**20
"""Bytes of an image or a request; more is refused."""


@dataclass(frozen=True)
class Backend:
    """Where the classifier and the images are."""

    service: str
    model: str
    studio: str
    token: str = ""

    def predictions(self, tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One pre-annotation per task, for a project with one <Choices name="choice"> and one <Image name="image">."""
        return [prediction(self.answer(self.image(str(task["data"]["image"])))) for task in tasks]

    def image(self, address: str) -> bytes:
        """The bytes of a task's image, from Label Studio itself."""
        whole = urllib.parse.urljoin(f"{self.studio}/", address)
        if urllib.parse.urlsplit(whole).netloc != urllib.parse.urlsplit(self.studio).netloc:
            raise ValueError(f"{address} is not an image of {self.studio}.")
        headers = {"Authorization": f"Token {self.token}"} if self.token else {}
        with urllib.request.urlopen(urllib.request.Request(whole, headers=headers), timeout=60) as response:
            pixels: bytes = response.read(LARGEST)
        return pixels

    def answer(self, pixels: bytes) -> dict[str, Any]:
        """What `handful serve` says about one image."""
        body = json.dumps({"images": [{"data": base64.b64encode(pixels).decode()}]}).encode()
        request = urllib.request.Request(
            f"{self.service}/models/{self.model}/predict", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            found: dict[str, Any] = json.load(response)["answers"][0]
        return found


def prediction(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of the service in Label Studio's form."""
    choice = {"choices": [str(answer["top"][0]["label"])]}
    result = {"from_name": "choice", "to_name": "image", "type": "choices", "value": choice}
    return {"model_version": str(answer["version"]), "score": answer["probability"], "result": [result]}


def handler(backend: Backend) -> type[BaseHTTPRequestHandler]:
    """The three requests that Label Studio makes: /health, /setup and /predict."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"status": "UP"})

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            if size > LARGEST:
                return self._send(413, {"error": "too large"})
            body = json.loads(self.rfile.read(size) or b"{}")
            if self.path != "/predict":
                return self._send(200, {"model_version": backend.model})
            try:
                return self._send(200, {"results": backend.predictions(body.get("tasks", []))})
            except (urllib.error.URLError, ValueError, KeyError) as error:
                return self._send(502, {"error": str(error)})

        def _send(self, status: int, value: dict[str, Any]) -> None:
            payload = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

    return Handler


def main() -> None:
    """Serve on 127.0.0.1 until stopped."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--service", default="http://127.0.0.1:8080", help="address of handful serve")
    parser.add_argument("--model", required=True, help="name of the classifier there")
    parser.add_argument("--studio", default="http://127.0.0.1:8081", help="address of Label Studio")
    parser.add_argument("--port", type=int, default=9090)
    words = parser.parse_args()
    backend = Backend(words.service, words.model, words.studio, os.environ.get("LABEL_STUDIO_TOKEN", ""))
    with ThreadingHTTPServer(("127.0.0.1", words.port), handler(backend)) as server:
        print(f"Backend on http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
