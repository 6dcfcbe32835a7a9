"""The service as clients see it: a real process, its answers, its updates, and their description."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from handful.classifier import FewShotClassifier
from tests.classifier.drawings import SHAPES, drawing, write_folder
from tests.serve.server import Server, files, png, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("images") / "shapes", dict.fromkeys(SHAPES, 4))


@pytest.fixture(scope="module")
def fitted(folder: Path) -> FewShotClassifier:
    return FewShotClassifier(cache=False).fit(folder)


@pytest.fixture(scope="module")
def path(fitted: FewShotClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "my shapes.handful"
    fitted.save(path)
    return path


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Server]:
    """One process for all tests of this file; they leave as many classes and examples as they found."""
    rng = np.random.default_rng(0)
    numbers = FewShotClassifier().fit(
        rng.normal(size=(12, 5)) + 3 * np.repeat(np.eye(3, 5), 4, 0), np.repeat([1, 2, 3], 4)
    )
    numbers.save(path.with_name("numbers.handful"))
    with serving(path, path.with_name("numbers.handful"), "--learn") as started:
        yield started


SHAPES_MODEL = "/models/my-shapes"


def test_a_form_and_json_get_the_answer_that_python_gives(server: Server, fitted: FewShotClassifier) -> None:
    images = [png("circle"), png("hook")]
    form = server.client.post(f"{SHAPES_MODEL}/predict", files=files(*images)).json()
    data = [{"name": f"{i}.png", "data": base64.b64encode(each).decode()} for i, each in enumerate(images)]
    sent = server.client.post(f"{SHAPES_MODEL}/predict", json={"images": data}).json()
    assert form == sent
    assert [each["label"] for each in form["answers"]] == ["circle", "hook"]
    expected = [each.to_json() for each in fitted.answer(images)]
    for got, wanted in zip(form["answers"], expected, strict=True):
        assert got.pop("image").endswith(".png")
        del wanted["image"], wanted["version"]
        assert got.pop("version") == form["version"]
        assert got.keys() == wanted.keys()
        # batches of different sizes sum float32 products in different orders
        assert got["probability"] == pytest.approx(wanted["probability"], abs=1e-4)
        assert [each["label"] for each in got["top"]] == [each["label"] for each in wanted["top"]]


def test_options_choose_how_much_is_said_and_whether_strangers_are_rejected(server: Server) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (60, 60), dtype=np.uint8)
    form = files(png("cross"), _encoded(noise))
    options: dict[str, Any] = {"top": 1, "nearest": 0, "reject": "true", "false_rejection": 0.2}
    known, strange = server.client.post(f"{SHAPES_MODEL}/predict", files=form, params=options).json()["answers"]
    assert known["label"] == "cross"
    assert len(known["top"]) == 1
    assert not known["nearest"]
    assert strange["label"] is None
    assert strange["rejected"]
    for bad in ({"top": 0}, {"top": "many"}, {"reject": "perhaps"}, {"false_rejection": "nan"}):
        assert server.client.post(f"{SHAPES_MODEL}/predict", files=form, params=bad).status_code == 400


def _encoded(pixels: Any) -> bytes:
    from PIL import Image

    from tests.classifier.drawings import encoded

    return encoded(Image.fromarray(pixels))


def test_models_classes_examples_and_the_estimate_are_told(server: Server, fitted: FewShotClassifier) -> None:
    assert [each["name"] for each in server.client.get("/models").json()["models"]] == ["my-shapes", "numbers"]
    facts = server.client.get(SHAPES_MODEL).json()
    assert facts["classes"] == list(SHAPES)
    assert facts["learns"] is True
    classes = server.client.get(f"{SHAPES_MODEL}/classes").json()["classes"]
    assert classes == [{"label": shape, "images": 4} for shape in SHAPES]
    page = server.client.get(f"{SHAPES_MODEL}/examples", params={"offset": 3, "limit": 2}).json()
    assert (page["total"], [each["index"] for each in page["examples"]]) == (16, [3, 4])
    estimate = server.client.get(f"{SHAPES_MODEL}/estimate").json()
    expected = fitted.estimate().to_json()
    assert {**estimate, "doubtful": [], "duplicates": []} == {
        **expected, "doubtful": [], "duplicates": [], "version": estimate["version"]
    }  # fmt: skip


def test_folders_of_the_server_are_not_told(server: Server) -> None:
    answered = server.client.post(f"{SHAPES_MODEL}/predict", files=files(png())).json()["answers"][0]
    assert {each["name"] for each in answered["nearest"]} <= {f"{seed}.png" for seed in range(4)}
    for address in ("examples", "estimate"):
        assert "/shapes/" not in server.client.get(f"{SHAPES_MODEL}/{address}").text


def test_a_classifier_of_features_takes_features(server: Server) -> None:
    answered = server.client.post("/models/numbers/predict", json={"features": [[9, 0, 0, 0, 0], [0, 9, 0, 0, 0]]})
    assert [each["label"] for each in answered.json()["answers"]] == [1, 2]
    assert server.client.post("/models/numbers/predict", files=files(png())).status_code == 422
    assert server.client.post("/models/numbers/predict", json={"features": [[1, 2]]}).status_code == 422


@pytest.mark.parametrize("numbers", [[], [[]], [[[1]]], [["x"]], [[1], [1, 2]], "x", [[10**400, 0, 0, 0, 0]], [None]])
def test_features_that_are_no_matrix_are_refused(server: Server, numbers: Any) -> None:
    assert server.client.post("/models/numbers/predict", json={"features": numbers}).status_code in (400, 422)


def test_examples_are_learnt_relabelled_and_forgotten_exactly_and_kept_on_disk(server: Server) -> None:
    before = server.client.get(SHAPES_MODEL).json()
    estimate = server.client.get(f"{SHAPES_MODEL}/estimate").json()
    image = png("hook", seed=77)
    added = server.client.post(f"{SHAPES_MODEL}/examples", files=files(image), data={"label": "<script>"}).json()
    assert (added["examples"], added["added"], added["version"]) == (17, 1, before["version"] + 1)
    answer = server.client.post(f"{SHAPES_MODEL}/predict", files=files(image)).json()
    assert answer["answers"][0]["label"] == "<script>"
    assert answer["version"] == added["version"]

    last = server.client.get(f"{SHAPES_MODEL}/examples", params={"offset": 16}).json()["examples"][0]
    assert (last["name"], last["label"]) == ("0.png", "<script>")
    address = f"{SHAPES_MODEL}/examples/{last['digest']}"
    assert server.client.patch(address, json={"label": "hook"}).json()["version"] == added["version"] + 1
    assert server.client.get(SHAPES_MODEL).json()["classes"] == list(SHAPES)
    forgotten = server.client.delete(address).json()
    assert forgotten["examples"] == 16
    assert server.client.delete(address).status_code == 404

    after = server.client.get(f"{SHAPES_MODEL}/estimate").json()
    assert after.pop("version") == forgotten["version"]
    estimate.pop("version")
    assert after == estimate
    assert server.client.delete(f"{SHAPES_MODEL}/classes/nothing").status_code == 404


def test_labels_keep_the_type_of_the_classifier(server: Server) -> None:
    for label in ("three", "", "x" * 300, "a\nb", None, [1], {"a": 1}):
        body = {"label": label, "images": [{"data": base64.b64encode(png()).decode()}]}
        assert server.client.post("/models/numbers/examples", json=body).status_code in (400, 422)
    assert server.client.get("/models/numbers").json()["classes"] == [1, 2, 3]


def test_the_open_inference_protocol_is_spoken(server: Server) -> None:
    get = server.client.get
    assert get("/v2").json()["name"] == "handful"
    assert get("/v2/health/live").json() == {"live": True}
    assert get("/v2/health/ready").json() == {"ready": True}
    assert get("/v2/models/my-shapes/ready").json()["ready"]
    facts = get("/v2/models/my-shapes").json()
    assert facts["inputs"] == [{"name": "images", "datatype": "BYTES", "shape": [-1]}]
    text = base64.b64encode(png("bar")).decode()
    pixels = np.stack([np.asarray(drawing("bar", 60)), np.asarray(drawing("cross", 60))])[..., None]
    for tensor in (
        {"name": "images", "datatype": "BYTES", "shape": [1], "data": [text]},
        {"name": "images", "datatype": "UINT8", "shape": list(pixels.shape), "data": pixels.tolist()},
        {"name": "images", "datatype": "UINT8", "shape": list(pixels.shape), "data": pixels.flatten().tolist()},
    ):
        told = server.client.post("/v2/models/my-shapes/infer", json={"id": "7", "inputs": [tensor]}).json()
        outputs = {each["name"]: each for each in told["outputs"]}
        assert (told["id"], told["model_name"]) == ("7", "my-shapes")
        assert outputs["label"]["data"][0] == "bar"
        probabilities = np.reshape(outputs["probabilities"]["data"], outputs["probabilities"]["shape"])
        best = outputs["probabilities"]["parameters"]["labels"][probabilities[0].argmax()]
        assert best == "bar"
        assert outputs["unknown_score"]["shape"] == [tensor["shape"][0]]
    asked = {"inputs": [{"name": "f", "datatype": "FP32", "shape": [1, 5], "data": [9, 0, 0, 0, 0]}]}
    told = server.client.post("/v2/models/numbers/infer", json={**asked, "outputs": [{"name": "label"}]}).json()
    assert [(each["name"], each["data"]) for each in told["outputs"]] == [("label", ["1"])]


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2]}, {"shape": []}, {"shape": "x"}, {"shape": [-1]}, {"shape": [10**9]}, {"datatype": "INT8"},
        {"data": ["!"]}, {"data": None}, {"data": [3]}, {"datatype": "UINT8"}, {"datatype": "FP64"},
    ],
)  # fmt: skip
def test_tensors_that_make_no_sense_are_refused(server: Server, change: dict[str, Any]) -> None:
    tensor = {"name": "i", "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(png()).decode()], **change}
    answered = server.client.post("/v2/models/my-shapes/infer", json={"inputs": [tensor]})
    assert answered.status_code in (400, 413, 422)
    assert answered.json().keys() == {"error"}


def test_metrics_count_what_was_answered(server: Server) -> None:
    server.client.get("/nowhere/at/all")
    server.client.post(f"{SHAPES_MODEL}/predict", files=files(png()))
    lines = server.client.get("/metrics").text.splitlines()
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert samples['handful_requests_total{operation="predict",status="200"}'] >= 1
    assert samples['handful_requests_total{operation="none",status="404"}'] >= 1
    assert samples['handful_request_seconds_bucket{operation="predict",le="+Inf"}'] >= 1
    assert samples["handful_images_total"] >= 1
    assert samples['handful_model_examples{model="my-shapes"}'] == 16
    assert not any("nowhere" in line for line in lines)


def test_the_description_names_every_route_and_every_route_is_described(server: Server) -> None:
    described = server.client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.")
    for path, methods in described["paths"].items():
        address = path.replace("{model}", "nothing").replace("{digest}", "0").replace("{label}", "x")
        for method in ("get", "post", "patch", "delete", "put"):
            status = server.client.request(method, address).status_code
            assert (status != 405) == (method in methods), f"{method} {path}: {status}"


def test_many_clients_get_their_own_answers_while_others_learn(server: Server) -> None:
    queries = {shape: png(shape, seed=61) for shape in SHAPES}
    versions: dict[str, list[int]] = {shape: [] for shape in SHAPES}
    strange: list[Any] = []

    async def ask(shape: str) -> None:
        async with httpx.AsyncClient(base_url=server.address, timeout=60) as client:
            for _ in range(6):
                found = (await client.post(f"{SHAPES_MODEL}/predict", files=files(queries[shape]))).json()
                versions[shape].append(found["version"])
                if [each["label"] for each in found["answers"]] != [shape]:
                    strange.append(found)

    async def learn() -> None:
        async with httpx.AsyncClient(base_url=server.address, timeout=60) as client:
            for seed in range(80, 83):
                form = {"files": files(png("hook", seed)), "data": {"label": "hook"}}
                digests = [each["digest"] for each in (await client.get(f"{SHAPES_MODEL}/examples")).json()["examples"]]
                assert (await client.post(f"{SHAPES_MODEL}/examples", **form)).status_code == 200  # type: ignore[arg-type]
                now = (await client.get(f"{SHAPES_MODEL}/examples")).json()["examples"]
                (new,) = [each["digest"] for each in now if each["digest"] not in digests]
                assert (await client.delete(f"{SHAPES_MODEL}/examples/{new}")).status_code == 200

    async def everyone() -> None:
        await asyncio.gather(learn(), *(ask(shape) for shape in SHAPES))

    asyncio.run(everyone())
    assert not strange
    assert all(found == sorted(found) for found in versions.values())


def test_a_stopping_server_answers_what_it_accepted_and_keeps_what_it_learnt(
    fitted: FewShotClassifier, tmp_path: Path
) -> None:
    path = tmp_path / "shapes.handful"
    fitted.save(path)
    statuses: list[int] = []
    with serving(path, "--learn") as server:
        images = [png("bar", seed) for seed in range(100, 196)]

        def upload() -> None:
            answered = httpx.post(
                f"{server.address}/models/shapes/examples", files=files(*images), data={"label": "bar"}, timeout=60
            )
            statuses.append(answered.status_code)

        client = threading.Thread(target=upload)
        client.start()
        while server.client.get("/health").json()["pending"] == 0 and client.is_alive():
            time.sleep(0.005)
        server.process.send_signal(signal.SIGTERM)
        client.join()
        assert server.process.wait(60) == 0
    assert statuses == [200]
    assert len(FewShotClassifier.load(path).labels_) == 16 + 96


def test_what_another_process_did_to_the_file_is_not_lost(server: Server, path: Path) -> None:
    FewShotClassifier.load(path, cache=False).partial_fit([png("bar", 201)], ["bar"]).save(path)
    added = server.client.post(f"{SHAPES_MODEL}/examples", files=files(png("hook", 202)), data={"label": "hook"})
    assert added.json()["examples"] == 18
    both = server.client.get(f"{SHAPES_MODEL}/examples", params={"offset": 16}).json()["examples"]
    for each in both:
        assert server.client.delete(f"{SHAPES_MODEL}/examples/{each['digest']}").status_code == 200
    assert len(FewShotClassifier.load(path).labels_) == 16


def test_nothing_is_learnt_without_leave_and_strangers_need_the_token(
    fitted: FewShotClassifier, tmp_path: Path
) -> None:
    path = tmp_path / "shapes.handful"
    fitted.save(path)
    before = path.read_bytes()
    with serving(path, "--host", "0.0.0.0") as server:
        assert server.client.get("/models").status_code == 200
        refused = server.client.post("/models/shapes/examples", files=files(png()), data={"label": "bar"})
        assert refused.status_code == 403
        assert "--learn" in refused.json()["error"]
        assert server.client.delete("/models/shapes/classes/bar").status_code == 403
        server.client.headers.pop("Authorization")
        assert server.client.get("/models").status_code == 401
        assert server.client.get("/health").status_code == 200
        assert server.client.get("/models", headers={"Host": "evil.example"}).status_code == 421
    assert path.read_bytes() == before


def test_errors_are_json_with_one_field(server: Server) -> None:
    for answered in (
        server.client.get("/models/nothing"),
        server.client.get("/nothing"),
        server.client.put("/models"),
        server.client.post(f"{SHAPES_MODEL}/predict", content=b"x", headers={"content-type": "text/plain"}),
        server.client.post(f"{SHAPES_MODEL}/predict", content=b"{", headers={"content-type": "application/json"}),
        server.client.post(f"{SHAPES_MODEL}/predict", json={"images": []}),
        server.client.post(f"{SHAPES_MODEL}/predict", files=files(b"no image")),
    ):
        assert answered.status_code in (400, 404, 405, 415, 422)
        assert json.loads(answered.content).keys() == {"error"}
