"""What the commands that change a classifier share: one at a time, so that no update is lost; labels; words."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from handful.errors import InvalidOptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@contextmanager
def updating(path: Path) -> Iterator[None]:
    """Hold the classifier's file from reading it to replacing it; the system lets go of it if the process dies.

    The lock is on the file itself, so nothing is left beside it. Whoever waited for a file that was replaced
    meanwhile turns to the new one. Where the platform or the file system has no locks, nobody waits.
    """
    if sys.platform == "win32" or not path.is_file():
        yield  # a file that is not there is the reader's to complain about
        return
    with _held(path):
        yield


def label_from(text: str, classes: NDArray[Any]) -> Any:
    """The label that a word of the command line means: a class by its name, or a new one of the same type."""
    for known in classes:
        if str(known) == text:
            return known.item()
    try:
        label = type(classes[0].item())(text)
    except ValueError:
        label = None
    if str(label) != text:
        some = ", ".join(map(str, classes[:10]))
        raise InvalidOptionError(f"--label {text} does not fit this classifier, whose labels are not text: {some}.")
    return label


def images(count: int) -> str:
    """So many images, in words."""
    return "1 image" if count == 1 else f"{count} images"


def _held(path: Path) -> BinaryIO:
    """The open and locked file that stands at `path` now."""
    while True:
        file = path.open("rb")
        try:
            _lock(file, path)
            if _is_at(file, path):
                return file
        except BaseException:
            file.close()
            raise
        file.close()


def _lock(file: BinaryIO, path: Path) -> None:
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"handful: another command is changing {path}; waiting for it", file=sys.stderr, flush=True)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:
        return


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return True  # deleted while we waited: the reader complains
