"""What commands share: the engine that their flags choose, and output that is safe for any terminal or pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from handful.meta.config import Device, Precision, Reduce

if TYPE_CHECKING:
    from handful.meta.engine import Engine


def prepare(
    device: Device = "auto",
    threads: int = 0,
    precision: Precision = "float32",
    reduce: Reduce = "ordered",
    compiled: bool = False,
) -> Engine:
    """The engine that the flags ask for."""
    from handful.meta import engine

    return engine.prepare(device, threads, precision=precision, reduce=reduce, compiled=compiled)


HANGUP: int | None = getattr(signal, "SIGHUP", None)
STOPPING = [signal.SIGINT, signal.SIGTERM, *([] if HANGUP is None else [signal.Signals(HANGUP)])]
_ORDERS = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SPELLED = {code: f"\\u{code:04x}" for code in _ORDERS if chr(code) not in "\n\t\r"}
"""Control characters and characters that change the writing direction, with their escapes as in JSON."""


def plain(text: object) -> str:
    """Text from a file, such as a class name, with control characters escaped so that the terminal ignores them."""
    return str(text).translate(_SPELLED)


def note(text: object) -> None:
    """Print a line to standard error, separate from the results, with control characters escaped."""
    print(plain(text), file=sys.stderr, flush=True)


class _Plain:
    """A stream that escapes control characters."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text with control characters escaped."""
        return int(self._stream.write(plain(text)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def prepare_streams() -> None:
    """Make printing safe: reopen closed streams, and escape characters that the encoding lacks."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the free descriptor, so that none of our files gets it
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 (stays open)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Escape control characters in what the block prints, and flush the output at the end."""
    with contextlib.redirect_stdout(_Plain(sys.stdout)):
        yield
        sys.stdout.flush()


def drop_output() -> None:
    """Discard output that cannot be written, so that the interpreter does not try again when it exits."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def let_go_of_the_terminal() -> None:
    """Discard all further output, because the terminal is gone and writing to it would fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(number) or not _writable(number):
                os.dup2(nowhere, number)


def _writable(number: int) -> bool:
    try:
        os.write(number, b"")
    except OSError:
        return False
    return True
