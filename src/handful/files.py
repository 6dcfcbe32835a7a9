"""Writing files so that a reader sees the old one or the new one, never a half."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name beside `path` that takes its place when the block ends well and disappears when it does not."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, payload: bytes) -> None:
    """Write bytes under a temporary name in the same folder, flush them to disk, then rename."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
