"""The HTTP interface of classifiers: predict, classes, examples, estimate, health, metrics, and its description."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from handful.classifier import FewShotClassifier, answers
from handful.classifier.answers import Answer, Estimate, Example, Plain, plain
from handful.classifier.inputs import Matrix, Picture
from handful.errors import HandfulError
from handful.serve import inference
from handful.serve.decode import TooLargeError, plain_name
from handful.serve.description import (
    BOOLEAN,
    COUNT,
    LABEL,
    TEXT,
    Operations,
    Parameter,
    Schema,
    array,
    obj,
    openapi,
    ref,
)
from handful.serve.guard import Access, Guard, Limits, refused
from handful.serve.metrics import Metrics, family
from handful.serve.models import Model, Service
from handful.serve.requests import FORM, JSON, label_of, pictures_of, sent
from handful.serve.worker import BusyError

Query = Mapping[str, Any]
OPEN_PATHS = frozenset({"/health", "/v2/health/live", "/v2/health/ready"})
"""Paths for load balancers, which need no token."""
FILES: Schema = array({"type": "string", "format": "binary"}, minItems=1)
DATA: Schema = obj({"data": {"type": "string", "contentEncoding": "base64"}, "name": TEXT}, optional=["name"])
NAMED: dict[str, Schema] = {"model": TEXT, "version": COUNT}
UPDATED: Schema = obj({**NAMED, "examples": COUNT, "added": COUNT, "repeated": array(TEXT)}, ["added", "repeated"])
UPLOAD = (404, 408, 413, 415, 422, 503)
"""Status codes for a body that cannot be used."""
OPTIONS = (
    Parameter("top", "integer", 3, "How many classes to return, most probable first.", 1, 1000),
    Parameter("nearest", "integer", 3, "How many of the most similar examples to return.", 0, 100),
    Parameter(
        "reject", "boolean", False, "Reject images that look like none of the classes; their label is then null."
    ),
    Parameter("false_rejection", "number", 0.05, "Share of images of known classes that may be rejected.", 0, 0.99),
)
PAGE = (
    Parameter("offset", "integer", 0, "Position of the first example to list.", 0, 10**9),
    Parameter("limit", "integer", 100, "How many examples to list.", 1, 1000),
)
MODEL: Schema = obj(
    {
        "name": TEXT,
        "version": COUNT,
        "classes": array(LABEL),
        "examples": COUNT,
        "embedding": TEXT,
        "learner": TEXT,
        "learns": BOOLEAN,
    }
)
operations = Operations()


def application(service: Service, access: Access) -> Metrics:
    """The whole service as one ASGI application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await service.stop()

    handlers: dict[Any, Any] = {
        HTTPException: lambda request, error: refused(error),
        HandfulError: lambda request, error: refused(_refusal(error)),
        ClientDisconnect: lambda request, error: Response(status_code=400),
        Exception: lambda request, error: refused(HTTPException(500, "Something went wrong; see the log.")),
    }
    routes = [each.route(service) for each in (*operations, *inference.operations)]
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.metrics = counted = Metrics(Guard(app, access, service.limits, open_paths=OPEN_PATHS))
    return counted


def _refusal(error: HandfulError) -> HTTPException:
    if isinstance(error, BusyError):
        return HTTPException(503, str(error), {"retry-after": str(error.retry_after)})
    return HTTPException(413 if isinstance(error, TooLargeError) else 422, str(error))


def told(value: Plain) -> Any:
    """The JSON of an answer; paths on the server are reduced to file names."""
    return _without_folders(value.to_json())


def _without_folders(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _without_folders(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each, name) for each in value]
    return plain_name(value) if name in ("name", "names", "repeated") and isinstance(value, str) else value


# ------------------------------------------------------------------------------------------------------- the service


@operations.declare("GET", "/health", obj({"status": TEXT, "pending": COUNT}))
async def health(service: Service, request: Request, query: Query) -> Any:
    """Whether the service works; this is answered at once, even under load."""
    return {"status": "ok", "pending": service.worker.pending}


