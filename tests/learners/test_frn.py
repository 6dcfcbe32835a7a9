"""Feature map reconstruction against its definition, one query and one class at a time."""

import numpy as np
import pytest
import torch

from handful.errors import InvalidOptionError, ShapeError
from handful.learners import FRN

SHAPE = (6, 2, 3)
# errors from second moments cancel some digits of the maps' squared norms, which are about 6 here
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


@pytest.fixture
def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Nine support maps of three classes with 2, 3 and 4 examples, out of order, and five queries."""
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.randn(n, *SHAPE, generator=generator, dtype=torch.float64) for n in (9, 5))
    return support, torch.tensor([2, 0, 1, 2, 2, 1, 0, 1, 2]), query


def rebuilt_by_ridge(support, labels, query, lam=1.0, magnitude=1.0):
    """Mean squared errors (q, way) with the weights of the dual problem, min |Q - W S|^2 + lam |W|^2."""
    channels, positions = SHAPE[0], SHAPE[1] * SHAPE[2]
    rows = [m.reshape(len(m), channels, positions).transpose(1, 2).numpy() / channels**0.5 for m in (support, query)]
    errors = np.empty((len(query), 3))
    for label in range(3):
        S = rows[0][labels.numpy() == label].reshape(-1, channels)
        penalty = lam * len(S) / channels
        for number, Q in enumerate(rows[1]):
            W = Q @ S.T @ np.linalg.inv(S @ S.T + penalty * np.eye(len(S)))
            errors[number, label] = ((Q - magnitude * W @ S) ** 2).sum() / positions
    return errors


@pytest.mark.parametrize("values", [{}, {"lam": 0.1}, {"magnitude": 1.7}, {"lam": 3.0, "magnitude": 0.5}], ids=str)
def test_logits_are_minus_the_errors_of_the_dual_ridge_problem(problem, values):
    support, labels, query = problem
    logits = FRN(SHAPE, scale=2.5, **values).double().fit(support, torch.eye(3)[labels])(query)
    expected = -2.5 * rebuilt_by_ridge(support, labels, query, **values)
    np.testing.assert_allclose(logits.detach().numpy(), expected, **CLOSE)


def test_a_query_that_is_an_example_is_rebuilt_by_its_class_as_lam_vanishes(problem):
    support, labels, _ = problem
    logits = FRN(SHAPE, lam=1e-9).double().fit(support[:3], torch.eye(3)[labels[:3]])(support[:3])
    errors = -logits.detach()[range(3), labels[:3]]
    assert errors.max() < 1e-6  # six positions of six channels span everything, and lam alone leaves an error
    assert torch.isfinite(logits).all()


def test_copying_every_example_changes_nothing(problem):
    support, labels, query = problem
    learner = FRN(SHAPE).double()
    twice = learner.fit(torch.cat([support, support]), torch.eye(3)[torch.cat([labels, labels])])(query)
    torch.testing.assert_close(twice, learner.fit(support, torch.eye(3)[labels])(query), rtol=1e-10, atol=1e-12)


def test_gradients_equal_finite_differences(problem):
    support, labels, query = problem
    learner, targets = FRN(SHAPE).double(), torch.eye(3, dtype=torch.float64)[labels]
    inputs = (support.requires_grad_(), query[:2].clone().requires_grad_())
    assert torch.autograd.gradcheck(lambda s, q: learner.fit(s, targets)(q), inputs)


def test_maps_of_another_shape_and_values_that_cannot_work_are_refused(problem):
    support, labels, _ = problem
    with pytest.raises(ShapeError, match=r"\(6, 3, 2\)"):
        FRN((6, 3, 2)).fit(support, torch.eye(3)[labels])
    for values in ({"lam": 0.0}, {"scale": -1.0}, {"magnitude": float("nan")}):
        with pytest.raises(InvalidOptionError):
            FRN(SHAPE, **values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_maps_give_the_answers_of_the_same_values_in_float32(dtype):
    draw = torch.Generator().manual_seed(0)
    support, query = (torch.rand(n, 4, 3, 3, generator=draw).to(dtype) for n in (6, 5))
    targets = torch.eye(3).repeat(2, 1)
    learner = FRN((4, 3, 3))
    torch.testing.assert_close(
        learner.fit(support, targets)(query), learner.fit(support.float(), targets)(query.float())
    )
