"""Protection of the service: who may send requests, how large they may be, and how long they may take."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handful.errors import InvalidOptionError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
API_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy of answers that no browser needs to render."""
HEADERS = {
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
HANG_UP = {"connection": "close"}
"""Sent if the rest of a request will not be read."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class Limits:
    """How much a client may send and how long it may take."""

    body: int = 64 * 2**20
    """Bytes of one request."""
    bodies: int = 512 * 2**20
    """Bytes of all current requests."""
    values: int = 1_000_000
    """Values in one JSON body."""
    images: int = 256
    """Images in one request."""
    image: int = 32 * 2**20
    """Bytes of one image file."""
    pixels: int = 50_000_000
    """Pixels of one image, according to its header."""
    pixels_in_all: int = 1_000_000_000
    """Pixels of all images of one request."""
    idle: float = 10.0
    """Seconds between two chunks of a request, and for the client to accept a chunk of the answer."""
    receive: float = 60.0
    """Seconds for a whole request to arrive."""
    answer: float = 120.0
    """Seconds until the answer begins."""


@dataclass(frozen=True)
class Access:
    """Who may send requests: the accepted host names, and the token."""

    names: frozenset[str] = LOOPBACK
    """Hosts, in lower case and without a port."""
    addresses: bool = False
    """Whether any IP address is accepted. This is safe, because DNS rebinding needs a host name."""
    token: str = ""
    """What every request must send as `Authorization: Bearer ...`; empty if no token is needed."""

    def knows(self, host: str) -> bool:
        """Whether a Host header names this service."""
        found = _HOST.fullmatch(host.lower())
        return found is not None and (found[1] in self.names or (self.addresses and is_address(found[1].strip("[]"))))

    def admits(self, authorization: str) -> bool:
        """Whether an Authorization header carries the token."""
        scheme, _, given = authorization.partition(" ")
        return not self.token or (
            scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self.token.encode())
        )


def access(host: str, names: Iterable[str] = (), token: str = "") -> Access:
    """Access to a service bound to `host`; other machines need a token."""
    if is_loopback(host):
        return Access(LOOPBACK | {host.lower(), *(name.lower() for name in names)}, token=token)
    if not token:
        raise InvalidOptionError(f"A service that other machines can reach ({host}) needs a token.")
    own = {host.lower(), socket.gethostname().lower(), *(name.lower() for name in names)}
    return Access(LOOPBACK | own, addresses=True, token=token)


def is_address(host: str) -> bool:
    """Whether this is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a service bound to `host`."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


@dataclass
class Guard:
    """ASGI middleware around a whole application; refusals are JSON with one field, `error`.

    It refuses requests for other hosts (DNS rebinding), requests from pages of other origins (cross-site writes),
    requests without the token, and WebSockets. Bodies are counted while they are received, so a false length does not
    help. Every answer gets the security headers. Paths in `open_paths` need no token.
    """

    app: ASGIApp
    access: Access = Access()
    limits: Limits = Limits()
    policy: str = API_POLICY
    open_paths: frozenset[str] = frozenset()
    held: int = 0
    """Bytes of the bodies of all current requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            exchange = _Exchange(self, receive, send)
            try:
                await exchange.run(scope)
            finally:
                self.held -= exchange.received

    def refusal(self, scope: Scope) -> HTTPException | None:
        """Why a request is refused before its body is read, or None."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.access.knows(hosts[0]):
            asked = hosts[0][:100] if hosts else ""
            return HTTPException(421, f"This service does not accept the host name {asked!r}.", HANG_UP)
        if _from_elsewhere(scope["method"], headers, hosts[0]):
            return HTTPException(403, "Requests from pages of other sites are refused.", HANG_UP)
        if scope["path"] not in self.open_paths and not self.access.admits(headers.get("authorization", "")):
            why = "Send the token of this service: Authorization: Bearer TOKEN."
            return HTTPException(401, why, {"www-authenticate": "Bearer", **HANG_UP})
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body:
            return self.too_large()
        return None

    def too_large(self) -> HTTPException:
        """The refusal of a body that is too large."""
        return HTTPException(413, f"A request may have at most {self.limits.body} bytes.", HANG_UP)


@dataclass
class _Exchange:
    """One request and its answer, within the limits."""

    guard: Guard
    receive: Receive
    send: Send
    received: int = 0
    complete: bool = False
    started: bool = False
    until: float = 0.0
    clock: asyncio.Timeout | None = None

    async def run(self, scope: Scope) -> None:
        refusal = self.guard.refusal(scope)
        if refusal is not None:
            await refused(refusal)(scope, self.receive, self.sent)
            return
        limits = self.guard.limits
        self.until = asyncio.get_running_loop().time() + limits.receive
        self.clock = asyncio.timeout(limits.answer)
        try:
            async with self.clock:
                await self.guard.app(scope, self.taken, self.sent)
        except TimeoutError:
            if self.started or not self.clock.expired():
                raise
            late = HTTPException(503, "The answer took too long. Try again later.", {"retry-after": "10", **HANG_UP})
            await refused(late)(scope, self.receive, self.sent)

    async def taken(self) -> Message:
        """The next chunk of the request, within the limits of time and size."""
        if self.complete:
            return await self.receive()  # waits until the client disconnects, without a limit
        left = self.until - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(self.guard.limits.idle, max(left, 0))):
                message = await self.receive()
        except TimeoutError:
            raise HTTPException(408, "The request took too long to arrive.", HANG_UP) from None
        size = len(message.get("body", b""))
        self.received += size
        self.guard.held += size
        if self.received > self.guard.limits.body:
            raise self.guard.too_large()
        if self.guard.held > self.guard.limits.bodies:
            raise HTTPException(503, "Too many large requests at once.", {"retry-after": "5", **HANG_UP})
        self.complete = message["type"] == "http.disconnect" or not message.get("more_body", False)
        return message

    async def sent(self, message: Message) -> None:
        """Send a chunk of the answer with the security headers; disconnects a client that does not accept it."""
        if message["type"] == "http.response.start":
            self.started = True
            if self.clock is not None and not self.clock.expired():
                self.clock.reschedule(None)
            headers = MutableHeaders(scope=message)
            headers.setdefault("content-security-policy", self.guard.policy)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        async with asyncio.timeout(self.guard.limits.idle):
            await self.send(message)


class AsciiResponse(JSONResponse):
    """JSON with all other characters escaped, because a folder name that is not UTF-8 cannot be encoded otherwise."""

    def render(self, content: Any) -> bytes:
        """The JSON as bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def refused(error: HTTPException) -> JSONResponse:
    """The answer to a request that is refused."""
    return AsciiResponse({"error": error.detail}, error.status_code, error.headers)


def _from_elsewhere(method: str, headers: Headers, host: str) -> bool:
    """Whether a browser sent this on behalf of a page of another origin."""
    origin = headers.get("origin")
    if origin is None:
        site = headers.get("sec-fetch-site", "none")
        return method not in _SAFE and site not in ("same-origin", "none")
    try:
        parts = urlsplit(origin)
    except ValueError:
        return True
    return parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower()
