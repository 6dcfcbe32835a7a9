"""The interval of the accuracy, and the threshold for strangers: they hold as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from handful.classifier import FewShotClassifier
from handful.classifier.answers import estimate_score
from handful.classifier.novelty import rejection_threshold
from handful.errors import InvalidOptionError


@pytest.mark.parametrize(("n", "right", "new"), [(20, 17, 30), (5, 5, 7), (60, 0, 9), (40, 33, 1), (300, 299, 500)])
def test_the_intervals_are_those_of_jeffreys_prior(n: int, right: int, new: int) -> None:
    estimate = estimate_score(np.arange(n) < right)
    posterior = stats.beta(right + 0.5, n - right + 0.5)
    assert estimate.accuracy == right / n
    # two implementations of the incomplete beta function
    assert estimate.low == pytest.approx(posterior.ppf(0.025) if right else 0, abs=1e-9)
    assert estimate.high == pytest.approx(posterior.ppf(0.975) if right < n else 1, abs=1e-9)
    shown = stats.betabinom(new, right + 0.5, n - right + 0.5)
    assert estimate.interval(new) == (shown.ppf(0.025) / new, shown.ppf(0.975) / new)


def test_the_interval_for_many_new_images_is_that_of_the_accuracy() -> None:
    estimate = estimate_score(np.arange(40) < 31)
    # a step of the interval is 1 / 20,000, and even 20,000 images are still a sample
    np.testing.assert_allclose(estimate.interval(20_000), (estimate.low, estimate.high), atol=1e-3)
    assert estimate.interval(30)[0] < estimate.low
    assert estimate.interval(30)[1] > estimate.high


@pytest.mark.parametrize("accuracy", [0.7, 0.95])
def test_the_interval_holds_what_new_images_show_about_as_often_as_it_says(accuracy: float) -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        low, high = estimate_score(rng.random(50) < accuracy).interval(100)
        held += low <= (rng.random(100) < accuracy).mean() <= high
    # discrete accuracies make it hold a little more often; five standard errors of 2,000 draws are 0.024
    assert 0.926 < held / 2000 < 0.995


def test_without_anything_held_out_there_is_no_interval() -> None:
    nothing = estimate_score(np.zeros(0, dtype=bool))
    assert all(math.isnan(each) for each in nothing.interval(10))
    with pytest.raises(InvalidOptionError, match="at least 1"):
        nothing.interval(0)


@pytest.mark.parametrize("n", [4, 19, 61])
def test_a_new_score_exceeds_the_threshold_with_the_chosen_probability(n: int) -> None:
    rng = np.random.default_rng(n)
    draws = rng.normal(size=(2000, n + 1))
    exceeded = np.mean([row[-1] > rejection_threshold(row[:-1], 0.05) for row in draws])
    # five standard errors of 2,000 draws are 0.024; a plain quantile is exceeded with 0.09 at n = 19 and 0.23 at n = 4
    assert abs(exceeded - 0.05) < 0.024


def test_a_share_of_zero_rejects_nothing() -> None:
    assert rejection_threshold(np.array([1.0, 2.0, 3.0]), 0) == math.inf
    X = np.random.default_rng(0).normal(size=(12, 5))
    clf = FewShotClassifier().fit(X, np.arange(12) % 3)
    assert None not in clf.predict(100 * X, unknown="reject", false_rejection=0)
