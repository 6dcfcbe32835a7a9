"""Start and stop the server: a bound socket, connection limits, and signals that let it finish."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from handful.errors import InvalidOptionError
from handful.serve.guard import Limits

CONNECTIONS = 512
"""The most open connections; requests on further ones get a 503."""
KEEP_ALIVE = 30
"""Seconds that an idle connection is kept for the next request."""
GRACE = 30
"""Seconds that a stopping server waits for the requests that it has accepted."""


def listening(host: str, port: int) -> socket.socket:
    """A listening socket, so that clients can connect from now on; port 0 means any free port."""
    if not 0 <= port < 2**16:
        raise InvalidOptionError(f"--port must be from 0 to {2**16 - 1}, but got {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(CONNECTIONS)
    except OSError as error:
        raise InvalidOptionError(
            f"Cannot listen on {host}, port {port}: {error.strerror or error}. "
            f"Choose another --port, or 0 for any free port."
        ) from error
    return bound


def address_of(bound: socket.socket) -> str:
    """The URL of the server for a browser on this machine."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(
    app: ASGIApp,
    bound: socket.socket,
    limits: Limits | None = None,
    grace: int = GRACE,
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM, then call `stopping`, which ends streams, and finish accepted requests."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=grace,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises the signal again after it has stopped
        signal.signal(number, lambda *_: None)
    asyncio.run(_serve(uvicorn.Server(config), bound, limits or Limits(), stopping))


async def _serve(server: uvicorn.Server, bound: socket.socket, limits: Limits, stopping: Callable[[], None]) -> None:
    watching = asyncio.create_task(_hang_up_on_silence(server, limits.idle))
    waiting = asyncio.create_task(_when_stopped(server, stopping))
    try:
        await server.serve(sockets=[bound])
    finally:
        watching.cancel()
        waiting.cancel()


async def _when_stopped(server: uvicorn.Server, stopping: Callable[[], None]) -> None:
    while not server.should_exit:
        await asyncio.sleep(0.1)
    stopping()


async def _hang_up_on_silence(server: uvicorn.Server, seconds: float) -> None:
    """Close connections that do not send the headers of a request in time; uvicorn would keep them forever."""
    now = asyncio.get_running_loop().time
    since: dict[Any, float] = {}
    while True:
        await asyncio.sleep(min(1.0, seconds))
        open_now: set[Any] = set(server.server_state.connections)
        since = {each: since.get(each, now()) for each in open_now if _in_headers(each)}
        for each, start in since.items():
            if now() - start > seconds:
                each.transport.abort()


def _in_headers(connection: Any) -> bool:
    """Whether a connection has sent nothing yet, or only a part of the headers of its next request."""
    cycle = connection.cycle
    return cycle is None or (cycle.response_complete and bool(connection.conn.trailing_data[0]))
