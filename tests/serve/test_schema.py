"""Requests made up from the served description, valid and invalid: no answer is a 500, and all are as described."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from handful.classifier import FewShotClassifier
from handful.serve import inference
from handful.serve.api import application, operations
from handful.serve.description import Operation
from handful.serve.guard import Access, Limits
from handful.serve.models import Service, load_models
from handful.serve.worker import Worker
from tests.classifier.drawings import SHAPES, write_folder
from tests.serve.server import png

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")
AS_DESCRIBED = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
EXAMPLES = 10
"""Requests per operation."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("models")
    path = folder / "shapes.handful"
    FewShotClassifier(cache=False).fit(write_folder(folder / "shapes", dict.fromkeys(SHAPES, 3))).save(path)
    worker = Worker()
    service = Service(load_models([path], worker, learns=True), worker, Limits())
    whole = application(service, Access(frozenset({"testserver"})))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":  # the client starts and stops it for every request
            await whole(scope, receive, send)
            return
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})

    yield app
    asyncio.run(service.stop())


@pytest.fixture(scope="module")
def schema(app: Any) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
@pytest.mark.parametrize("operation", [*operations, *inference.operations], ids=lambda each: each.name)
def test_no_request_brings_the_service_down(schema: Any, operation: Operation, mode: str) -> None:
    described = schema[operation.path][operation.method]
    if mode == "NEGATIVE" and not (operation.query or operation.body):
        pytest.skip("there is nothing to get wrong")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(described.as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
    def ask(case: Any) -> None:
        if "model" in (case.path_parameters or {}):
            case.path_parameters["model"] = "shapes"
        if mode == "POSITIVE" and case.media_type == "application/json" and isinstance(case.body.get("images"), list):
            case.body["images"] = [{"data": base64.b64encode(png()).decode()}]  # once the rest is right
        answered = case.call()
        assert answered.status_code < 500, answered.text
        case.validate_response(answered, checks=AS_DESCRIBED)

    ask()
