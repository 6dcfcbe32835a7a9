"""Which way to an evaluation is cheapest: each route's seconds and bytes, by a count of the work it does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Route = Literal["auto", "episodes", "chunks", "features", "gram", "tiles"]

# Measured on one core of a server processor (x86-64, AVX2, float32). Only their ratios decide.
MULTIPLY = 1 / 85e9
"""Seconds for an operation of a large matrix product."""
MOVE = 1 / 6.5e9
"""Seconds for a byte of features copied to where a batch needs it, or read from there by a thin product."""
PICK = 35e-9
"""Seconds for an inner product picked out of a whole Gram matrix, where neighbours are far apart in memory."""
PICK_NEAR = 15e-9
"""Seconds for an inner product picked out of a tile, row by row, or out of a matrix that the cache holds."""
CACHE = 16 * 2**20
"""Bytes of a matrix that the cache holds."""
SLACK = 64 * 2**20
"""Bytes for batches in flight, whatever the route."""

NAMES: dict[Route, str] = {
    "features": "features gathered for each episode",
    "gram": "blocks of one Gram matrix",
    "tiles": "blocks of the Gram matrix, tile by tile",
}


@dataclass(frozen=True)
class Work:
    """An evaluation in numbers."""

    images: int
    features: int
    episodes: int
    support: int
    """Support images of an episode."""
    total: int
    """Support and query images of an episode."""
    memory: int
    """Bytes that may be used."""
    itemsize: int = 4

    @property
    def pool_bytes(self) -> int:
        """Memory for the features of all images."""
        return self.images * self.features * self.itemsize

    @property
    def left(self) -> int:
        """Memory beside the features."""
        return self.memory - self.pool_bytes - SLACK

    @property
    def block_bytes(self) -> int:
        """Memory for one episode's inner products."""
        return self.support * self.total * self.itemsize


@dataclass(frozen=True)
class Cut:
    """How the tiled route cuts its work: episodes served by one pass over the Gram matrix, rows of a tile."""

    episodes: int
    rows: int


def tile_cut(work: Work) -> Cut | None:
    """The fewest passes that leave room for a tile, or None if not even one row of a tile fits."""
    row = work.images * work.itemsize
    episodes = min(work.episodes, work.left // 2 // work.block_bytes)
    if episodes < 1:
        return None
    distinct = min(work.images, episodes * work.support)
    rows = min(distinct, (work.left - episodes * work.block_bytes) // row)
    return Cut(episodes, rows) if rows >= 1 else None


def seconds(work: Work) -> dict[Route, float]:
    """What each route would take after embedding, infinite where it does not fit into memory."""
    picked = work.episodes * work.support * work.total
    gathered = work.episodes * work.total * work.features * work.itemsize
    cut = tile_cut(work)
    gram_bytes = work.images**2 * work.itemsize
    pick = PICK if gram_bytes > CACHE else PICK_NEAR
    costs: dict[Route, float] = {
        # each feature is written once and read once, then multiplied
        "features": 2 * gathered * MOVE + 2 * picked * work.features * MULTIPLY,
        # symmetric, so half of it
        "gram": work.images**2 * work.features * MULTIPLY + picked * pick if gram_bytes <= work.left else math.inf,
        "tiles": math.inf,
    }
    if cut is not None:
        distinct = min(work.images, cut.episodes * work.support)
        passes = math.ceil(work.episodes / cut.episodes)
        costs["tiles"] = passes * 2 * distinct * work.images * work.features * MULTIPLY + picked * PICK_NEAR
    return costs


def cheapest(work: Work) -> tuple[Route, str]:
    """The cheapest route for a learner that needs inner products only, and why it is."""
    costs = seconds(work)
    route = min(costs, key=costs.__getitem__)
    others = ", ".join(f"{other} {_in_words(cost)}" for other, cost in costs.items() if other != route)
    return route, f"{NAMES[route]}: about {costs[route]:.2g} s ({others})"


def _in_words(cost: float) -> str:
    return "would not fit into memory" if math.isinf(cost) else f"{cost:.2g} s"
