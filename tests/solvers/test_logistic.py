"""Logistic regression by reweighted least squares: its objective, scikit-learn, its first step, and saturation."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import softplus

from handful.errors import InvalidOptionError, NotFiniteError, ShapeError
from handful.solvers import logistic, logistic_dual, ridge_dual

from .problems import (
    badly_scaled_problem,
    duplicated,
    every_problem,
    every_two_class_problem,
    leaves,
    make,
    one_problem_a_shape,
    rotation,
)

LAMS = pytest.mark.parametrize("lam", [0.1, 1.0, 50.0])
CONVERGED = 25  # quadratic convergence: the last 15 steps are there for the hardest of the problems
EXACT = {"rtol": 1e-9, "atol": 1e-10}


@every_problem
@LAMS
def test_gradient_of_the_objective_is_zero_at_convergence(problem, lam):
    t = 2 * problem.labels - 1
    (w,) = leaves(logistic(problem.X, problem.labels, lam, CONVERGED))
    objective = softplus(-t * (problem.X @ w)).sum() + lam / 2 * w.square().sum()
    (gradient,) = torch.autograd.grad(objective, w)
    assert gradient.abs().max() < 1e-10


@every_two_class_problem
@LAMS
def test_equals_scikit_learn_at_convergence(problem, lam):
    golden = LogisticRegression(C=1 / lam, fit_intercept=False, solver="newton-cholesky", tol=1e-13, max_iter=1000)
    w = torch.from_numpy(golden.fit(problem.X.numpy(), problem.labels.numpy()).coef_[0])
    torch.testing.assert_close(logistic(problem.X, problem.labels, lam, CONVERGED), w, rtol=1e-8, atol=1e-9)
    dual = problem.X.mT @ logistic_dual(problem.K, problem.labels, lam, CONVERGED)
    torch.testing.assert_close(dual, w, rtol=1e-8, atol=1e-9)


@every_problem
@LAMS
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_dual_equals_primal_at_every_step(problem, lam, steps):
    primal = eq_7_as_printed(problem.X, problem.labels, lam, steps)
    torch.testing.assert_close(logistic(problem.X, problem.labels, lam, steps), primal, **EXACT)
    dual = problem.X.mT @ logistic_dual(problem.K, problem.labels, lam, steps)
    torch.testing.assert_close(dual, primal, **EXACT)


def eq_7_as_printed(X, y, lam, steps):
    w = torch.zeros_like(X[0])
    for _ in range(steps):
        mu = torch.sigmoid(X @ w)
        s = mu * (1 - mu)
        z = X @ w + (y - mu) / s
        w = torch.linalg.solve(X.mT @ (s[:, None] * X) + lam * torch.eye(len(w)).double(), X.mT @ (s * z))
    return w


@every_problem
@LAMS
def test_one_step_is_ridge_with_four_lam_and_targets_of_two(problem, lam):
    targets = 4 * problem.labels - 2
    one_step = logistic_dual(problem.K, problem.labels, lam, steps=1)
    torch.testing.assert_close(one_step, ridge_dual(problem.K, targets[:, None], 4 * lam)[:, 0], **EXACT)


@one_problem_a_shape
def test_columns_of_labels_are_problems_of_their_own(problem):
    together = logistic_dual(problem.K, problem.one_hot, 0.5, 6)
    weights = logistic(problem.X, problem.one_hot, 0.5, 6)
    assert weights.shape == (problem.X.shape[-1], 3)
    for column in range(3):
        alone = logistic_dual(problem.K, problem.one_hot[:, column], 0.5, 6)
        torch.testing.assert_close(together[:, column], alone, **EXACT)
        torch.testing.assert_close(weights[:, column], problem.X.mT @ alone, **EXACT)


def test_leading_dimensions_broadcast():
    problems = [make((7, 12), seed) for seed in range(4)]
    K, Y = torch.stack([p.K for p in problems]), torch.stack([p.one_hot for p in problems])
    lam = torch.tensor([0.1, 1.0, 10.0, 50.0], dtype=torch.float64)
    A = logistic_dual(K, Y, lam, 4)
    a = logistic_dual(K, Y[..., 0], lam, 4)
    shared = logistic_dual(K, Y[0, :, 0], 1.0, 4)
    assert A.shape == (4, 7, 3)
    assert a.shape == shared.shape == (4, 7)
    for i, problem in enumerate(problems):
        torch.testing.assert_close(A[i], logistic_dual(problem.K, problem.one_hot, float(lam[i]), 4), **EXACT)
        torch.testing.assert_close(a[i], A[i, :, 0], **EXACT)
        torch.testing.assert_close(shared[i], logistic_dual(problem.K, Y[0, :, 0], 1.0, 4), **EXACT)
    X = torch.stack([p.X for p in problems])
    assert logistic(X, Y[0, :, 0], 1.0, 4).shape == (4, 12)
    assert logistic(X[:, :, :3], Y, lam, 4).shape == (4, 3, 3)


@pytest.mark.parametrize("shape", [(4, 6), (6, 3)], ids=["dual", "primal"])
@pytest.mark.parametrize("steps", [1, 3])
def test_gradients_agree_with_finite_differences(shape, steps):
    problem = make(shape, 0, outputs=2)
    X, lam = leaves(problem.X, torch.tensor(0.8, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda X, lam: logistic(X, problem.one_hot, lam, steps), (X, lam))
    assert torch.autograd.gradgradcheck(lambda X, lam: logistic(X, problem.one_hot, lam, steps), (X, lam))


def test_gradients_in_gram_matrix_agree_with_finite_differences():
    problem = make((4, 6), 1, outputs=2)
    K, lam = leaves(problem.K, torch.tensor([0.5, 2.0], dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda K, lam: logistic_dual(K, problem.labels, lam, 3), (K, lam))
    assert torch.autograd.gradgradcheck(lambda K, lam: logistic_dual(K, problem.labels, lam, 3), (K, lam))


@one_problem_a_shape
def test_duplicating_all_samples_equals_halving_lam(problem):
    twice = logistic(duplicated(problem.X), duplicated(problem.labels), 1.0, 5)
    torch.testing.assert_close(twice, logistic(problem.X, problem.labels, 0.5, 5), **EXACT)


@one_problem_a_shape
def test_exchanging_the_labels_negates_the_weights(problem):
    w = logistic(problem.X, problem.labels, 0.3, 5)
    torch.testing.assert_close(logistic(problem.X, 1 - problem.labels, 0.3, 5), -w, **EXACT)


@one_problem_a_shape
def test_rotating_features_rotates_weights(problem):
    Q = rotation(problem.X.shape[-1])
    turned = logistic(problem.X @ Q, problem.labels, 0.3, 5)
    torch.testing.assert_close(turned, Q.mT @ logistic(problem.X, problem.labels, 0.3, 5), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("ratio", [1.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("steps", [1, 5, 30])
@pytest.mark.parametrize("shape", [(25, 512), (25, 4), (100, 64)], ids=["full rank", "rank 4 of 25", "tall"])
def test_float32_stays_finite_with_finite_gradients(ratio, steps, shape):
    problem = make(shape, 0)
    (X,) = leaves(problem.X.float())
    (lam,) = leaves(torch.linalg.matrix_norm(problem.K, 2).float() / ratio)
    for result in (logistic(X, problem.one_hot, lam, steps), logistic_dual(X @ X.mT, problem.one_hot, lam, steps)):
        assert result.dtype == torch.float32
        assert torch.isfinite(result).all()
        for gradient in torch.autograd.grad(result.sum(), (X, lam), retain_graph=True):
            assert torch.isfinite(gradient).all()


def test_a_sample_far_beyond_saturation_does_no_harm():
    problem = make((8, 20), 0)
    X = problem.X.clone()
    X[0] *= 1e4
    (leaf,) = leaves(X)
    w = logistic(leaf, problem.labels, 1.0, CONVERGED)
    (gradient,) = torch.autograd.grad(w.sum(), leaf)
    t = 2 * problem.labels - 1
    stationary = X.mT @ (t * torch.sigmoid(-t * (X @ w))) - w
    assert stationary.abs().max() < 1e-9
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_that_do_not_converge_stay_finite_with_finite_gradients(dtype):
    X, y = badly_scaled_problem()
    (leaf,) = leaves(X.to(dtype))
    for result in (logistic(leaf, y, 1.0, CONVERGED), logistic_dual(leaf @ leaf.mT, y, 1.0, CONVERGED)):
        (gradient,) = torch.autograd.grad(result.sum(), leaf)
        assert torch.isfinite(result).all()
        assert torch.isfinite(gradient).all()


def test_half_precision_under_autocast_is_solved_in_full():
    problem = make((10, 40), 0)
    X = problem.X.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = logistic(X, problem.labels, 1.0, 5)
    w.sum().backward()
    assert w.dtype == torch.float32
    assert X.grad is not None
    assert torch.isfinite(X.grad).all()
    reference = logistic(X.detach().double(), problem.labels, 1.0, 5)
    torch.testing.assert_close(w.double(), reference, rtol=1e-4, atol=1e-5)


def test_vmap_equals_a_batch():
    X = torch.stack([make((5, 9), seed).X for seed in range(3)])
    Y = torch.stack([make((5, 9), seed).one_hot for seed in range(3)])
    each = torch.func.vmap(lambda X, Y: logistic(X, Y, 0.5, 3))(X, Y)
    torch.testing.assert_close(each, logistic(X, Y, 0.5, 3), **EXACT)


def test_integer_and_boolean_labels_are_welcome():
    problem = make((5, 9), 0)
    expected = logistic_dual(problem.K, problem.labels, 1.0, 3)
    assert torch.equal(logistic_dual(problem.K, problem.labels.long(), 1.0, 3), expected)
    assert torch.equal(logistic_dual(problem.K, problem.labels.bool(), 1.0, 3), expected)


def test_labels_of_plus_and_minus_one_are_refused():
    problem = make((6, 3), 0)
    for solver, data in ((logistic, problem.X), (logistic_dual, problem.K)):
        with pytest.raises(InvalidOptionError, match=r"0 or 1.*4 of 6.* -1\b"):
            solver(data, 2 * problem.labels - 1, 1.0, 3)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
def test_options_that_cannot_work_are_refused(shape):
    problem = make(shape, 0)
    with pytest.raises(InvalidOptionError, match="steps=0"):
        logistic(problem.X, problem.labels, 1.0, 0)
    with pytest.raises(InvalidOptionError, match=r"lam .*positive.* 0"):
        logistic(problem.X, problem.labels, 0.0, 1)
    with pytest.raises(NotFiniteError, match="NaN"):
        logistic(problem.X * float("nan"), problem.labels, 1.0, 1)


@pytest.mark.parametrize(
    ("K", "y"), [((3, 3), (4,)), ((3, 4), (3,)), ((2, 3, 3), (4, 3)), ((5, 2, 3, 3), (3, 1)), ((3, 3), (3, 0))]
)
def test_shapes_that_do_not_match_are_refused(K, y):
    with pytest.raises(ShapeError):
        logistic_dual(torch.ones(K), torch.ones(y), 1.0, 1)


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("shape", [(12, 4), (4, 12)], ids=["tall", "wide"])
def test_the_number_of_steps_is_the_same_with_every_gradient(steps, shape):
    X = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (X[:, 0] > 0).double()
    unrolled, *others = (logistic(X, y, 1.0, steps, gradient) for gradient in ("unrolled", "last_step", "implicit"))
    for other in others:
        torch.testing.assert_close(other, unrolled, **EXACT)
