"""Labels of a classifier: all of one type, sorted into classes and numbered."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handful.classifier.inputs import Labels
from handful.errors import InvalidOptionError, NotEnoughClassesError

KINDS = {"U": "text", "O": "text", "b": "booleans", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}
"""The names of NumPy's kinds of labels."""
LONGEST_LABEL = 200


def joined_labels(known: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Labels in one array; raises if new ones have another type, because NumPy would convert all of them."""
    kinds = [KINDS.get(each.dtype.kind, str(each.dtype)) for each in (known, new)]
    if kinds[0] != kinds[1]:
        raise InvalidOptionError(
            f"The labels of this classifier are {kinds[0]} ({known[0]!r}), but the new ones are {kinds[1]} "
            f"({new[0]!r}). Use labels of one type."
        )
    return np.concatenate([known, new])


def label_from(given: Any, classes: NDArray[Any]) -> Any:
    """The label for a text from the command line or a client: a known class, or a new one of the same type."""
    text, kind = str(given), type(classes[0].item())
    for known in classes:
        if str(known) == text:
            return known.item()
    if not text.strip() or len(text) > LONGEST_LABEL or not text.isprintable():
        raise InvalidOptionError(f"A label must have 1 to {LONGEST_LABEL} printable characters, but got {text[:50]!r}.")
    try:
        label = kind(given)
    except ValueError:
        label = None
    if str(label) != text or not _is_finite(label):
        some = ", ".join(map(str, classes[:10]))
        raise InvalidOptionError(
            f"The labels of this classifier are {KINDS[classes.dtype.kind]} ({some}), but got {text[:50]!r}."
        )
    return label


def uniform_labels(y: Any) -> Any:
    """The labels; raises if their types are mixed, because NumPy would convert all of them to text or numbers."""
    if isinstance(y, list | tuple):
        kinds = {KINDS.get(np.asarray(each).dtype.kind, "") for each in y}
        if len(kinds) > 1 and kinds != {"whole numbers", "numbers"}:
            raise InvalidOptionError(f"Labels must be of one type, but these are {' and '.join(sorted(kinds))}.")
    return y


def coded(labels: NDArray[Any]) -> tuple[NDArray[Any], Labels]:
    """The sorted classes and the class number of each label; raises for fewer than two classes."""
    classes, codes = np.unique(labels, return_inverse=True)
    if not all(map(_is_finite, classes.tolist())):
        raise InvalidOptionError("A label is NaN or infinite. Use finite numbers, or text.")
    if len(classes) == 0:
        raise NotEnoughClassesError("A classifier needs examples of at least two classes, but none would be left.")
    if len(classes) == 1:
        raise NotEnoughClassesError(
            f"A classifier needs at least two classes, but there would be only one class, '{classes[0]}' "
            f"(n_samples = {len(labels)}). Add examples of another class."
        )
    return classes, codes.astype(np.int64).reshape(-1)


def _is_finite(label: Any) -> bool:
    return not isinstance(label, float) or math.isfinite(label)
