"""The ways to differentiate reweighted least squares: against autograd, against each other, and what they keep."""

import itertools

import pytest
import torch

from handful.errors import InvalidOptionError
from handful.solvers import logistic, logistic_dual

from .problems import every_problem, leaves, make, one_problem_a_shape, saved_bytes

CONVERGED = 25
SHORTCUTS = pytest.mark.parametrize("gradient", ["last_step", "implicit"])


def autograd_reference(K, t, lam, steps):
    """Eq. 7 in its Woodbury form, written out for one problem and left to autograd."""
    a = torch.zeros_like(t)
    for _ in range(steps):
        eta = K @ a
        s = torch.sigmoid(eta) * torch.sigmoid(-eta)
        a = torch.linalg.solve(K + lam * torch.diag(1 / s), eta + t / torch.sigmoid(t * eta))
    return a


def gradients(function, *inputs):
    inputs = leaves(*inputs)
    return torch.autograd.grad(function(*inputs).sin().sum(), inputs)


@every_problem
@pytest.mark.parametrize("steps", [1, 2, 5, 10])
def test_hand_written_backward_equals_autograd(problem, steps):
    lam = torch.tensor(0.7, dtype=torch.float64)
    t = 2 * problem.labels - 1
    ours = gradients(lambda K, lam: logistic_dual(K, problem.labels, lam, steps), problem.K, lam)
    theirs = gradients(lambda K, lam: autograd_reference((K + K.mT) / 2, t, lam, steps), problem.K, lam)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-10)


@one_problem_a_shape
@SHORTCUTS
@pytest.mark.parametrize("solver", [logistic_dual, logistic])
def test_shortcut_equals_unrolling_at_convergence(problem, gradient, solver):
    data, lam = problem.K if solver is logistic_dual else problem.X, torch.tensor(0.7, dtype=torch.float64)
    exact = gradients(lambda data, lam: solver(data, problem.one_hot, lam, CONVERGED), data, lam)
    short = gradients(lambda data, lam: solver(data, problem.one_hot, lam, CONVERGED, gradient), data, lam)
    for mine, other in zip(short, exact, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9)


def test_shortcuts_come_closer_with_every_step_and_implicit_is_a_step_ahead():
    problem = make((25, 60), 0)
    exact = gradients(lambda K: logistic_dual(K, problem.one_hot, 1.0, CONVERGED), problem.K)[0]

    def error(steps, gradient):
        short = gradients(lambda K: logistic_dual(K, problem.one_hot, 1.0, steps, gradient), problem.K)[0]
        return float((short - exact).norm() / exact.norm())

    last = [error(steps, "last_step") for steps in range(3, 8)]
    implicit = [error(steps, "implicit") for steps in range(3, 8)]
    assert all(later < earlier for earlier, later in itertools.pairwise(last))
    assert all(mine < other for mine, other in zip(implicit, last, strict=True))
    assert error(12, "last_step") < 1e-10


def test_implicit_gradient_is_exact_in_the_second_order_too():
    problem = make((4, 6), 1, outputs=2)
    K, lam = leaves(problem.K, torch.tensor(0.8, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda K, lam: logistic_dual(K, problem.labels, lam, 20, "implicit"), (K, lam))
    assert torch.autograd.gradgradcheck(lambda K, lam: logistic_dual(K, problem.labels, lam, 20, "implicit"), (K, lam))


@SHORTCUTS
def test_memory_of_a_shortcut_does_not_grow_with_the_steps(gradient):
    problem = make((12, 30), 0)
    (K,) = leaves(problem.K)
    few, many = (saved_bytes(lambda n=n: logistic_dual(K, problem.one_hot, 1.0, n, gradient)) for n in (2, 40))
    assert few == many > 0
    unrolled = [saved_bytes(lambda n=n: logistic_dual(K, problem.one_hot, 1.0, n)) for n in (2, 40)]
    assert unrolled[1] > 10 * unrolled[0]


@SHORTCUTS
@pytest.mark.parametrize("ratio", [1.0, 1e6, 1e12])
def test_float32_stays_finite_with_finite_gradients(gradient, ratio):
    problem = make((25, 100), 0)
    (X,) = leaves(problem.X.float())
    (lam,) = leaves(torch.linalg.matrix_norm(problem.K, 2).float() / ratio)
    A = logistic_dual(X @ X.mT, problem.one_hot, lam, 10, gradient)
    assert all(torch.isfinite(value).all() for value in (A, *torch.autograd.grad(A.sum(), (X, lam))))


@pytest.mark.parametrize("gradient", ["unrolled", "last_step", "implicit"])
def test_func_grad_inside_vmap_equals_autograd(gradient):
    problems = [make((5, 9), seed) for seed in range(3)]
    K, Y = torch.stack([p.K for p in problems]), torch.stack([p.one_hot for p in problems])
    each = torch.func.vmap(torch.func.grad(lambda K, Y: logistic_dual(K, Y, 0.5, 3, gradient).sin().sum()))(K, Y)
    (together,) = gradients(lambda K: logistic_dual(K, Y, 0.5, 3, gradient), K)
    torch.testing.assert_close(each, together, rtol=1e-9, atol=1e-10)


def test_a_batch_has_the_gradients_of_its_members():
    problems = [make((5, 9), seed) for seed in range(3)]
    K, Y = torch.stack([p.K for p in problems]), torch.stack([p.one_hot for p in problems])
    lam = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    together = gradients(lambda K, lam: logistic_dual(K, Y, lam, 4), K, lam)
    for i, problem in enumerate(problems):
        alone = gradients(lambda K, lam, Y=problem.one_hot: logistic_dual(K, Y, lam, 4), problem.K, lam[i])
        torch.testing.assert_close(together[0][i], alone[0])
        torch.testing.assert_close(together[1][i], alone[1])


def test_unknown_gradient_is_refused():
    for X in (make((6, 3), 0).X, make((3, 6), 0).X):
        with pytest.raises(InvalidOptionError, match=r"gradient .*unrolled, last_step, implicit.*'exact'"):
            logistic(X, torch.zeros(len(X)), 1.0, 1, "exact")
