"""The server of the studio: projects as JSON over HTTP, progress as server-sent events, and the page itself."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from handful.errors import HandfulError, InvalidOptionError
from handful.serve import studio_changes as changes
from handful.serve.decode import checked, large_picture
from handful.serve.guard import Access, AsciiResponse, Guard, Limits
from handful.serve.studio_import import take_over
from handful.serve.studio_session import Session
from handful.serve.studio_shelf import Shelf
from handful.serve.studio_store import class_name, file_name

STATIC = Path(__file__).parent / "static"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
"""For pictures, whose URL identifies their content."""
HEARTBEAT = 15.0
"""Seconds between keep-alive messages on a quiet stream of events."""
STOPPING = 0.5
"""Seconds that a stopping studio waits for the batch that it is embedding; everything else is saved."""
Json = dict[str, Any]


@dataclass
class Channel:
    """Sends the events of a session to every connected page; `tell` may be called from any thread."""

    loop: asyncio.AbstractEventLoop
    listeners: set[asyncio.Queue[tuple[str, Json]]] = field(default_factory=set)
    missed: deque[tuple[str, Json]] = field(default_factory=lambda: deque(maxlen=5))
    """The last failures that no page has seen: an import can fail before the first page listens."""

    def tell(self, event: str, data: Json) -> None:
        """Send an event to all pages."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._send, event, data)

    def listen(self) -> asyncio.Queue[tuple[str, Json]]:
        """A queue of all events from now on, after the failures that no page has seen."""
        queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue()
        while self.missed:
            queue.put_nowait(self.missed.popleft())
        self.listeners.add(queue)
        return queue

    def _send(self, event: str, data: Json) -> None:
        if event == "failed" and not self.listeners:
            self.missed.append((event, data))
        for listener in self.listeners:
            listener.put_nowait((event, data))


