"""The planner takes what costs least and never what does not fit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handful.meta.planner import SLACK, Work, cheapest, seconds, tile_cut

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
