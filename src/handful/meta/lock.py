"""One process per run: a lock on the run's folder, held during training, which records its holder.

The operating system releases a lock when its process ends for any reason, so there is nothing to clean up after
`kill -9`.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from handful._io import read_json, sweep_folder, write_atomically
from handful.errors import CheckpointError, HandfulError

LOCK, HOLDER = ".lock", "holder.json"


class BusyError(HandfulError):
    """Another process is using the same run or queue."""


@contextmanager
def held(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold the folder's lock for the block; if it is taken, wait for it or raise an error that names the holder.

    The folder may come from someone else, so links that lead outside are refused: their targets would be replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_symlink() and not path.resolve().is_relative_to(folder.resolve()):
            raise CheckpointError(
                f"{path} is a link to {path.resolve()}, outside of the folder, and would be written to. "
                f"Replace it with its target, or remove it."
            )
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=-1 if wait else 0, poll_interval=1.0 if wait else 0.05)
    except Timeout as error:
        raise BusyError(f"{folder.name} is in use by {holder(folder)}. Wait for it, or stop it first.") from error
    try:
        sweep_folder(folder)
        facts = {"pid": os.getpid(), "host": platform.node()}
        write_atomically(folder / HOLDER, json.dumps(facts).encode())
        yield
    finally:
        (folder / HOLDER).unlink(missing_ok=True)
        lock.release()


def holder(folder: Path) -> str:
    """A description of the process that holds the folder's lock, or held it last."""
    try:
        facts = read_json(folder / HOLDER)
        return f"process {facts['pid']} on {facts['host']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "another process"


def is_held(folder: Path) -> bool:
    """Whether a process holds the folder's lock now."""
    if not (folder / HOLDER).exists():
        return False
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False
