"""Files on disk: atomic writes, locks between processes, the folder for data sets and caches, digests."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from handful.errors import DataError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


# ------------------------------------------------------------------------------------------------------------- writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place if the block succeeds and is deleted if it fails.

    A reader sees the old file or the new one, never half of it. The name is unique, so that two threads may write the
    same file at once. The new file has the mode of the old one, which is never readable to more people while it is
    written, and a link stays a link: the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        mode = _create_like(target, temporary)
        yield temporary
        if mode is not None:
            with suppress(OSError):
                temporary.chmod(mode)
        temporary.replace(target)
        _flush_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, payload: bytes) -> None:
    """Write bytes to a temporary file in the same folder, flush them to disk, then rename it."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def sweep(path: Path) -> None:
    """Delete the temporary files that a killed process left beside `path`; call it only while holding the lock."""
    for stale in path.parent.glob(f".{path.name}.*.tmp"):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while `path` is written into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # a decompressor's complaint about its input, not the disk's
            raise
        if error.errno in FULL:
            free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
            raise DataError(
                f"No room to write {path}: {error.strerror} ({free / 1e6:.0f} MB free there). "
                f"Free some space, or choose another folder with --data or HANDFUL_DATA."
            ) from error
        raise DataError(
            f"Cannot write {path}: {error.strerror or error}. "
            f"Choose a folder that you can write to with --data or HANDFUL_DATA."
        ) from error


def _create_like(target: Path, temporary: Path) -> int | None:
    """Create an empty file that nobody may read who may not read `target`; the mode of `target`, if it exists."""
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mode = None
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode | stat.S_IWUSR))
    return mode


def _flush_folder(folder: Path) -> None:
    """Make a rename survive a power failure, where the system lets us open folders."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --------------------------------------------------------------------------------------------------------------- locks


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of `path`, which is a file called .NAME.lock beside it; the system drops it if the process dies.

    `waiting` is called once if another process holds the lock.
    """
    from filelock import FileLock, Timeout  # here, because most commands need no lock and the import takes a while

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if waiting is not None:
            waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


# --------------------------------------------------------------------------------------------------- folders, digests


def data_root(root: str | Path | None = None) -> Path:
    """The folder of data sets and caches: `root`, else HANDFUL_DATA, else the user's cache folder for handful."""
    chosen = root or os.environ.get("HANDFUL_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("handful", appauthor=False, opinion=False)


def digest(data: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file, read in blocks; MD5 is for checksums that others publish, not for security."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
