"""Intervals are what their names say."""

from __future__ import annotations

import math

import pytest
import torch

from handful.meta.intervals import accuracy, ci95, closed_interval, open_interval


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


def test_the_interval_is_196_standard_errors() -> None:
    values = torch.tensor([0.2, 0.4, 0.6, 0.8], dtype=torch.float64)
    assert math.isclose(ci95(values), 1.96 * 0.2581988897 / 2, rel_tol=1e-8)
    assert math.isnan(ci95(values[:1]))


def test_accuracy_counts_the_largest_logit_of_each_query() -> None:
    logits = torch.tensor([[[2.0, 1.0], [0.0, 1.0]], [[1.0, 2.0], [3.0, 1.0]]])
    targets = torch.eye(2).expand(2, 2, 2)
    assert accuracy(logits, targets).tolist() == [1.0, 0.0]
