"""Pictures that occur twice: identical files, found by digest, and near duplicates, found by features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from handful.classifier.inputs import Labels, Matrix
from handful.errors import DataError

NEAR = 0.15
"""Images of a class are near duplicates if their squared distance is below this share of the median over all pairs,
and below `NEAR_WITHIN` of the median within classes.

Among 576 photographs of mini-ImageNet, no two different ones of a class are that close, while mirrored and brightened
copies and most crops are (`results/own-images.md`)."""
NEAR_WITHIN = 0.2
"""The share of the median within classes, so that different images of a compact class do not count as copies."""
SAMPLE = 400
"""Number of examples from which the medians are computed."""
PAIRS = 1 << 22
"""Pairs of examples that are compared at once."""


class Named(Protocol):
    """What a source must have: a name, empty for features, and a digest."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def digest(self) -> str: ...  # noqa: D102


def new_rows(
    labels: NDArray[Any], sources: Sequence[Named], known: NDArray[Any], known_sources: Sequence[Named]
) -> list[int]:
    """The rows with new images, each picture once; raises if a picture is known with another label.

    Features have no name and are all kept, because equal features may come from different pictures.
    """
    seen = {
        source.digest: (label, source.name) for label, source in zip(known, known_sources, strict=True) if source.name
    }
    rows = []
    for row, (label, source) in enumerate(zip(labels, sources, strict=True)):
        before = seen.get(source.digest) if source.name else None
        if before is None:
            rows.append(row)
            if source.name:
                seen[source.digest] = label, source.name
        elif before[0] != label:
            raise DataError(
                f"The same picture is in two classes: {before[1]} is labelled '{before[0]}', and {source.name} is "
                f"labelled '{label}'. Remove one of them, or relabel the one that is wrong."
            )
    return rows


def duplicate_groups(
    features: Matrix,
    codes: Labels,
    images: NDArray[np.bool_],
    limit: float | None = None,
    first: NDArray[np.intp] | None = None,
) -> Labels:
    """A group number for each example, shared by near duplicates: images of a class closer than the limit.

    Among examples that were given as features, only equal ones are duplicates. `limit` is that of `near_limit`, if
    known. `first` is the first example of each group if it is known, and -1 for all examples of the other classes.
    """
    limit = near_limit(features, codes, images) if limit is None else limit
    groups = np.full(len(codes), -1, dtype=np.int64) if first is None else first.astype(np.int64)
    for code in np.unique(codes[groups < 0]):
        rows = np.flatnonzero(codes == code)
        groups[rows] = rows[_first_of_group(features[rows], images[rows], limit)]
    return np.unique(groups, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _first_of_group(features: Matrix, images: NDArray[np.bool_], limit: float) -> NDArray[np.intp]:
    """The first example of each example's group in a class, a few rows at a time, to limit memory."""
    n, rounding = len(features), _rounding(features)
    first: NDArray[np.intp] = np.arange(n)
    for start in range(0, n, step := max(1, PAIRS // n)):
        some = slice(start, start + step)
        near = (
            _squared_distances(features[some], features) <= np.where(images[some, None] & images, limit, 0.0) + rounding
        )
        pairs = np.argwhere(np.triu(near, start + 1))
        if not len(pairs):
            continue
        ends = first[pairs[:, 0] + start], first[pairs[:, 1]]
        links = scipy.sparse.coo_array((np.ones(len(pairs)), ends), shape=(n, n))
        found = scipy.sparse.csgraph.connected_components(links, directed=False)[1][first]
        representative = np.empty(n, dtype=np.intp)
        representative[found[::-1]] = np.arange(n)[::-1]
        first = representative[found]
    return first


def near_limit(features: Matrix, codes: Labels, images: NDArray[np.bool_]) -> float:
    """The largest squared distance of near duplicates; classes with fewer than three images do not contribute."""
    if images.sum() <= 2:
        return 0.0
    step = -(-int(images.sum()) // SAMPLE)
    features, codes = features[images][::step], codes[images][::step]
    squares, above = _squared_distances(features, features), np.triu(np.ones((len(codes), len(codes)), dtype=bool), 1)
    several = np.bincount(codes)[codes] > 2
    within = above & (codes[:, None] == codes) & several
    usual = NEAR * float(np.median(squares[above]))
    return min(usual, NEAR_WITHIN * float(np.median(squares[within]))) if within.any() else usual


def _squared_distances(some: Matrix, features: Matrix) -> Matrix:
    one, all_ = np.square(some).sum(1), np.square(features).sum(1)
    distances: Matrix = np.maximum(one[:, None] + all_ - 2 * some @ features.T, 0)
    return distances


def _rounding(features: Matrix) -> float:
    """The largest distance of equal rows that rounding can cause."""
    return 1e-13 * float(np.square(features).sum(1).max())
