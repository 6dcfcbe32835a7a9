"""Intervals are what their names say, and verdicts follow from them."""

from __future__ import annotations

import math

import pytest
import torch

from handful.paper.intervals import Comparison, Interval, closed_interval, compare, open_interval
from handful.paper.published import Figure


def test_closed_intervals_shrink_with_repetition_and_open_ones_are_students() -> None:
    values = torch.tensor([0.1, 0.4, 0.4, 0.7], dtype=torch.float64)
    spread = float(values.std())
    assert closed_interval(values).half == pytest.approx(1.96 * spread / 2)
    assert open_interval(values).half == pytest.approx(3.182446305 * spread / 2)  # t quantile, 3 degrees of freedom
    assert closed_interval(values.repeat(100)).half < closed_interval(values).half / 9
    assert math.isnan(open_interval(values[:1]).half)


def test_open_intervals_cover_the_true_mean_as_often_as_they_claim() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(1000, 8, generator=generator, dtype=torch.float64)
    covered = sum(not open_interval(draw).excludes_zero for draw in draws) / len(draws)
    # 0.95 with a standard error of 0.0069; four of them
    assert abs(covered - 0.95) < 0.028


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [(0.2, "agrees"), (-0.25, "agrees"), (0.8, "above"), (-2.0, "below"), (2.0, "above")],
)
def test_a_verdict_follows_from_the_closed_interval_and_the_open_one_is_a_second_opinion(
    difference: float, verdict: str
) -> None:
    got = Comparison(difference, 0.3, 1.0)
    assert got.verdict == verdict
    assert got.within_open is (abs(difference) <= 1.0)


def test_the_difference_carries_both_intervals_and_the_rounding() -> None:
    got = compare(Interval(0.630, 0.002, 10_000), Interval(0.62, 0.010, 48), Figure(62.3, 0.2, 1))
    assert got.difference == pytest.approx(0.7)
    assert got.half == pytest.approx(math.sqrt(0.2**2 + 0.2**2 + 0.05**2))
    assert got.open == pytest.approx(math.sqrt(1.0**2 + 0.2**2 + 0.05**2))
    bare = compare(Interval(0.5, 0.002, 100), None, Figure(50.0, None, 0))
    assert bare.half == bare.open == pytest.approx(math.hypot(0.2, 0.5))


def test_several_seeds_add_their_spread_and_one_adds_none() -> None:
    closed, printed = Interval(0.630, 0.002, 10_000), Figure(62.3, None, 1)
    seeds = torch.tensor([0.62, 0.63, 0.64])  # standard deviation 0.01
    got = compare(closed, None, printed, seeds)
    # of the paper's one training and the mean of our three, in points; float32 seeds
    assert got.half == pytest.approx(math.hypot(0.2, 1.96 * math.sqrt(4 / 3), 0.05), rel=1e-5)
    assert compare(closed, None, printed, seeds[:1]) == compare(closed, None, printed)