@operations.declare("GET", "/metrics", TEXT, media="text/plain")
async def metrics(service: Service, request: Request, query: Query) -> Any:
    """Counts of requests, of the worker and of the models, for Prometheus."""
    lines: list[str] = request.app.state.metrics.lines()
    worker = service.worker
    for name, kind, text, value in (
        ("handful_images_total", "counter", "Images embedded.", worker.images),
        ("handful_batches_total", "counter", "Batches of embedded images.", worker.batches),
        ("handful_embedding_seconds_total", "counter", "Seconds spent embedding.", worker.seconds),
        ("handful_pending_images", "gauge", "Images accepted but not answered yet.", worker.pending),
        ("handful_queue_images", "gauge", "Images that may be pending.", worker.queue),
    ):
        lines += family(name, kind, text, {(): value})
    now = {(("model", name),): model.now.snapshot() for name, model in service.models.items()}
    lines += family("handful_model_version", "gauge", "Version.", {key: clf.version_ for key, clf in now.items()})
    lines += family("handful_model_examples", "gauge", "Examples.", {key: len(clf.labels_) for key, clf in now.items()})
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


@operations.declare("GET", "/openapi.json", {"type": "object"})
async def description(service: Service, request: Request, query: Query) -> Any:
    """This description."""
    kinds = [each for each in vars(answers).values() if isinstance(each, type) and is_dataclass(each)]
    return openapi([*operations, *inference.operations], kinds)


# -------------------------------------------------------------------------------------------------------- the models


@operations.declare("GET", "/models", obj({"models": array(MODEL)}))
async def models(service: Service, request: Request, query: Query) -> Any:
    """All classifiers."""
    return {"models": [_facts(model) for model in service.models.values()]}


@operations.declare("GET", "/models/{model}", MODEL, errors=(404,))
async def model(service: Service, request: Request, query: Query) -> Any:
    """One classifier."""
    return _facts(service.model(request))


def _facts(model: Model) -> dict[str, Any]:
    clf = model.now.snapshot()
    return {
        "name": model.name,
        "version": clf.version_,
        "classes": [plain(each) for each in clf.classes_],
        "examples": len(clf.labels_),
        "embedding": clf.embedding_,
        "learner": clf.learner,
        "learns": model.learns,
    }


@operations.declare(
    "GET",
    "/models/{model}/classes",
    obj({**NAMED, "classes": array(obj({"label": LABEL, "images": COUNT}))}),
    errors=(404,),
)
async def classes(service: Service, request: Request, query: Query) -> Any:
    """The classes, in the order of all probabilities, with their numbers of examples."""
    model = service.model(request)
    clf = model.now.snapshot()
    counts = Counter(clf.labels_.tolist())
    found = [{"label": plain(each), "images": counts[plain(each)]} for each in clf.classes_]
    return {"model": model.name, "version": clf.version_, "classes": found}


@operations.declare("GET", "/models/{model}/estimate", ref(Estimate), errors=(404,))
async def estimate(service: Service, request: Request, query: Query) -> Any:
    """How accurate a classifier is, according to leave-one-out."""
    return told(await service.model(request).estimate())


@operations.declare(
    "POST",
    "/models/{model}/predict",
    obj({**NAMED, "answers": array(ref(Answer))}),
    query=OPTIONS,
    body={
        FORM: obj({"images": FILES}),
        JSON: {
            "oneOf": [obj({"images": array(DATA, minItems=1)}), obj({"features": array(array({"type": "number"}))})]
        },
    },
    errors=UPLOAD,
)
async def predict(service: Service, request: Request, query: Query) -> Any:
    """Classify images, all with the same version of the classifier."""
    model = service.model(request)
    found = await model.answer(
        await _queries(service, request),
        top=query["top"],
        nearest_examples=query["nearest"],
        false_rejection=query["false_rejection"] if query["reject"] else None,
    )
    return {"model": model.name, "version": found[0].version, "answers": [told(each) for each in found]}


