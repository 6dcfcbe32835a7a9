"""What defines a source: where its files come from, how they are read, and what they contain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from handful.data._packing import Item, decode_all
from handful.data.archives import Tree
from handful.data.decode import Decoding
from handful.data.download import Remote
from handful.data.store import Scheme
from handful.errors import DataError

Pixels = Callable[[], Iterator[np.ndarray]]
"""Yields chunks (k, height, width, channels) of all images, class by class."""


@dataclass(frozen=True)
class Contents:
    """A data set whose files are complete but not decoded yet; splits are ranges of class numbers."""

    classes: tuple[str, ...]
    counts: tuple[int, ...]
    shape: tuple[int, int, int]
    splits: Mapping[str, Scheme]
    pixels: Pixels
    groups: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A known benchmark: where it comes from, and how to find its images in the user's files."""

    name: str
    title: str
    licence: str
    how: str
    read: Callable[[Sequence[Tree]], Contents]
    remotes: tuple[Remote, ...] = ()
    archives: tuple[str, ...] = ()
    """Names of archives that are opened if they are in the user's folder."""
    companions: tuple[str, ...] = ()
    """Names of other sources that are read from the same files and added together with this one."""


def decoded(items: Sequence[Item], decoding: Decoding) -> Pixels:
    """All images in order, decoded lazily on all cores."""
    return lambda: decode_all(items, decoding)


def joined(trees: Sequence[Tree]) -> str:
    """The trees' paths, for messages."""
    return ", ".join(str(tree.path) for tree in trees)


def expect_counts(found: Mapping[str, int], wanted: Mapping[str, int], where: str, title: str) -> None:
    """Raise if a class is missing or has the wrong number of images."""
    missing = [name for name in wanted if not found.get(name)]
    if missing:
        raise DataError(
            f"{where} is not {title}: {len(missing)} of its {len(wanted)} classes are missing, for example "
            f"{', '.join(missing[:3])}."
        )
    wrong = [name for name in wanted if found[name] != wanted[name]]
    if wrong:
        name = wrong[0]
        raise DataError(
            f"{where} is not {title}: class {name} should have {wanted[name]} images but has {found[name]}"
            f"{f', and {len(wrong) - 1} more classes differ' if len(wrong) > 1 else ''}."
        )
