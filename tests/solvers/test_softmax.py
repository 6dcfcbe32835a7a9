"""Softmax regression: its optimality condition, scikit-learn, its gradients, and that it always converges."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy, one_hot

from handful.errors import InvalidOptionError, NotFiniteError, ShapeError
from handful.solvers import logistic, logistic_dual, softmax_dual

from .problems import (
    badly_scaled_problem,
    duplicated,
    every_two_class_problem,
    leaves,
    make,
    one_problem_a_shape,
    saved_bytes,
)

LAMS = pytest.mark.parametrize("lam", [0.01, 1.0, 50.0])
CONVERGED = 30
EXACT = {"rtol": 1e-8, "atol": 1e-9}


def gradients(function, *inputs):
    inputs = leaves(*inputs)
    return torch.autograd.grad(function(*inputs).sin().sum(), inputs)


@one_problem_a_shape
@LAMS
def test_gradient_of_the_objective_is_zero_at_convergence(problem, lam):
    (W,) = leaves(problem.X.mT @ softmax_dual(problem.K, problem.one_hot, lam, CONVERGED))
    loss = cross_entropy(problem.X @ W, problem.one_hot, reduction="sum") + lam / 2 * W.square().sum()
    (gradient,) = torch.autograd.grad(loss, W)
    assert gradient.abs().max() < 1e-10


@every_two_class_problem
@LAMS
def test_equals_scikit_learn_at_convergence(problem, lam):
    model = LogisticRegression(C=1 / lam, fit_intercept=False, solver="newton-cholesky", tol=1e-13, max_iter=1000)
    golden = torch.from_numpy(model.fit(problem.X.numpy(), problem.one_hot.argmax(-1).numpy()).coef_.T)
    torch.testing.assert_close(problem.X.mT @ softmax_dual(problem.K, problem.one_hot, lam, CONVERGED), golden, **EXACT)


@one_problem_a_shape
def test_two_classes_are_logistic_regression_with_half_lam(problem):
    Y = torch.stack([problem.labels, 1 - problem.labels], -1)
    A = softmax_dual(problem.K, Y, 0.5, CONVERGED)
    torch.testing.assert_close(A[:, 0] - A[:, 1], logistic_dual(problem.K, problem.labels, 0.25, CONVERGED), **EXACT)


def test_known_answer_for_one_sample():
    K, Y = torch.ones(1, 1, dtype=torch.float64), one_hot(torch.tensor([1]), 4)
    A = softmax_dual(K, Y, 1.0, CONVERGED)
    p = torch.softmax(A, -1)
    torch.testing.assert_close(A, Y - p, **EXACT)
    assert A.sum().abs() < 1e-12
    torch.testing.assert_close(A[0, 0], A[0, 3], **EXACT)


def test_converges_where_full_newton_steps_do_not():
    X, y = badly_scaled_problem()

    def residual(w):
        return (X.mT @ (y - torch.sigmoid(X @ w)) - w).abs().max()

    assert residual(logistic(X, y, 1.0, CONVERGED)) > 1  # full steps, as in the paper
    A = softmax_dual(X @ X.mT, torch.stack([1 - y, y], -1), 2.0, CONVERGED)
    assert residual(X.mT @ (A[:, 1] - A[:, 0])) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["unrolled", "implicit"])
def test_gradients_agree_with_finite_differences(gradient):
    problem = make((3, 5), 0)
    steps = 3 if gradient == "unrolled" else 12
    K, lam = leaves(problem.K, torch.tensor(0.8, dtype=torch.float64))

    def solve(K, lam):
        return softmax_dual(K, problem.one_hot, lam, steps, gradient)

    assert torch.autograd.gradcheck(solve, (K, lam))
    assert torch.autograd.gradgradcheck(solve, (K, lam))


@one_problem_a_shape
@pytest.mark.parametrize("gradient", ["last_step", "implicit"])
def test_shortcut_equals_unrolling_at_convergence(problem, gradient):
    lam = torch.tensor(0.7, dtype=torch.float64)
    exact = gradients(lambda K, lam: softmax_dual(K, problem.one_hot, lam, CONVERGED), problem.K, lam)
    short = gradients(lambda K, lam: softmax_dual(K, problem.one_hot, lam, CONVERGED, gradient), problem.K, lam)
    for mine, other in zip(short, exact, strict=True):
        torch.testing.assert_close(mine, other, **EXACT)


@pytest.mark.parametrize("gradient", ["last_step", "implicit"])
def test_memory_of_a_shortcut_does_not_grow_with_the_steps(gradient):
    problem = make((12, 30), 0)
    (K,) = leaves(problem.K)
    few, many = (saved_bytes(lambda n=n: softmax_dual(K, problem.one_hot, 1.0, n, gradient)) for n in (2, 20))
    assert few == many > 0
    unrolled = [saved_bytes(lambda n=n: softmax_dual(K, problem.one_hot, 1.0, n)) for n in (2, 20)]
    assert unrolled[1] > 5 * unrolled[0]


def test_leading_dimensions_broadcast():
    problems = [make((7, 12), seed) for seed in range(3)]
    K, Y = torch.stack([p.K for p in problems]), torch.stack([p.one_hot for p in problems])
    lam = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    A = softmax_dual(K, Y, lam, 4)
    for i, problem in enumerate(problems):
        torch.testing.assert_close(A[i], softmax_dual(problem.K, problem.one_hot, float(lam[i]), 4), **EXACT)
    assert softmax_dual(K[0], Y, lam, 2).shape == (3, 7, 3)


@pytest.mark.parametrize("gradient", ["unrolled", "last_step", "implicit"])
def test_vmap_equals_a_batch(gradient):
    problems = [make((5, 9), seed) for seed in range(3)]
    K, Y = torch.stack([p.K for p in problems]), torch.stack([p.one_hot for p in problems])
    each = torch.func.vmap(torch.func.grad(lambda K, Y: softmax_dual(K, Y, 0.5, 3, gradient).sin().sum()))(K, Y)
    (together,) = gradients(lambda K: softmax_dual(K, Y, 0.5, 3, gradient), K)
    torch.testing.assert_close(each, together, **EXACT)


@one_problem_a_shape
def test_duplicating_all_samples_equals_halving_lam(problem):
    X, Y = duplicated(problem.X), duplicated(problem.one_hot)
    twice = X.mT @ softmax_dual(X @ X.mT, Y, 1.0, CONVERGED)
    once = problem.X.mT @ softmax_dual(problem.K, problem.one_hot, 0.5, CONVERGED)
    torch.testing.assert_close(twice, once, **EXACT)


@one_problem_a_shape
def test_relabelling_classes_permutes_the_answer(problem):
    A = softmax_dual(problem.K, problem.one_hot, 0.3, 5)
    torch.testing.assert_close(softmax_dual(problem.K, problem.one_hot[:, [2, 0, 1]], 0.3, 5), A[:, [2, 0, 1]], **EXACT)


@pytest.mark.parametrize("ratio", [1.0, 1e6, 1e12])
@pytest.mark.parametrize("gradient", ["unrolled", "implicit"])
@pytest.mark.parametrize("shape", [(25, 100), (25, 4)], ids=["full rank", "rank 4 of 25"])
def test_float32_stays_finite_with_finite_gradients(ratio, gradient, shape):
    problem = make(shape, 0)
    (X,) = leaves(problem.X.float())
    (lam,) = leaves(torch.linalg.matrix_norm(problem.K, 2).float() / ratio)
    A = softmax_dual(X @ X.mT, problem.one_hot, lam, 10, gradient)
    assert A.dtype == torch.float32
    assert all(torch.isfinite(value).all() for value in (A, *torch.autograd.grad(A.sum(), (X, lam))))


def test_input_that_cannot_work_is_refused():
    problem = make((6, 9), 0)
    with pytest.raises(InvalidOptionError, match="steps=0"):
        softmax_dual(problem.K, problem.one_hot, 1.0, 0)
    with pytest.raises(InvalidOptionError, match=r"lam .*positive.* -1"):
        softmax_dual(problem.K, problem.one_hot, -1.0, 1)
    with pytest.raises(InvalidOptionError, match="6 rows of Y"):
        softmax_dual(problem.K, torch.ones(6, 2), 1.0, 1)
    with pytest.raises(InvalidOptionError, match=r"0 or 1.*18 of 18"):
        softmax_dual(problem.K, problem.Y, 1.0, 1)
    with pytest.raises(NotFiniteError):
        softmax_dual(problem.K * float("nan"), problem.one_hot, 1.0, 1)
    with pytest.raises(ShapeError):
        softmax_dual(problem.K, problem.one_hot[:5], 1.0, 1)
    with pytest.raises(ShapeError, match=r"two classes.*\(6, 1\)"):
        softmax_dual(problem.K, torch.ones(6, 1), 1.0, 1)
    with pytest.raises(InvalidOptionError, match=r"gradient .*'none'"):
        softmax_dual(problem.K, problem.one_hot, 1.0, 1, "none")


@pytest.mark.parametrize(("size", "lam"), [(1.0, 1e-4), (30.0, 1e-2)])
def test_the_last_step_has_the_whole_gradient_where_large_terms_of_the_objective_cancel(size, lam):
    draw = torch.Generator().manual_seed(0)
    X = size * torch.randn(20, 25, 4, dtype=torch.float64, generator=draw)
    Y = one_hot(torch.randint(5, (20, 25), generator=draw), 5).double()
    K = (X @ X.mT).requires_grad_()
    weights = torch.arange(5.0, dtype=torch.float64)
    implicit, last = (
        torch.autograd.grad((softmax_dual(K, Y, lam, CONVERGED, gradient) * weights).sum(), K)[0]
        for gradient in ("implicit", "last_step")
    )
    errors = (last - implicit).flatten(1).norm(dim=1) / implicit.flatten(1).norm(dim=1)
    assert float(errors.max()) < 1e-6  # K / lam is 1e5 to 1e7, which costs as many of the 16 digits
