"""A layer between handful and the disk that fails or kills at a chosen creation, write, flush or rename of a file.

`Faults` numbers every such event of the code that runs in it. With `at`, the event of that number fails with an error
of the system, after half of the bytes of a write, or ends the process as a power cut would.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
import time
from collections.abc import Callable
from typing import Any

KILLED = 137


class Faults:
    """Counts events; makes number `at` fail with `error`, an errno, or kill the process where that is None."""

    def __init__(self, at: int = -1, error: int | None = None) -> None:
        self.at, self.error = at, error
        self.events: list[str] = []
        self._originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Faults:
        for name in ("fsync", "replace", "rename"):
            self._patch(os, name, self._call(name, getattr(os, name)))
        for module in (io, builtins):
            self._patch(module, "open", self._open(io.open))
        self._patch(os, "open", self._create(os.open))
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, original in reversed(self._originals):
            setattr(owner, name, original)

    def happen(self, name: str, halfway: Callable[[], object] = lambda: None) -> None:
        """Note an event, and let it go wrong if it is the chosen one."""
        self.events.append(name)
        if len(self.events) - 1 != self.at:
            return
        halfway()
        if self.error is None:
            os._exit(KILLED)
        raise OSError(self.error, os.strerror(self.error))

    def _patch(self, owner: Any, name: str, new: Any) -> None:
        self._originals.append((owner, name, getattr(owner, name)))
        setattr(owner, name, new)

    def _call(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*args: Any, **options: Any) -> Any:
            self.happen(name)
            return original(*args, **options)

        return failing

    def _create(self, original: Callable[..., int]) -> Callable[..., int]:
        def creating(path: Any, flags: int, *args: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                self.happen("create")
            return original(path, flags, *args, **options)

        return creating

    def _open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            if not set(mode) & set("wax+") or str(file).startswith("/dev"):
                return original(file, mode, *args, **options)
            self.happen("create")
            return _Failing(original(file, mode, *args, **options), self)

        return opening


class _Failing:
    """A file whose writes are events."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, data: Any) -> Any:
        def half() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._faults.happen("write", half)
        return self._file.write(data)

    def __enter__(self) -> _Failing:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def survives(action: Callable[[], object], at: int = -1, seconds: float | None = None) -> bool:
    """Run `action` in a copy of this process that is killed at the event of that number, or after so many seconds.

    Whether it was not.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with Faults(at):
                action()
            code = 0
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)  # not yet waited for, so the number is its own even if it has ended
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, KILLED, -signal.SIGKILL):
        raise AssertionError(f"The process ended with {code}, neither finished nor killed.")
    return code == 0
