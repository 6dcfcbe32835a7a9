"""LR-D2 against scikit-learn's LogisticRegression."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from handful.errors import InvalidOptionError
from handful.learners import LRD2, R2D2

# scikit-learn stops when its gradient is below its own tolerance, which bounds the comparison
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
CONVERGED = 25


def draw(way: int, n: int = 12, e: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(way)
    return rng.normal(size=(n, e)), np.arange(n) % way, rng.normal(size=(7, e))


def logits(learner: LRD2 | R2D2, support: np.ndarray, labels: np.ndarray, query: np.ndarray) -> np.ndarray:
    targets = torch.eye(int(labels.max()) + 1)[torch.from_numpy(labels)]
    with torch.no_grad():
        return learner.fit(torch.from_numpy(support), targets)(torch.from_numpy(query)).numpy()


def golden(support: np.ndarray, positive: np.ndarray, query: np.ndarray, lam: float) -> np.ndarray:
    regression = LogisticRegression(
        C=1 / lam, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cholesky"
    )
    return regression.fit(support, positive).decision_function(query)


def with_ones(features: np.ndarray) -> np.ndarray:
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("per_example", [True, False])
def test_two_ways_are_one_binary_problem_with_logits_zero_and_t(intercept, per_example):
    support, labels, query = draw(2)
    lift = with_ones if intercept else np.asarray
    lam = 0.5 * (len(support) if per_example else 1)
    learner = LRD2(lam=0.5, steps=CONVERGED, intercept=intercept, lam_per_example=per_example)
    found = logits(learner, support, labels, query)
    assert (found[:, 0] == 0).all()
    np.testing.assert_allclose(found[:, 1], golden(lift(support), labels == 1, lift(query), lam), **CLOSE)


def test_more_ways_are_one_class_against_the_rest_each():
    support, labels, query = draw(4)
    found = logits(LRD2(lam=0.5, steps=CONVERGED), support, labels, query)
    for column in range(4):
        expected = golden(with_ones(support), labels == column, with_ones(query), 0.5)
        np.testing.assert_allclose(found[:, column], expected, **CLOSE)


def test_one_step_is_ridge_regression_with_four_lam_and_targets_of_plus_minus_two():
    support, labels, query = draw(3)
    one_step = logits(LRD2(lam=0.7, steps=1), support, labels, query)
    lifted = with_ones(support)
    targets = 4.0 * np.eye(3)[labels] - 2.0
    weights = np.linalg.solve(lifted.T @ lifted + 4 * 0.7 * np.eye(lifted.shape[1]), lifted.T @ targets)
    # both are one linear solve in double precision
    np.testing.assert_allclose(one_step, with_ones(query) @ weights, rtol=1e-9, atol=1e-10)


def test_scale_and_bias_act_on_the_logits():
    support, labels, query = draw(3)
    plain = logits(LRD2(), support, labels, query)
    np.testing.assert_allclose(logits(LRD2(scale=3.0, bias=0.25), support, labels, query), 3 * plain + 0.25, rtol=1e-12)


@pytest.mark.parametrize("gradient", ["last_step", "implicit"])
def test_other_gradients_equal_the_unrolled_one_at_convergence(gradient):
    support, labels, query = (torch.from_numpy(each) for each in draw(3))
    slopes = []
    for kind in ("unrolled", gradient):
        features = support.clone().requires_grad_()
        learner = LRD2(0.5, CONVERGED, learn_lam=True, gradient=kind)
        learner.fit(features, torch.eye(3)[labels])(query).square().sum().backward()
        slopes.append((features.grad, learner.log_lam.grad))
    # Newton's method has converged to rounding, and so have the derivatives of its steps
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("options", [{"lam": 0.0}, {"scale": -1.0}, {"steps": 0}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        LRD2(**options)
