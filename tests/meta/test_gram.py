"""The three routes to the inner products of episodes agree, and the cheapest that fits into memory is taken."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from handful.meta.gram import SLACK, Cut, Gathered, Products, Tiles, WholeGram, Work, cheapest, seconds, tile_cut


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


GB = 10**9


def work(images: int, features: int, episodes: int, way: int = 5, shot: int = 1, memory: int = 4 * GB) -> Work:
    return Work(images, features, episodes, way * shot, way * (shot + 15), memory)


@pytest.mark.parametrize(
    ("asked", "route"),
    [
        (work(12_000, 576, 200), "features"),  # a validation: few episodes
        (work(12_000, 576, 10_000), "features"),  # short vectors are gathered faster than all are multiplied
        (work(12_000, 8064, 100_000), "gram"),
        (work(33_840, 3584, 1_000_000), "tiles"),  # 4.6 GB for a Gram matrix
        (work(33_840, 3584, 1_000_000, memory=16 * GB), "gram"),
        (work(33_840, 512, 1_000), "features"),
    ],
)
def test_the_route_follows_the_size_of_the_work(asked: Work, route: str) -> None:
    assert cheapest(asked)[0] == route


def test_the_reason_names_all_routes_with_their_cost() -> None:
    _, reason = cheapest(work(33_840, 3584, 100_000))
    assert "features" in reason
    assert "gram would not fit into memory" in reason
    assert "tiles" in reason


@given(
    st.integers(10, 50_000),
    st.integers(1, 10_000),
    st.integers(1, 10**6),
    st.integers(2, 20),
    st.integers(1, 5),
    st.integers(1, 10**11),
)
def test_what_the_planner_takes_fits_into_memory(
    images: int, features: int, episodes: int, way: int, shot: int, memory: int
) -> None:
    asked = work(images, features, episodes, way, shot, memory)
    route, _ = cheapest(asked)
    assert math.isfinite(seconds(asked)[route])
    if route == "gram":
        assert asked.pool_bytes + images**2 * 4 + SLACK <= memory
    cut = tile_cut(asked)
    if cut is not None:
        held = cut.episodes * asked.block_bytes + cut.rows * images * 4
        assert asked.pool_bytes + held + SLACK <= memory
