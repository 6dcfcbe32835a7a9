"""The operations of the service, each declared once, both for reading requests and for OpenAPI."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from handful import __version__
from handful.serve.guard import AsciiResponse

Schema = dict[str, Any]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Awaitable[Any]])
LABEL: Schema = {"type": ["string", "number", "boolean", "null"]}
TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
ERROR: Schema = {"$ref": "#/components/schemas/Error"}
REASONS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "The service was started without --learn, or the request comes from a page of another site.",
    404: "There is nothing with that name.",
    408: "The request took too long to arrive.",
    413: "The request, an image or the number of images exceeds the limit.",
    415: "The body is neither JSON nor a form.",
    421: "The Host header names another host.",
    422: "The request was read, but its content cannot be used.",
    503: "Too many images are waiting. Retry-After says when to try again.",
}
EVERYWHERE = (401, 403, 421)


@dataclass(frozen=True)
class Parameter:
    """A parameter in the query string."""

    name: str
    kind: Literal["integer", "number", "boolean"]
    default: float | bool
    text: str
    low: float = 0
    high: float = 1

    def read(self, given: str | None) -> Any:
        """The value; raises a 400 if it is not valid."""
        if given is None:
            return self.default
        if self.kind == "boolean":
            if given not in ("true", "false"):
                raise HTTPException(400, f"{self.name} must be true or false, but got {given[:50]!r}.")
            return given == "true"
        try:
            value = int(given) if self.kind == "integer" else float(given)
        except ValueError:
            value = math.nan
        if not self.low <= value <= self.high:
            raise HTTPException(400, f"{self.name} must be from {self.low:g} to {self.high:g}, but got {given[:50]!r}.")
        return value

    def described(self) -> Schema:
        """As OpenAPI has it."""
        limits = {} if self.kind == "boolean" else {"minimum": self.low, "maximum": self.high}
        schema = {"type": self.kind, "default": self.default, **limits}
        return {"name": self.name, "in": "query", "description": self.text, "schema": schema}


@dataclass(frozen=True)
class Operation:
    """One operation for clients; its name and summary come from the function that implements it."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    endpoint: Callable[[Any, Request, Mapping[str, Any]], Awaitable[Any]]
    answer: Schema
    query: tuple[Parameter, ...] = ()
    body: Mapping[str, Schema] = field(default_factory=dict)
    """Schemas by media type."""
    errors: tuple[int, ...] = ()
    media: str = "application/json"

    @property
    def name(self) -> str:
        """The identifier in the description and in metrics."""
        return self.endpoint.__name__

    def route(self, service: Any) -> Route:
        """The route: it reads the query, calls the function and returns the answer as JSON."""

        async def answered(request: Request) -> Response:
            request.scope["operation"] = self.name
            given = request.query_params
            found = await self.endpoint(
                service, request, {each.name: each.read(given.get(each.name)) for each in self.query}
            )
            return found if isinstance(found, Response) else AsciiResponse(found)

        return Route(self.path, answered, methods=[self.method], name=self.name)

    def described(self) -> Schema:
        """As OpenAPI has it."""
        parts = [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
        places = [{"name": part, "in": "path", "required": True, "schema": TEXT} for part in parts]
        answers = {"200": {"description": "The answer.", "content": {self.media: {"schema": self.answer}}}}
        for status in sorted({*EVERYWHERE, *self.errors, *((400,) if self.query or self.body else ())}):
            answers[str(status)] = {"description": REASONS[status], "content": {"application/json": {"schema": ERROR}}}
        found: Schema = {
            "operationId": self.name,
            "summary": (self.endpoint.__doc__ or "").strip(),
            "parameters": [*places, *(each.described() for each in self.query)],
            "responses": answers,
        }
        if self.body:
            content = {media: {"schema": schema} for media, schema in self.body.items()}
            found["requestBody"] = {"required": True, "content": content}
        return found


class Operations(list[Operation]):
    """Operations, declared by decorating the functions that implement them."""

    def declare(
        self, method: Literal["GET", "POST", "PATCH", "DELETE"], path: str, answer: Schema, **more: Any
    ) -> Callable[[Endpoint], Endpoint]:
        """A decorator that declares an operation; `more` are the other fields of an Operation."""

        def declared(endpoint: Endpoint) -> Endpoint:
            self.append(Operation(method, path, endpoint, answer, **more))
            return endpoint

        return declared


def openapi(operations: Sequence[Operation], kinds: Sequence[type]) -> Schema:
    """The complete OpenAPI description; `kinds` are the dataclasses that occur in answers."""
    paths: dict[str, Schema] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation.described()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "handful",
            "version": __version__,
            "description": "Few-shot image classifiers that predict and learn over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": {
                "Error": obj({"error": TEXT}),
                **{
                    kind.__name__: obj({f.name: _of(get_type_hints(kind)[f.name]) for f in fields(kind)})
                    for kind in kinds
                },
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def obj(properties: Mapping[str, Schema], optional: Sequence[str] = ()) -> Schema:
    """An object with these properties, all required except the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def array(items: Schema, **limits: int) -> Schema:
    """A list."""
    return {"type": "array", "items": items, **limits}


def ref(kind: type) -> Schema:
    """A dataclass that is described among the components."""
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


_PLAIN: dict[Any, Schema] = {
    str: TEXT,
    bool: BOOLEAN,
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    Any: LABEL,
}


def _of(hint: Any) -> Schema:
    """The schema of a field's type; a number that is not finite is null in JSON."""
    if get_origin(hint) is tuple:
        return array(_of(get_args(hint)[0]))
    if get_origin(hint) is UnionType:
        (inner,) = (each for each in get_args(hint) if each is not NoneType)
        return {"anyOf": [_of(inner), {"type": "null"}]}
    return ref(hint) if is_dataclass(hint) and isinstance(hint, type) else _PLAIN[hint]
