"""Which examples are meant: by position, by class, or by image."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from handful.errors import InvalidOptionError
from handful.estimator.pictures import pictures
from handful.estimator.state import State


def rows_checked(index: int | Sequence[int], n: int) -> list[int]:
    """Positions among n examples, each once."""
    rows = [int(row) for row in np.atleast_1d(np.asarray(index, dtype=np.int64))]
    outside = [row for row in rows if not 0 <= row < n]
    if outside:
        raise InvalidOptionError(f"There is no example {outside[0]}: they are numbered from 0 to {n - 1}.")
    return sorted(set(rows))


def rows_of_label(state: State, label: Any) -> list[int]:
    """All examples of a class."""
    rows = np.flatnonzero(state.classes[state.codes] == label)
    if not len(rows):
        known = ", ".join(str(each) for each in state.classes[:10])
        raise InvalidOptionError(f"There is no class {label!r} to forget. The classes are {known}.")
    return [int(row) for row in rows]


def rows_of_image(state: State, image: Any) -> list[int]:
    """All examples that have the content of this image or, if none has, its name."""
    name = str(image) if isinstance(image, str | Path) else ""
    digest = ""
    if not name or Path(name).is_file():
        (picture,) = pictures([image])
        digest = hashlib.sha256(picture.read()).hexdigest()
    by_content = [row for row, source in enumerate(state.sources) if digest and source.digest == digest]
    rows = by_content or [row for row, source in enumerate(state.sources) if name and source.name == name]
    if not rows:
        raise InvalidOptionError(f"None of the {len(state.sources)} examples is the image {name or 'given'}.")
    return rows
