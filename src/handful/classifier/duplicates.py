"""Pictures that occur twice: the same file, found by its digest, and near duplicates, found by their features."""

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

On 576 photographs of mini-ImageNet no two different ones of a class are that close, while mirrored and brightened
copies and most crops are (`results/own-images.md`)."""
NEAR_WITHIN = 0.2
"""The share of the median within classes, so that different images of a compact class are not taken for copies."""
SAMPLE = 400
"""Examples from which the medians are taken."""
PAIRS = 1 << 22
"""Pairs of examples that are compared at once."""


class Named(Protocol):
    """What is asked of a source: a name, empty for features, and a digest."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def digest(self) -> str: ...  # noqa: D102


def new_rows(
    labels: NDArray[Any], sources: Sequence[Named], known: NDArray[Any], known_sources: Sequence[Named]
) -> list[int]:
    """The rows whose image is not yet among the known ones, each picture once; refused if it has another label there.

    Features have no name and are all kept, because equal features need not be one picture.
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
    """A number for each example, the same for near duplicates of one class: closer than a share of the usual distance.

    Of examples that were given as features, only equal ones are duplicates. `limit` is that of `near_limit`, if known.
    `first` is the first example of each one's group where it is known, and -1 for all examples of the other classes.
    """
    limit = near_limit(features, codes, images) if limit is None else limit
    groups = np.full(len(codes), -1, dtype=np.int64) if first is None else first.astype(np.int64)
    for code in np.unique(codes[groups < 0]):
        rows = np.flatnonzero(codes == code)
        groups[rows] = rows[_first_of_group(features[rows], images[rows], limit)]
    return np.unique(groups, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _first_of_group(features: Matrix, images: NDArray[np.bool_], limit: float) -> NDArray[np.intp]:
    """For each example of a class, the first of its group; some rows at a time, so that memory stays bounded."""
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
    """The squared distance of near duplicates; of classes with fewer than three images, nothing is known within."""
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
    """What the distance of equal rows may seem to be."""
    return 1e-13 * float(np.square(features).sum(1).max())
