"""Operations declared once: parameters that are read and described alike, and schemas of answers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from handful.serve.description import TEXT, Operations, Parameter, array, obj, openapi

TOP = Parameter("top", "integer", 5, "How many.", low=1, high=9)
SHARE = Parameter("share", "number", 0.5, "How much.")
REJECT = Parameter("reject", "boolean", False, "Whether.")


@pytest.mark.parametrize(
    ("parameter", "given", "value"),
    [(TOP, None, 5), (TOP, "9", 9), (SHARE, "0.25", 0.25), (REJECT, "true", True), (REJECT, "false", False)],
)
def test_a_parameter_is_read_by_its_kind(parameter: Parameter, given: str | None, value: Any) -> None:
    found = parameter.read(given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("parameter", "given"),
    [
        (TOP, "0"),
        (TOP, "10"),
        (TOP, "2.5"),
        (TOP, ""),
        (SHARE, "nan"),
        (SHARE, "1.1"),
        (REJECT, "yes"),
        (TOP, "9" * 5000),
    ],
)
def test_a_value_that_is_not_valid_is_a_400_that_names_the_parameter(parameter: Parameter, given: str) -> None:
    with pytest.raises(HTTPException) as refused:
        parameter.read(given)
    assert refused.value.status_code == 400
    assert refused.value.detail.startswith(parameter.name)
    assert len(refused.value.detail) < 200


@dataclass(frozen=True)
class Inner:
    """Part of an answer."""

    label: Any
    score: float


@dataclass(frozen=True)
class Outer:
    """An answer."""

    name: str
    parts: tuple[Inner, ...]
    best: Inner | None


def described() -> Any:
    operations = Operations()

    @operations.declare("GET", "/models/{model}", obj({"name": TEXT}), query=(TOP, REJECT), errors=(404,))
    async def model(service: Any, request: Any, query: Any) -> Any:
        """Facts of a model."""

    @operations.declare("POST", "/models/{model}", array(TEXT), body={"application/json": TEXT})
    async def change(service: Any, request: Any, query: Any) -> Any:
        """Change it."""

    return openapi(operations, [Inner, Outer])


def test_the_description_has_names_summaries_parameters_and_answers() -> None:
    found = described()["paths"]["/models/{model}"]
    assert found.keys() == {"get", "post"}
    get = found["get"]
    assert (get["operationId"], get["summary"]) == ("model", "Facts of a model.")
    assert [(each["name"], each["in"]) for each in get["parameters"]] == [
        ("model", "path"),
        ("top", "query"),
        ("reject", "query"),
    ]
    assert get["parameters"][1]["schema"] == {"type": "integer", "default": 5, "minimum": 1, "maximum": 9}
    assert "minimum" not in get["parameters"][2]["schema"]
    assert get["responses"].keys() == {"200", "400", "401", "403", "404", "421"}
    assert found["post"]["requestBody"]["content"] == {"application/json": {"schema": TEXT}}


def test_dataclasses_become_schemas() -> None:
    schemas = described()["components"]["schemas"]
    inner = {"$ref": "#/components/schemas/Inner"}
    assert schemas["Outer"]["properties"] == {
        "name": TEXT,
        "parts": {"type": "array", "items": inner},
        "best": {"anyOf": [inner, {"type": "null"}]},
    }
    assert schemas["Inner"]["properties"]["score"] == {"type": ["number", "null"]}  # JSON has no NaN
    assert schemas["Inner"]["required"] == ["label", "score"]


def test_an_answer_may_hold_the_name_of_a_folder_that_is_not_utf8() -> None:
    operations, name = Operations(), os.fsdecode(b"caf\xe9")

    @operations.declare("GET", "/label", TEXT)
    async def label(service: Any, request: Any, query: Any) -> Any:
        """A label."""
        return {"label": name}

    answer = TestClient(Starlette(routes=[operations[0].route(None)])).get("/label")
    assert answer.json() == {"label": name}