@dataclass
class Studio:
    """The application: a shelf of projects, and the sessions of open ones."""

    shelf: Shelf
    limits: Limits = field(default_factory=Limits)
    sessions: dict[str, tuple[Session, Channel]] = field(default_factory=dict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def application(self, access: Access = Access()) -> ASGIApp:  # noqa: B008
        """The ASGI application, inside its guard."""
        project = "/api/projects/{project}"
        routes = [
            Route("/", _page),
            Route("/p/{project}", _page),
            Route("/api/projects", self.projects, methods=["GET"]),
            Route("/api/projects", self.create, methods=["POST"]),
            Route(project, self.read, methods=["GET"]),
            Route(project, self.remove, methods=["DELETE"]),
            Route(f"{project}/events", self.events),
            Route(f"{project}/do", self.act, methods=["POST"]),
            Route(f"{project}/images", self.add, methods=["POST"]),
            Route(f"{project}/try", self.attempt, methods=["POST"]),
            Route(f"{project}/small/{{item}}.jpg", self.small),
            Route(f"{project}/large/{{item}}.jpg", self.large),
            Route(f"{project}/export/{{kind}}", self.export),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]
        errors: dict[Any, Any] = {HandfulError: _complaint, HTTPException: _refusal}
        app = Starlette(routes=routes, exception_handlers=errors, lifespan=self.lifespan)
        return Guard(app, access, self.limits, PAGE_POLICY)

    def stop(self) -> None:
        """End all streams of events, so that the server can stop."""
        self.stopping.set()
        for _, channel in self.sessions.values():
            channel.tell("stopped", {})

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close all sessions when the server stops."""
        yield
        self.stop()
        for session, _ in self.sessions.values():
            await run_in_threadpool(session.close, STOPPING)

    # ------------------------------------------------------------------------------------------------------- projects

    async def projects(self, request: Request) -> Response:
        """The projects on the shelf."""
        found = await run_in_threadpool(self.shelf.list)
        return AsciiResponse([asdict(each) for each in found])

    async def create(self, request: Request) -> Response:
        """A new project."""
        body = await _json(request)
        return AsciiResponse({"id": await run_in_threadpool(self.shelf.create, class_name(body.get("name")))}, 201)

    async def remove(self, request: Request) -> Response:
        """Delete a project permanently."""
        identity = request.path_params["project"]
        async with self._opening:
            open_session = self.sessions.pop(identity, None)
            if open_session is not None:
                await run_in_threadpool(open_session[0].close)
            await run_in_threadpool(self.shelf.remove, identity)
        return AsciiResponse({})

    async def session(self, request: Request) -> Session:
        """The session of the project in a request, opened on first use."""
        return (await self.opened(request.path_params["project"]))[0]

    async def opened(self, identity: str) -> tuple[Session, Channel]:
        """A session and its channel."""
        async with self._opening:
            if identity not in self.sessions:
                channel = Channel(asyncio.get_running_loop())

                def start() -> Session:
                    project = self.shelf.open(identity)
                    try:
                        session = Session(project, channel.tell)
                    except BaseException:
                        project.close()
                        raise
                    session.start(take_over)
                    return session

                self.sessions[identity] = await run_in_threadpool(start), channel
            return self.sessions[identity]

    # ---------------------------------------------------------------------------------------------------- one project

    async def read(self, request: Request) -> Response:
        """Everything that the page shows."""
        session, query = await self.session(request), request.query_params
        since = query.get("since", "")
        seen = int(since) if since.isascii() and since.isdigit() else None
        return AsciiResponse(await run_in_threadpool(session.state, query.get("session", ""), seen))

    async def act(self, request: Request) -> Response:
        """Make one change and return what the page has to update.

        `Server-Timing` says how long it took, and how much of that the processor worked.
        """
        session, body = await self.session(request), await _json(request)
        action = ACTIONS.get(str(body.get("action")))
        if action is None:
            raise InvalidOptionError(f"The action must be one of {', '.join(ACTIONS)}.")

        since = body.get("since")
        seen = since if isinstance(since, int) else None

        def run() -> tuple[Json, str]:
            began, worked = time.perf_counter(), time.thread_time()
            action(session, body)
            state = session.state(str(body.get("session")), seen)
            took = f"update;dur={1000 * (time.perf_counter() - began):.2f}"
            return state, f"{took}, processor;dur={1000 * (time.thread_time() - worked):.2f}"

        state, timing = await run_in_threadpool(run)
        return AsciiResponse(state, headers={"server-timing": timing})

    async def add(self, request: Request) -> Response:
        """Add the image in the body of the request to a class or to the pile."""
        session, query = await self.session(request), request.query_params
        name, content = query.get("name", "image"), await request.body()
        label = query.get("label")

        def run() -> Json:
            (picture,) = checked([(name, content)], self.limits)
            chosen = None if label is None else class_name(label)
            return session.add_image(content, picture.name, chosen, query.get("batch", "")[:64])

        return AsciiResponse(await run_in_threadpool(run))

    async def attempt(self, request: Request) -> Response:
        """What the classifier says about the image in the body of the request."""
        session, content = await self.session(request), await request.body()
        name = request.query_params.get("name", "image")

        def run() -> Json:
            (picture,) = checked([(name, content)], self.limits)
            return session.answer(content, picture.name)

        return AsciiResponse(await run_in_threadpool(run))

    async def small(self, request: Request) -> Response:
        """The thumbnail of an image."""
        identity = request.path_params["project"]
        folder = self.shelf.path(identity) / "small"
        file = folder / f"{_digest(request)}.jpg"
        if not await run_in_threadpool(file.is_file):
            raise HTTPException(404, "There is no such image.")
        return FileResponse(file, headers=FOREVER, media_type="image/jpeg")

    async def large(self, request: Request) -> Response:
        """A large version of an image."""
        project, item = (await self.session(request)).project, _digest(request)
        if not await run_in_threadpool(project.image(item).is_file):  # it came with a .handful file
            return await self.small(request)
        data = await run_in_threadpool(lambda: large_picture(project.image(item).read_bytes()))
        return Response(data, media_type="image/jpeg", headers=FOREVER)

    async def events(self, request: Request) -> Response:
        """Progress and changes, as they happen."""
        session, channel = await self.opened(request.path_params["project"])
        queue = channel.listen()

        async def stream() -> AsyncIterator[str]:
            try:
                yield _event("progress", session.progress())
                while not self.stopping.is_set():
                    try:
                        event, data = await asyncio.wait_for(queue.get(), HEARTBEAT)
                        yield _event(event, data)
                    except TimeoutError:
                        yield ": still here\n\n"
            finally:
                channel.listeners.discard(queue)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def export(self, request: Request) -> Response:
        """The classifier as a file to download."""
        session, kind = await self.session(request), request.path_params["kind"]
        if kind not in ("handful", "onnx", "html"):
            raise HTTPException(404, "There is no such export.")

        def run() -> bytes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"model.{kind}"
                session.save(path)
                return path.read_bytes()

        data = await run_in_threadpool(run)
        attachment = {"content-disposition": f'attachment; filename="{file_name(session.project.name)}.{kind}"'}
        return Response(data, media_type="application/octet-stream", headers=attachment)


ACTIONS: dict[str, Callable[[Session, Json], object]] = {
    "label": lambda session, body: session.do(changes.label, _items(body), _label(body)),
    "confirm": lambda session, body: session.do(changes.confirm, _items(body)),
    "delete": lambda session, body: session.do(changes.delete, _items(body)),
    "add-class": lambda session, body: session.do(changes.add_class, body.get("name")),
    "rename-class": lambda session, body: session.do(changes.rename_class, str(body.get("old")), body.get("name")),
    "delete-class": lambda session, body: session.do(changes.delete_class, str(body.get("name"))),
    "rename": lambda session, body: session.do(changes.rename, body.get("name")),
    "reject": lambda session, body: session.do(changes.reject, _share(body)),
    "embedding": lambda session, body: session.choose_embedding(str(body.get("name"))),
    "compare": lambda session, body: session.compare(str(body.get("name"))),
    "cancel": lambda session, body: session.cancel(),
    "undo": lambda session, body: session.undo(),
    "redo": lambda session, body: session.redo(),
}
"""The actions of a page, by name."""


def _items(body: Json) -> list[str]:
    items = body.get("items")
    if not isinstance(items, list) or not all(isinstance(each, str) for each in items):
        raise InvalidOptionError("items must be a list of images.")
    return items


def _label(body: Json) -> str | None:
    return None if body.get("label") is None else class_name(body["label"])


def _share(body: Json) -> float:
    share = body.get("share")
    return float(share) if isinstance(share, int | float) else -1.0


def _digest(request: Request) -> str:
    item = str(request.path_params["item"])
    if len(item) != 64 or not set(item) <= set("0123456789abcdef"):
        raise HTTPException(404, "There is no such image.")
    return item


async def _json(request: Request) -> Json:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise InvalidOptionError(f"The request is not JSON: {error}.") from error
    if not isinstance(body, dict):
        raise InvalidOptionError("The request is not a JSON object.")
    return body


def _event(name: str, data: Json) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _complaint(request: Request, error: Exception) -> Response:
    return AsciiResponse({"error": str(error)}, 400)


async def _refusal(request: Request, error: Exception) -> Response:
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, str(error))
    return AsciiResponse({"error": detail}, status)
