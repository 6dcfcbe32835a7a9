"""Prototypical networks against a few lines of NumPy."""

import numpy as np
import pytest
import torch

from handful.errors import InvalidOptionError
from handful.learners import ProtoNet

# distances from inner products cancel some digits: 1e-15 times the squared norms, which are about 20 here
CLOSE = {"rtol": 1e-10, "atol": 1e-11}


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(9, 20)), np.array([0, 1, 2, 2, 0, 1, 1, 1, 1]), rng.normal(size=(7, 20))


def logits(learner: ProtoNet, problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    support, labels, query = (torch.from_numpy(each) for each in problem)
    return learner.fit(support, torch.eye(3)[labels])(query).detach().numpy()


def class_means(problem: tuple[np.ndarray, np.ndarray, np.ndarray]) -> np.ndarray:
    support, labels, _ = problem
    return np.stack([support[labels == label].mean(0) for label in range(3)])


def test_euclidean_logits_are_minus_the_squared_distances_to_the_class_means(problem):
    expected = -((problem[2][:, None] - class_means(problem)) ** 2).sum(-1)
    np.testing.assert_allclose(logits(ProtoNet(), problem), expected, **CLOSE)
    np.testing.assert_allclose(logits(ProtoNet(scale=0.25), problem), 0.25 * expected, **CLOSE)


def test_cosine_logits_are_scaled_cosines_with_the_class_means(problem):
    means, query = class_means(problem), problem[2]
    cosines = query @ means.T / np.linalg.norm(query, axis=1)[:, None] / np.linalg.norm(means, axis=1)
    np.testing.assert_allclose(logits(ProtoNet("cosine"), problem), 10 * cosines, **CLOSE)


def test_a_query_of_zeros_has_finite_cosines_and_gradients():
    support = torch.eye(2, 4, requires_grad=True)
    scores = ProtoNet("cosine").fit(support, torch.eye(2))(torch.zeros(1, 4))
    scores.sum().backward()
    assert torch.isfinite(scores).all()
    assert torch.isfinite(support.grad).all()


@pytest.mark.parametrize("options", [{"metric": "manhattan"}, {"scale": 0.0}])
def test_values_that_cannot_work_are_refused(options):
    with pytest.raises(InvalidOptionError):
        ProtoNet(**options)
