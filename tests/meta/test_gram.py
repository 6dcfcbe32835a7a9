"""All ways to the inner products of episodes give the products of the definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from handful.meta.gram import Gathered, Products, Tiles, WholeGram
from handful.meta.planner import Cut


def defined(pool: Tensor, images: Tensor, n: int) -> Tensor:
    return torch.stack([pool[row] @ pool[row[:n]].mT for row in images])


def pool_of(images: int, features: int) -> Tensor:
    return torch.randn(images, features, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "kind", [Gathered, WholeGram, lambda pool: Tiles(pool, Cut(8, 7)), lambda pool: Tiles(pool, Cut(1, 1000))]
)
@pytest.mark.parametrize(("count", "m", "n"), [(1, 2, 1), (40, 12, 3), (3, 30, 30)])
def test_products_are_those_of_the_definition(kind: type[Products], count: int, m: int, n: int) -> None:
    pool = pool_of(50, 9)
    images = torch.stack([torch.randperm(50)[:m] for _ in range(count)])
    # float32 sums of nine products
    torch.testing.assert_close(kind(pool).of(images, n), defined(pool, images, n), atol=1e-5, rtol=1e-5)


def test_pieces_smaller_than_the_work_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handful.meta.gram.GATHER_BYTES", 3 * 6 * 9 * 4)
    monkeypatch.setattr("handful.meta.gram.GRAM_ROWS", 11)
    monkeypatch.setattr("handful.meta.gram.PICK_ROWS", 5)
    pool = pool_of(50, 9)
    images = torch.stack([torch.randperm(50)[:6] for _ in range(20)])
    for products in (Gathered(pool), WholeGram(pool), Tiles(pool, Cut(20, 13))):
        torch.testing.assert_close(products.of(images, 4), defined(pool, images, 4), atol=1e-5, rtol=1e-5)


def test_an_image_may_stand_in_many_episodes() -> None:
    pool = pool_of(5, 3)
    images = torch.tensor([[0, 1, 2], [0, 2, 1], [4, 0, 3]])
    for products in (Gathered(pool), WholeGram(pool), Tiles(pool, Cut(3, 2))):
        torch.testing.assert_close(products.of(images, 1), defined(pool, images, 1), atol=1e-5, rtol=1e-5)
