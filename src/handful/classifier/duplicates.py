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


def duplicate_groups(features: Matrix, codes: Labels, images: NDArray[np.bool_]) -> Labels:
    """A number for each example, the same for near duplicates of one class: closer than a share of the usual distance.

    Of examples that were given as features, only equal ones are duplicates.
    """
    limit = _limit(features[images], codes[images]) if images.sum() > 2 else 0.0
    pairs: list[NDArray[np.intp]] = []
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        squares = _squared_distances(features[rows])
        near = squares <= np.where(images[rows][:, None] & images[rows], limit, 0.0) + _rounding(features[rows])
        pairs.append(rows[np.argwhere(np.triu(near, 1))])
    joined = np.concatenate(pairs)
    links = scipy.sparse.coo_array((np.ones(len(joined)), (joined[:, 0], joined[:, 1])), shape=(len(codes), len(codes)))
    groups: Labels = scipy.sparse.csgraph.connected_components(links, directed=False)[1].astype(np.int64)
    return groups


def _limit(features: Matrix, codes: Labels) -> float:
    """The squared distance of near duplicates; of classes with fewer than three images, nothing is known within."""
    step = -(-len(features) // SAMPLE)
    features, codes = features[::step], codes[::step]
    squares, above = _squared_distances(features), np.triu(np.ones((len(codes), len(codes)), dtype=bool), 1)
    several = np.bincount(codes)[codes] > 2
    within = above & (codes[:, None] == codes) & several
    usual = NEAR * float(np.median(squares[above]))
    return min(usual, NEAR_WITHIN * float(np.median(squares[within]))) if within.any() else usual


def _squared_distances(features: Matrix) -> Matrix:
    squares = np.square(features).sum(1)
    distances: Matrix = np.maximum(squares[:, None] + squares - 2 * features @ features.T, 0)
    return distances


def _rounding(features: Matrix) -> float:
    """What the distance of equal rows may seem to be."""
    return 1e-13 * float(np.square(features).sum(1).max())
