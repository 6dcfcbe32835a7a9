"""Where data sets live on disk: one folder, chosen by the caller, by HANDFUL_DATA, or by the platform's custom."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from handful import files
from handful.errors import DataError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def data_root(root: str | Path | None = None) -> Path:
    """The folder of packed data sets: `root`, else the environment's HANDFUL_DATA, else the user's cache folder."""
    chosen = root or os.environ.get("HANDFUL_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return user_cache() / "handful"


def user_cache() -> Path:
    """The folder in which this platform wants things that can be made again."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def write_error(error: OSError, path: Path) -> DataError:
    """What went wrong when `path` was written, in words that say what to do."""
    if error.errno in FULL:
        free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
        return DataError(
            f"No room to write {path}: {error.strerror} ({free / 1e6:.0f} MB free there). "
            f"Free some space, or choose another folder with --data or HANDFUL_DATA."
        )
    return DataError(
        f"Cannot write {path}: {error.strerror or error}. "
        f"Choose a folder that you can write to with --data or HANDFUL_DATA."
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file of `path` and wait for it where another process holds it; the system drops it on a crash.

    Where the platform has no advisory locks nobody waits, and the last rename wins.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("a")
    except OSError as error:
        raise write_error(error, path) from error
    with handle:
        if sys.platform != "win32":
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place; a folder or disk that cannot hold it is a clear error."""
    try:
        with files.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise write_error(error, path) from error


def sweep(path: Path) -> None:
    """Delete what a killed process left beside `path`; call it under the lock only."""
    for stale in path.parent.glob(f".{path.name}.*.tmp"):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)
