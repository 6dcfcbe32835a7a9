"""The support-vector learner against scikit-learn's LinearSVC in its Crammer-Singer form."""

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

from handful.errors import InvalidOptionError
from handful.learners import SVM

CONVERGED = 30


def draw(way: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(4 * way, 8)), np.arange(4 * way) % way, rng.normal(size=(7, 8))


def logits(learner: SVM, support: np.ndarray, labels: np.ndarray, query: np.ndarray) -> np.ndarray:
    targets = torch.eye(int(labels.max()) + 1)[torch.from_numpy(labels)]
    with torch.no_grad():
        return learner.fit(torch.from_numpy(support), targets)(torch.from_numpy(query)).numpy()


def golden(support: np.ndarray, labels: np.ndarray, query: np.ndarray, C: float) -> np.ndarray:
    machine = LinearSVC(C=C, multi_class="crammer_singer", fit_intercept=False, tol=1e-10, max_iter=1_000_000)
    return machine.fit(support, labels).decision_function(query)


@pytest.mark.parametrize("C", [0.01, 0.1, 1.0])
@pytest.mark.parametrize("way", [3, 5])
def test_it_is_the_crammer_singer_machine(way, C):
    support, labels, query = draw(way)
    found = logits(SVM(C, CONVERGED), support, labels, query)
    # liblinear shrinks its problem and stops at its own tolerance, which leaves some 1e-5
    np.testing.assert_allclose(found, golden(support, labels, query, C), rtol=1e-4, atol=1e-4)


def test_the_intercept_is_a_penalised_column_of_ones():
    support, labels, query = draw(3)
    lifted = [np.concatenate([each, np.ones((len(each), 1))], axis=1) for each in (support, query)]
    found = logits(SVM(0.3, CONVERGED, intercept=True), support, labels, query)
    expected = golden(lifted[0], labels, lifted[1], 0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_scale_multiplies_the_logits():
    support, labels, query = draw(3)
    once, thrice = (logits(SVM(scale=scale), support, labels, query) for scale in (1.0, 3.0))
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-12)


def test_implicit_and_unrolled_gradients_agree_at_convergence():
    support, labels, query = (torch.from_numpy(each) for each in draw(3))
    slopes = []
    for gradient in ("unrolled", "implicit"):
        features = support.clone().requires_grad_()
        SVM(0.3, CONVERGED, gradient=gradient).fit(features, torch.eye(3)[labels])(query).square().sum().backward()
        slopes.append(features.grad)
    # both hold a trace of the barrier, and unrolling takes the step lengths as constants
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"C": 0.0}, {"scale": 0.0}, {"steps": 0}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        SVM(**options)
