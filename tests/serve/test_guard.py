"""The guard: hosts, origins, tokens, sizes and times, in front of an application that only echoes."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from handful.errors import InvalidOptionError
from handful.serve.guard import Access, AsciiResponse, Guard, Limits, access, refused

LIMITS = Limits(body=1000, bodies=1500, idle=0.2, receive=0.4, answer=0.5)


async def echo(request: Request) -> Response:
    body = await request.body()
    if request.url.path == "/slow":
        await asyncio.sleep(30)
    return JSONResponse({"bytes": len(body)})


def guarded(access: Access | None = None, **options: Any) -> Guard:
    app = Starlette(routes=[Route(path, echo, methods=["GET", "POST"]) for path in ("/", "/slow", "/open")])
    return Guard(app, access or Access(), LIMITS, **options)


def ask(guard: Guard, method: str = "GET", path: str = "/", pieces: Any = (b"",), **headers: str) -> tuple[int, Any]:
    """Status and headers of the answer; a piece that is a number is a pause of that many seconds."""
    headers = {"host": "localhost:8000", **headers}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items() if value],
    }  # fmt: skip
    answer: list[Any] = []
    waiting = list(pieces)

    async def receive() -> Any:
        if not waiting:
            await asyncio.sleep(30)
        piece = waiting.pop(0)
        if isinstance(piece, float):
            await asyncio.sleep(piece)
            piece = waiting.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(waiting)}

    async def send(message: Any) -> None:
        answer.append(message)

    asyncio.run(guard(scope, receive, send))
    return answer[0]["status"], {name.decode(): value.decode() for name, value in answer[0]["headers"]}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:9", "LOCALHOST:1"])
def test_names_of_this_machine_are_answered(host: str) -> None:
    assert ask(guarded(), host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "192.168.0.7", ""]
)
def test_a_rebound_name_is_refused(host: str) -> None:
    assert ask(guarded(), host=host)[0] == 421


def test_a_service_on_another_address_of_this_machine_answers_to_it() -> None:
    assert access("127.0.0.2").knows("127.0.0.2:8000")
    assert not access("127.0.0.2").knows("192.168.0.7:8000")


def test_a_service_for_other_machines_knows_its_addresses_but_no_other_name() -> None:
    open_to_all = access("0.0.0.0", names=["Flowers.example"], token="secret")
    assert open_to_all.knows("192.168.0.7:8000")
    assert open_to_all.knows("flowers.example")
    assert not open_to_all.knows("evil.example")
    with pytest.raises(InvalidOptionError, match="needs a token"):
        access("0.0.0.0")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://localhost:8000"}, 200),
        ({"origin": "http://localhost:9000"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
    ],
)
def test_only_pages_of_this_origin_may_write(headers: dict[str, str], status: int) -> None:
    assert ask(guarded(), "POST", **headers)[0] == status


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("", 401), ("Bearer wrong", 401), ("Basic secret", 401), ("Bearer sécret", 401), ("bearer secret", 200)],
)
def test_a_token_is_asked_for_once_it_is_set(authorization: str, status: int) -> None:
    guard = guarded(Access(token="secret"), open_paths=frozenset({"/open"}))
    assert ask(guard, authorization=authorization)[0] == status
    assert ask(guard, path="/open")[0] == 200


def test_every_answer_carries_the_security_headers() -> None:
    for headers in (ask(guarded())[1], ask(guarded(), host="evil.example")[1], ask(guarded(), path="/none")[1]):
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


def test_a_body_is_bounded_whatever_its_length_says() -> None:
    assert ask(guarded(), "POST", pieces=[b"x" * 1000])[0] == 200
    assert ask(guarded(), "POST", content_length="1001")[0] == 413
    assert ask(guarded(), "POST", pieces=[b"x" * 500] * 3)[0] == 413
    assert ask(guarded(), "POST", pieces=[b"x" * 500] * 3, content_length="10")[0] == 413


def test_all_bodies_together_are_bounded_and_counted_down_again() -> None:
    guard = guarded(held=1000)
    status, headers = ask(guard, "POST", pieces=[b"x" * 900])
    assert (status, headers["retry-after"]) == (503, "5")
    assert guard.held == 1000


def test_slow_senders_are_hung_up_on() -> None:
    status, headers = ask(guarded(), "POST", pieces=[b"x", 5.0, b"x"])
    assert (status, headers["connection"]) == (408, "close")
    assert ask(guarded(), "POST", pieces=[b"x", 0.15] * 20)[0] == 408


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    assert ask(guarded(), "POST", "/slow")[0] == 503


def test_a_name_that_is_not_utf8_can_be_answered() -> None:
    name = os.fsdecode(b"caf\xe9")
    for answer in (AsciiResponse({"label": name}), refused(HTTPException(404, name))):
        assert list(json.loads(answer.body).values()) == [name]
