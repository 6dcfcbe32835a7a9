"""Read requests: images from forms or JSON, and values with the right type; errors say what is wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from handful.classifier.inputs import Picture
from handful.serve.decode import TooLargeError, checked, from_base64
from handful.serve.guard import HANG_UP, Limits
from handful.serve.worker import Worker

FORM, JSON = "multipart/form-data", "application/json"
FIELDS = 8
"""The most fields of a form, not counting files."""


@dataclass(frozen=True)
class Sent:
    """A body: the files of a form with its fields, or a JSON object."""

    files: tuple[tuple[str, bytes], ...]
    fields: dict[str, Any]


async def sent(request: Request, worker: Worker, limits: Limits) -> Sent:
    """The body of a request, parsed according to its Content-Type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM:
        return await _form(request, limits)
    if kind == JSON:
        return Sent((), await worker.run(_object, await request.body(), limits.values))
    raise HTTPException(415, f"Send a form with files ({FORM}) or {JSON}.", HANG_UP)


async def _form(request: Request, limits: Limits) -> Sent:
    async with request.form(max_files=limits.images, max_fields=FIELDS, max_part_size=10_000) as form:
        items = form.multi_items()
        files = [(each.filename or "", await each.read()) for _, each in items if isinstance(each, UploadFile)]
        return Sent(tuple(files), {name: each for name, each in items if isinstance(each, str)})


def _object(body: bytes, most: int) -> dict[str, Any]:
    if (
        sum(map(body.count, (b",", b"[", b"{"))) > most
    ):  # before parsing, because values take more memory than their text
        raise HTTPException(413, f"A JSON body may have at most {most} values.")
    try:
        found = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"The body is not JSON: {str(error)[:100]!r}.") from error
    if not isinstance(found, dict):
        raise HTTPException(400, "The body must be a JSON object.")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number of JSON")


def pictures_of(body: Sent, limits: Limits) -> list[Picture]:
    """The files of a form, or the JSON list `images` of objects with `data` in base64 and an optional `name`."""
    items = body.fields.get("images", []) if not body.files else []
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise HTTPException(400, "images must be a list of objects with the fields data (base64) and name.")
    if not body.files and not items:
        raise HTTPException(400, "The request has no image.")
    if len(items) > limits.images:
        raise TooLargeError(f"A request may have at most {limits.images} images.")
    return checked(
        body.files or [(text_of(each, "name", ""), from_base64(text_of(each, "data"))) for each in items], limits
    )


def text_of(item: dict[str, Any], name: str, default: str | None = None) -> str:
    """The value of a text field."""
    value = item.get(name, default)
    if not isinstance(value, str):
        raise HTTPException(400, f"The field {name} must be text.")
    return value


def label_of(item: dict[str, Any]) -> Any:
    """The field `label`: text, a number or a boolean."""
    value = item.get("label")
    if not isinstance(value, str | int | float | bool):
        raise HTTPException(400, "The field label must be text, a number or a boolean.")
    return value
