"""What the commands that change a classifier share: a lock, so that no update is lost, and the reading of labels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handful._io import locked
from handful.errors import InvalidOptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@contextmanager
def updating(path: Path) -> Iterator[None]:
    """Lock the classifier's file from reading it to replacing it; the lock ends with the process.

    Names that are links to one file share its lock. Where the file system has no locks, nobody waits.
    """

    def waiting() -> None:
        print(f"handful: another command is changing {path}; waiting for it", file=sys.stderr, flush=True)

    with ExitStack() as stack:
        real = path.resolve()
        if real.is_file():  # a file that is not there is for the reader to complain about
            with suppress(OSError):
                stack.enter_context(locked(real, waiting))
        yield


def label_from(text: str, classes: NDArray[Any]) -> Any:
    """The label that a command-line argument names: a known class, or a new one of the same type."""
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
    """A number of images in words: "1 image", "2 images"."""
    return "1 image" if count == 1 else f"{count} images"
