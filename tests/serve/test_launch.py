"""A socket that listens from the start, its address for a browser, and a server that is stopped by a signal."""

from __future__ import annotations

import socket

import pytest

from handful.errors import InvalidOptionError
from handful.serve.launch import _in_headers, address_of, listening


def test_clients_can_connect_before_the_server_runs() -> None:
    with listening("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert address_of(bound) == f"http://127.0.0.1:{port}"
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    with pytest.raises(InvalidOptionError, match=rf"--port .*65535.*{port}"):
        listening("127.0.0.1", port)


def test_a_port_that_is_taken_and_a_host_that_is_elsewhere_are_refused() -> None:
    with listening("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidOptionError, match=rf"127\.0\.0\.1.*{port}"):
            listening("127.0.0.1", port)
    with pytest.raises(InvalidOptionError, match=r"192\.0\.2\.1"):  # an address for documentation
        listening("192.0.2.1", 0)


class Bound:
    """A socket of which only its name is asked."""

    def __init__(self, *name: object) -> None:
        self.name = name

    def getsockname(self) -> tuple[object, ...]:
        return self.name


@pytest.mark.parametrize(
    ("name", "address"),
    [
        (("0.0.0.0", 8000), "http://127.0.0.1:8000"),
        (("::", 8000, 0, 0), "http://[::1]:8000"),
        (("::1", 80, 0, 0), "http://[::1]:80"),
        (("10.0.0.7", 80), "http://10.0.0.7:80"),
    ],
)
def test_the_address_is_one_that_a_browser_on_this_machine_can_open(name: tuple[object, ...], address: str) -> None:
    assert address_of(Bound(*name)) == address  # type: ignore[arg-type]


class Connection:
    """A connection of the server: what its request has got to, and what came after it."""

    def __init__(self, complete: bool | None, rest: bytes = b"") -> None:
        self.cycle = None if complete is None else type("Cycle", (), {"response_complete": complete})
        self.conn = type("Conn", (), {"trailing_data": (rest, False)})


def test_a_connection_is_silent_before_its_first_request_or_within_the_headers_of_the_next() -> None:
    assert _in_headers(Connection(None))
    assert _in_headers(Connection(True, b"GET / HT"))
    assert not _in_headers(Connection(True))  # kept for the next request
    assert not _in_headers(Connection(False, b"GET"))  # still answering
