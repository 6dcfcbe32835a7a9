"""Inner products of the images within each episode, for thousands of episodes at a time, in three ways."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from handful.meta.planner import Cut

GATHER_BYTES = 2 * 2**20
"""Features gathered at once: few enough to be in the processor's cache still when they are multiplied."""
GRAM_ROWS = 1000
"""Rows of the Gram matrix multiplied at once: enough for a fast product, few enough to leave out half of the work."""
PICK_ROWS = 4096
"""Rows of a tile that are picked from at once."""


class Products(ABC):
    """Inner products of vectors of a pool (images, e)."""

    at_once: int | None = None
    """How many episodes to ask for at a time, where that matters."""

    def __init__(self, pool: Tensor) -> None:
        self.pool = pool

    @abstractmethod
    def of(self, images: Tensor, n: int) -> Tensor:
        """Products of each episode's vectors, given by their places in the pool (b, m), with its first n: (b, m, n)."""


class Gathered(Products):
    """Each episode's vectors are copied together and multiplied: cheapest for few episodes or short vectors."""

    def of(self, images: Tensor, n: int) -> Tensor:
        """One gather and one batched product for each few episodes."""
        count, m = images.shape
        products = self.pool.new_empty(count, n, m)
        step = max(1, GATHER_BYTES // (m * self.pool.shape[1] * self.pool.element_size()))
        for places, out in zip(images.split(step), products.split(step), strict=True):
            vectors = self.pool.index_select(0, places.flatten()).view(len(places), m, -1)
            torch.bmm(vectors[:, :n], vectors.mT, out=out)
        return products.mT


class WholeGram(Products):
    """All products are taken once, those above the diagonal, and picked from for every episode."""

    def __init__(self, pool: Tensor) -> None:
        super().__init__(pool)
        n = len(pool)
        # below the diagonal nothing is written, so that half of the memory is never touched
        self.gram = pool.new_empty(n, n)
        for first in range(0, n, GRAM_ROWS):
            rows = slice(first, first + GRAM_ROWS)
            torch.mm(pool[rows], pool[first:].mT, out=self.gram[rows, first:])

    def of(self, images: Tensor, n: int) -> Tensor:
        """The product of i and j stands in row min(i, j) and column max(i, j)."""
        support, every = images[:, :n, None], images[:, None, :]
        places = torch.minimum(support, every).mul_(len(self.pool)).add_(torch.maximum(support, every))
        return self.gram.take(places).mT


class Tiles(Products):
    """Rows of the Gram matrix are taken a tile at a time, and each tile serves all episodes before it is dropped."""

    def __init__(self, pool: Tensor, cut: Cut) -> None:
        super().__init__(pool)
        self.at_once, self.rows = cut.episodes, cut.rows

    def of(self, images: Tensor, n: int) -> Tensor:
        """Support images are sorted by their row, so that a tile's own stand together."""
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
