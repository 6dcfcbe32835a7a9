"""Softmax regression against scikit-learn's multinomial LogisticRegression."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from handful.errors import InvalidOptionError
from handful.learners import SoftmaxRegression

CONVERGED = 25
# scikit-learn stops when its gradient is below its own tolerance, which bounds the comparison
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def draw(way: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(way)
    return rng.normal(size=(12, 6)), np.arange(12) % way, rng.normal(size=(7, 6))


def logits(learner: SoftmaxRegression, support: np.ndarray, labels: np.ndarray, query: np.ndarray) -> np.ndarray:
    targets = torch.eye(int(labels.max()) + 1)[torch.from_numpy(labels)]
    with torch.no_grad():
        return learner.fit(torch.from_numpy(support), targets)(torch.from_numpy(query)).numpy()


def golden(support: np.ndarray, labels: np.ndarray, lam: float) -> LogisticRegression:
    regression = LogisticRegression(C=1 / lam, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cg")
    return regression.fit(support, labels)


def with_ones(features: np.ndarray) -> np.ndarray:
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("per_example", [True, False])
def test_at_convergence_it_is_multinomial_logistic_regression(intercept, per_example):
    support, labels, query = draw(4)
    lift = with_ones if intercept else np.asarray
    lam = 0.5 * (len(support) if per_example else 1)
    learner = SoftmaxRegression(0.5, CONVERGED, intercept=intercept, lam_per_example=per_example)
    expected = golden(lift(support), labels, lam).decision_function(lift(query))
    np.testing.assert_allclose(logits(learner, support, labels, query), expected, **CLOSE)


def test_two_classes_are_binary_logistic_regression_with_half_of_lam():
    """w_0 = -w_1, so that the difference w has |w|^2 = 4 |w_1|^2 while the penalty is lam |w_1|^2."""
    support, labels, query = draw(2)
    found = logits(SoftmaxRegression(0.8, CONVERGED, intercept=False), support, labels, query)
    expected = golden(support, labels, 0.4).decision_function(query)
    np.testing.assert_allclose(found[:, 1] - found[:, 0], expected, **CLOSE)


def test_the_scale_multiplies_the_logits():
    support, labels, query = draw(3)
    once, thrice = (logits(SoftmaxRegression(scale=scale), support, labels, query) for scale in (1.0, 3.0))
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-12)


@pytest.mark.parametrize("gradient", ["last_step", "implicit"])
def test_other_gradients_equal_the_unrolled_one_at_convergence(gradient):
    support, labels, query = (torch.from_numpy(each) for each in draw(3))
    slopes = []
    for kind in ("unrolled", gradient):
        features = support.clone().requires_grad_()
        learner = SoftmaxRegression(0.5, CONVERGED, learn_lam=True, gradient=kind)
        learner.fit(features, torch.eye(3)[labels])(query).square().sum().backward()
        slopes.append((features.grad, learner.log_lam.grad))
    # Newton's method has converged to rounding, and so have the derivatives of its steps
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("options", [{"lam": 0.0}, {"scale": -1.0}, {"steps": 0}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        SoftmaxRegression(**options)
