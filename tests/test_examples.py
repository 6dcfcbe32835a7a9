"""Every example script runs and says what it promises."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def output(name: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_learn_a_task_names_drawings_after_one_example_of_each() -> None:
    shown = output("learn_a_task.py", "--episodes", "40")
    assert "of 50 drawings named after one example of each" in shown
    assert "5-way 1-shot" in shown


@pytest.mark.slow
def test_descending_through_ridge_lowers_the_left_out_error() -> None:
    errors = [float(each) for each in re.findall(r"error ([\d.]+)", output("differentiate_through_ridge.py"))]
    assert errors[-1] < 0.9 * errors[0]


@pytest.mark.slow
def test_a_learner_of_ones_own_is_trained_and_evaluated_like_all_others() -> None:
    before, after = map(float, re.findall(r"([\d.]+)% ±", output("a_learner_of_your_own.py", "--episodes", "40")))
    assert after > before + 5


def test_the_label_studio_backend_answers_with_the_class_that_the_service_names(tmp_path: Path) -> None:
    picture = b"the bytes of a picture"
    answer = {"top": [{"label": "heron", "probability": 0.9}], "probability": 0.9, "version": 3}
    seen: list[tuple[str, bytes]] = []

    class Both(BaseHTTPRequestHandler):  # stands for Label Studio, which has the picture, and for the service
        def do_GET(self) -> None:
            self.respond(picture)

        def do_POST(self) -> None:
            seen.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.respond(json.dumps({"answers": [answer]}).encode())

        def respond(self, body: bytes) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Both) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}"
        words = ["--service", place, "--studio", place, "--model", "birds", "--port", "0"]
        command = [sys.executable, EXAMPLES / "label_studio_backend.py", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as backend:
            assert backend.stdout is not None
            address = backend.stdout.readline().split()[-1]
            try:
                tasks = {"tasks": [{"data": {"image": "/data/upload/1.jpg"}}]}
                request = urllib.request.Request(f"{address}/predict", json.dumps(tasks).encode())
                with urllib.request.urlopen(request, timeout=30) as response:
                    (found,) = json.load(response)["results"]
                elsewhere = {"tasks": [{"data": {"image": "http://other.example/1.jpg"}}]}
                with pytest.raises(urllib.error.HTTPError, match="502"):
                    urllib.request.urlopen(f"{address}/predict", json.dumps(elsewhere).encode(), timeout=30)
            finally:
                backend.terminate()
        server.shutdown()
    assert found["result"][0]["value"] == {"choices": ["heron"]}
    assert (found["score"], found["model_version"]) == (0.9, "3")
    ((path, body),) = seen
    assert path == "/models/birds/predict"
    assert base64.b64decode(json.loads(body)["images"][0]["data"]) == picture


def test_every_example_is_run_by_a_test() -> None:
    tested = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text()))
    assert {path.name for path in EXAMPLES.glob("*.py")} <= tested