async def _queries(service: Service, request: Request) -> list[Picture] | Matrix:
    body = await sent(request, service.worker, service.limits)
    if "features" in body.fields and not body.files:
        return _features(body.fields["features"], service.limits)
    return await service.worker.run(pictures_of, body, service.limits)


def _features(rows: Any, limits: Limits) -> Matrix:
    if not isinstance(rows, list) or not 1 <= len(rows) <= limits.images:
        raise HTTPException(400, f"features must be a list of 1 to {limits.images} lists of numbers.")
    try:
        found = np.array(rows, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        found = np.empty(0)
    if found.ndim != 2:
        raise HTTPException(400, "features must be lists of numbers, all of the same length.")
    return found


# ------------------------------------------------------------------------------------------------------ the examples


@operations.declare(
    "GET",
    "/models/{model}/examples",
    obj({**NAMED, "total": COUNT, "examples": array(ref(Example))}),
    query=PAGE,
    errors=(404,),
)
async def examples(service: Service, request: Request, query: Query) -> Any:
    """What a classifier has learnt, in order."""
    model = service.model(request)
    clf = model.now.snapshot()
    every = clf.examples_
    some = every[query["offset"] :][: query["limit"]]
    found = {"total": len(every), "examples": [told(each) for each in some]}
    return {"model": model.name, "version": clf.version_, **found}


@operations.declare(
    "POST",
    "/models/{model}/examples",
    UPDATED,
    body={
        FORM: obj({"images": FILES, "label": TEXT}),
        JSON: obj({"images": array(DATA, minItems=1), "label": LABEL}),
    },
    errors=UPLOAD,
)
async def learn(service: Service, request: Request, query: Query) -> Any:
    """Learn images of one known or new class."""
    model = service.learning_model(request)
    body = await sent(request, service.worker, service.limits)
    label = label_of(body.fields)
    pictures = await service.worker.run(pictures_of, body, service.limits)
    clf = await model.add(pictures, label)
    return {**_changed(model, clf), **told(clf.learnt_)}


@operations.declare(
    "PATCH", "/models/{model}/examples/{digest}", UPDATED, body={JSON: obj({"label": LABEL})}, errors=UPLOAD
)
async def relabel(service: Service, request: Request, query: Query) -> Any:
    """Correct the label of an example."""
    model = service.learning_model(request)
    body = await sent(request, service.worker, service.limits)
    return _changed(model, await model.relabel(_digest(request, model), label_of(body.fields)))


@operations.declare("DELETE", "/models/{model}/examples/{digest}", UPDATED, errors=(404, 422, 503))
async def forget(service: Service, request: Request, query: Query) -> Any:
    """Forget an example exactly, as if it had never been learnt."""
    model = service.learning_model(request)
    return _changed(model, await model.forget(digest=_digest(request, model)))


@operations.declare("DELETE", "/models/{model}/classes/{label}", UPDATED, errors=(404, 422, 503))
async def forget_class(service: Service, request: Request, query: Query) -> Any:
    """Forget a class and all of its examples exactly."""
    model, text = service.learning_model(request), request.path_params["label"]
    known = {str(each): plain(each) for each in model.now.classes_}
    if text not in known:
        raise HTTPException(404, f"There is no class {text[:50]!r}.")
    return _changed(model, await model.forget(label=known[text]))


def _digest(request: Request, model: Model) -> str:
    digest: str = request.path_params["digest"]
    if all(each.digest != digest for each in model.now.examples_):
        raise HTTPException(404, f"There is no example {digest[:64]!r}.")
    return digest


def _changed(model: Model, clf: FewShotClassifier) -> dict[str, Any]:
    return {"model": model.name, "version": clf.version_, "examples": len(clf.labels_)}
