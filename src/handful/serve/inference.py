"""The Open Inference Protocol (version 2, REST), so that clients written for other servers work here too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request

from handful import __version__
from handful.classifier.answers import Answer
from handful.classifier.inputs import Matrix, Picture, pictures
from handful.serve.decode import TooLargeError, checked, from_base64
from handful.serve.description import BOOLEAN, TEXT, Operations, Schema, array, obj
from handful.serve.guard import Limits
from handful.serve.models import Service
from handful.serve.requests import JSON, sent

Query = Mapping[str, Any]
TENSOR: Schema = obj({"name": TEXT, "datatype": TEXT, "shape": array({"type": "integer"})})
INPUT: Schema = obj({**TENSOR["properties"], "data": {"type": "array"}})
OUTPUTS = {"label": "BYTES", "probabilities": "FP64", "unknown_score": "FP64"}
"""The results for each image as tensors; the label of a rejected image is empty."""
FLOATS = ("FP32", "FP64")
WIDEST = 10**6
"""More classes than any model has, so that all are returned."""


SERVER = obj({"name": TEXT, "version": TEXT, "extensions": array(TEXT)})
METADATA = obj(
    {"name": TEXT, "versions": array(TEXT), "platform": TEXT, "inputs": array(TENSOR), "outputs": array(TENSOR)}
)
ASKED = obj(
    {
        "id": TEXT,
        "inputs": array(INPUT, minItems=1, maxItems=1),
        "outputs": array(obj({"name": TEXT})),
        "parameters": obj({"false_rejection": {"type": "number"}}, ["false_rejection"]),
    },
    ["id", "outputs", "parameters"],
)
TOLD = obj({"id": TEXT, "model_name": TEXT, "model_version": TEXT, "outputs": array(INPUT)}, ["id"])
operations = Operations()


@operations.declare("GET", "/v2", SERVER)
async def server_metadata(service: Service, request: Request, query: Query) -> Any:
    """Name and version of the server."""
    return {"name": "handful", "version": __version__, "extensions": []}


@operations.declare("GET", "/v2/health/live", obj({"live": BOOLEAN}))
async def server_live(service: Service, request: Request, query: Query) -> Any:
    """Whether the server runs."""
    return {"live": True}


@operations.declare("GET", "/v2/health/ready", obj({"ready": BOOLEAN}))
async def server_ready(service: Service, request: Request, query: Query) -> Any:
    """Whether all models are ready; they are loaded before the server starts."""
    return {"ready": True}


@operations.declare("GET", "/v2/models/{model}/ready", obj({"name": TEXT, "ready": BOOLEAN}), errors=(404,))
async def model_ready(service: Service, request: Request, query: Query) -> Any:
    """Whether a model is ready."""
    return {"name": service.model(request).name, "ready": True}


@operations.declare("GET", "/v2/models/{model}", METADATA, errors=(404,))
async def model_metadata(service: Service, request: Request, query: Query) -> Any:
    """Inputs and outputs of a model."""
    model = service.model(request)
    clf = model.now.snapshot()
    takes = (
        {"name": "features", "datatype": "FP64", "shape": [-1, int(clf.n_features_in_)]}
        if clf.embedder_ is None
        else {"name": "images", "datatype": "BYTES", "shape": [-1]}
    )
    shapes = {"label": [-1], "probabilities": [-1, len(clf.classes_)], "unknown_score": [-1]}
    gives = [{"name": name, "datatype": kind, "shape": shapes[name]} for name, kind in OUTPUTS.items()]
    facts = {"name": model.name, "versions": [str(clf.version_)], "platform": "handful"}
    return {**facts, "inputs": [takes], "outputs": gives}


@operations.declare("POST", "/v2/models/{model}/infer", TOLD, body={JSON: ASKED}, errors=(404, 408, 413, 415, 422, 503))
async def infer(service: Service, request: Request, query: Query) -> Any:
    """Classify images in base64 (BYTES), pixels (UINT8) or features (FP32, FP64)."""
    model = service.model(request)
    asked = (await sent(request, service.worker, service.limits)).fields
    wanted, share = _wanted(asked.get("outputs")), _false_rejection(asked.get("parameters"))
    queries = await service.worker.run(_queries, asked.get("inputs"), service.limits)
    answers = await model.answer(queries, top=WIDEST, nearest_examples=0, false_rejection=share)
    outputs = [each for each in _outputs(answers) if each["name"] in wanted]
    told = {"model_name": model.name, "model_version": str(answers[0].version), "outputs": outputs}
    return {**told, "id": asked["id"]} if isinstance(asked.get("id"), str) and asked["id"].isprintable() else told


def _queries(inputs: Any, limits: Limits) -> list[Picture] | Matrix:
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise HTTPException(400, "inputs must be a list of one tensor.")
    kind, shape = inputs[0].get("datatype"), inputs[0].get("shape")
    if kind not in ("BYTES", "UINT8", *FLOATS):
        raise HTTPException(400, "datatype must be BYTES (images in base64), UINT8 (pixels), FP32 or FP64 (features).")
    if not isinstance(shape, list) or not 1 <= len(shape) <= 4 or not all(type(n) is int and n > 0 for n in shape):
        raise HTTPException(400, "shape must be a list of 1 to 4 positive whole numbers.")
    values = _flat(inputs[0].get("data"))
    if shape[0] > limits.images:
        raise TooLargeError(f"A request may have at most {limits.images} images.")
    if len(values) != math.prod(shape):
        raise HTTPException(400, f"data has {len(values)} values, which does not match the shape.")
    if kind != "BYTES":
        return _array(values, shape, kind)
    if not all(isinstance(each, str) for each in values):
        raise HTTPException(400, "The values of BYTES must be images in base64.")
    return checked([("", from_base64(each)) for each in values], limits)


def _array(values: list[Any], shape: list[int], kind: str) -> list[Picture] | Matrix:
    try:
        found = np.array(values, dtype=np.float64).reshape(shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise HTTPException(400, f"The values of {kind} must be numbers.") from error
    if kind in FLOATS and found.ndim == 2:
        return found
    if kind == "UINT8" and found.ndim == 4 and shape[-1] in (1, 3) and bool(((found >= 0) & (found <= 255)).all()):
        return pictures(found.astype(np.uint8))
    raise HTTPException(422, "UINT8 takes pixels (n, height, width, 1 or 3), FP32 and FP64 take features (n, e).")


def _flat(data: Any) -> list[Any]:
    """The values of a tensor, which may be nested or flat."""
    while isinstance(data, list) and data and all(isinstance(each, list) for each in data):
        data = [value for row in data for value in row]
    if not isinstance(data, list):
        raise HTTPException(400, "data must be a list.")
    return data


def _wanted(outputs: Any) -> set[str]:
    if outputs is None or outputs == []:
        return set(OUTPUTS)
    items = outputs if isinstance(outputs, list) else [None]
    names = {str(each.get("name")) if isinstance(each, dict) else "" for each in items}
    if not names <= OUTPUTS.keys():
        raise HTTPException(400, f"outputs may name {', '.join(OUTPUTS)}.")
    return names


def _false_rejection(parameters: Any) -> float | None:
    share = parameters.get("false_rejection") if isinstance(parameters, dict) else None
    if share is not None and (not isinstance(share, int | float) or not 0 <= share < 1):
        raise HTTPException(400, "false_rejection must be from 0 to 1.")
    return share


def _outputs(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    n, labels = len(answers), sorted(choice.label for choice in answers[0].top)
    found = [{choice.label: choice.probability for choice in answer.top} for answer in answers]
    values: dict[str, tuple[list[int], list[Any]]] = {
        "label": ([n], ["" if each.label is None else str(each.label) for each in answers]),
        "probabilities": ([n, len(labels)], [each[label] for each in found for label in labels]),
        "unknown_score": ([n], [each.unknown_score for each in answers]),
    }
    outputs: list[dict[str, Any]] = [
        {"name": name, "datatype": OUTPUTS[name], "shape": shape, "data": data}
        for name, (shape, data) in values.items()
    ]
    outputs[1]["parameters"] = {"labels": [str(label) for label in labels]}
    return outputs
