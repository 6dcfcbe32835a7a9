"""What the commands that teach a classifier share: a lock, so that no update is lost, labels, unreadable images."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from handful._io import locked
from handful.errors import DataError, InvalidOptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from handful.classifier.inputs import Labelled


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


def learn(act: Callable[[Any, Any], object], found: Labelled, keep_going: bool) -> int:
    """Call `act` with images and labels; the number of unreadable images that `keep_going` leaves out."""
    import numpy as np

    from handful.classifier.inputs import UnreadableImagesError

    try:
        act(found.pictures, found.labels)
        return 0
    except UnreadableImagesError as error:
        if not keep_going:
            raise DataError(f"{error} Add --keep-going to go on without what cannot be read.") from error
        for reason in error.reasons.values():
            print(f"handful: {reason}", file=sys.stderr)
        kept = [position for position in range(len(found.pictures)) if position not in error.reasons]
        if not kept:
            raise DataError("None of the images can be read.") from error
        act([found.pictures[position] for position in kept], np.asarray(found.labels)[kept])
        return len(error.reasons)


def known_label(text: str, classes: NDArray[Any]) -> Any:
    """The class that a command-line argument names; an unknown one is an error that suggests the nearest."""
    names = {str(known): known.item() for known in classes}
    if text in names:
        return names[text]
    near = get_close_matches(text, names, 1, 0.5)
    hint = f"Did you mean '{near[0]}'?" if near else f"The classes are {', '.join(list(names)[:10])}."
    raise InvalidOptionError(f"There is no class '{text}'. {hint}")
