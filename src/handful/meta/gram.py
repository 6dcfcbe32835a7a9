"""Inner products of the images in each of thousands of episodes: three routes, and the choice of the cheapest."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Route = Literal["auto", "episodes", "chunks", "features", "gram", "tiles"]

# Measured on one core of a server CPU (x86-64, AVX2, float32). Only their ratios matter.
MULTIPLY = 1 / 85e9
"""Seconds per operation of a large matrix product."""
MOVE = 1 / 6.5e9
"""Seconds per byte of features that is copied into a batch, or read from there by a thin product."""
PICK = 35e-9
"""Seconds per inner product gathered from a whole Gram matrix, where neighbours are far apart in memory."""
PICK_NEAR = 15e-9
"""Seconds per inner product gathered from a tile, row by row, or from a matrix that fits into the cache."""
CACHE = 16 * 2**20
"""Size in bytes of a matrix that fits into the cache."""
SLACK = 64 * 2**20
"""Bytes for the current batches, on any route."""

NAMES: dict[Route, str] = {
    "features": "features gathered for each episode",
    "gram": "blocks of one Gram matrix",
    "tiles": "blocks of the Gram matrix, tile by tile",
}


@dataclass(frozen=True)
class Work:
    """The size of an evaluation."""

    images: int
    features: int
    episodes: int
    support: int
    """Support images per episode."""
    total: int
    """Support and query images per episode."""
    memory: int
    """Bytes that may be used."""
    itemsize: int = 4

    @property
    def pool_bytes(self) -> int:
        """Memory for the features of all images."""
        return self.images * self.features * self.itemsize

    @property
    def left(self) -> int:
        """Memory left after the features."""
        return self.memory - self.pool_bytes - SLACK

    @property
    def block_bytes(self) -> int:
        """Memory for one episode's inner products."""
        return self.support * self.total * self.itemsize


@dataclass(frozen=True)
class Cut:
    """How the tiled route divides its work: episodes per pass over the Gram matrix, and rows per tile."""

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
    """The seconds that each route would take after embedding, infinite if it does not fit into memory."""
    picked = work.episodes * work.support * work.total
    gathered = work.episodes * work.total * work.features * work.itemsize
    cut = tile_cut(work)
    gram_bytes = work.images**2 * work.itemsize
    pick = PICK if gram_bytes > CACHE else PICK_NEAR
    costs: dict[Route, float] = {
        # each feature is written once and read once, then multiplied
        "features": 2 * gathered * MOVE + 2 * picked * work.features * MULTIPLY,
        # half of it, because it is symmetric
        "gram": work.images**2 * work.features * MULTIPLY + picked * pick if gram_bytes <= work.left else math.inf,
        "tiles": math.inf,
    }
    if cut is not None:
        distinct = min(work.images, cut.episodes * work.support)
        passes = math.ceil(work.episodes / cut.episodes)
        costs["tiles"] = passes * 2 * distinct * work.images * work.features * MULTIPLY + picked * PICK_NEAR
    return costs


def cheapest(work: Work) -> tuple[Route, str]:
    """The cheapest route for a learner that only needs inner products, and why."""
    costs = seconds(work)
    route = min(costs, key=costs.__getitem__)
    others = ", ".join(f"{other} {_in_words(cost)}" for other, cost in costs.items() if other != route)
    return route, f"{NAMES[route]}: about {costs[route]:.2g} s ({others})"


def _in_words(cost: float) -> str:
    return "would not fit into memory" if math.isinf(cost) else f"{cost:.2g} s"


GATHER_BYTES = 2 * 2**20
"""Bytes of features gathered at once, few enough to stay in the CPU cache until they are multiplied."""
GRAM_ROWS = 1000
"""Rows of the Gram matrix computed at once: enough for a fast product, few enough to skip almost half of the work."""
PICK_ROWS = 4096
"""Rows of a tile that are gathered from at once."""


class Products(ABC):
    """Inner products of vectors of a pool (images, e)."""

    at_once: int | None = None
    """How many episodes to request at a time, if that matters."""

    def __init__(self, pool: Tensor) -> None:
        self.pool = pool

    @abstractmethod
    def of(self, images: Tensor, n: int) -> Tensor:
        """Products of each episode's vectors, given by positions in the pool (b, m), with its first n: (b, m, n)."""


class Gathered(Products):
    """Gathers each episode's vectors and multiplies them: cheapest for few episodes or short vectors."""

    def of(self, images: Tensor, n: int) -> Tensor:
        """One gather and one batched product for every few episodes."""
        count, m = images.shape
        products = self.pool.new_empty(count, n, m)
        step = max(1, GATHER_BYTES // (m * self.pool.shape[1] * self.pool.element_size()))
        for places, out in zip(images.split(step), products.split(step), strict=True):
            vectors = self.pool.index_select(0, places.flatten()).view(len(places), m, -1)
            torch.bmm(vectors[:, :n], vectors.mT, out=out)
        return products.mT


class WholeGram(Products):
    """Computes all products above the diagonal once, and gathers from them for every episode."""

    def __init__(self, pool: Tensor) -> None:
        super().__init__(pool)
        n = len(pool)
        # nothing is written below the diagonal, so half of the memory is never touched
        self.gram = pool.new_empty(n, n)
        for first in range(0, n, GRAM_ROWS):
            rows = slice(first, first + GRAM_ROWS)
            torch.mm(pool[rows], pool[first:].mT, out=self.gram[rows, first:])

    def of(self, images: Tensor, n: int) -> Tensor:
        """Gather from the upper triangle: the product of i and j is in row min(i, j) and column max(i, j)."""
        support, every = images[:, :n, None], images[:, None, :]
        places = torch.minimum(support, every).mul_(len(self.pool)).add_(torch.maximum(support, every))
        return self.gram.take(places).mT


class Tiles(Products):
    """Computes rows of the Gram matrix a tile at a time; each tile is used for all episodes and then dropped."""

    def __init__(self, pool: Tensor, cut: Cut) -> None:
        super().__init__(pool)
        self.at_once, self.rows = cut.episodes, cut.rows

    def of(self, images: Tensor, n: int) -> Tensor:
        """Gather tile by tile; support images are sorted by row, so that those of a tile are adjacent."""
        count, m = images.shape
        used, row = images[:, :n].flatten().unique(return_inverse=True)
        order = row.argsort()
        products = self.pool.new_empty(count * n, m)
        for first in range(0, len(used), self.rows):
            tile = self.pool[used[first : first + self.rows]] @ self.pool.mT  # (rows, images)
            bounds = torch.tensor([first, first + len(tile)], device=row.device)
            begin, end = torch.searchsorted(row[order], bounds).tolist()
            for part in order[begin:end].split(PICK_ROWS):
                places = (row[part, None] - first) * len(self.pool) + images[part.div(n, rounding_mode="floor")]
                products[part] = tile.take(places)
        return products.view(count, n, m).mT
