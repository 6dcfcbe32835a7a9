"""The estimated accuracy: its interval holds the truth of tasks that are as varied as real ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from handful.classifier.answers import ScoreEstimate
from handful.classifier.estimate import (
    LOGIT_SPREAD,
    PER_CLASSES,
    PER_SHOTS,
    PER_SHOTS_SPREAD,
    USUAL_LOGIT,
    inferred_accuracy,
)

QUERIES = 120


def held(shots: int, rng: np.random.Generator) -> bool:
    """Whether the interval holds the accuracy of new images, in a task whose difficulty and slope are drawn."""
    way = int(rng.integers(5, 21))
    logit = USUAL_LOGIT - PER_CLASSES * np.log(way / 10) + LOGIT_SPREAD * rng.normal()
    slope = PER_SHOTS + PER_SHOTS_SPREAD * rng.normal()
    right = rng.binomial(shots, expit(logit + slope * np.log(max(shots - 1, 1))), way) if shots > 1 else np.zeros(way)
    tested = np.full(way, shots if shots > 1 else 0)
    mean, weight = inferred_accuracy(right, tested, np.full(way, float(shots)))
    truth = rng.binomial(QUERIES, expit(logit + slope * np.log(shots))) / QUERIES
    low, high = ScoreEstimate(mean, 0, 1, way * shots, weight=weight).interval(QUERIES)
    return bool(low <= truth <= high)


@pytest.mark.parametrize("shots", [1, 2, 3, 5, 10])
def test_the_interval_holds_the_truth_as_often_as_it_says(shots: int) -> None:
    rng = np.random.default_rng(shots)
    share = np.mean([held(shots, rng) for _ in range(400)])
    assert 0.92 <= share <= 0.985  # 95%, with three standard errors of 400 tasks


def test_one_image_per_class_leaves_the_spread_of_similar_tasks() -> None:
    mean, weight = inferred_accuracy(np.zeros(10), np.zeros(10), np.ones(10))
    assert 0.65 < mean < 0.8
    assert 3 < weight < 12
