"""The multi-class support-vector machine: its optimality conditions, scikit-learn, gradients and bad input."""

import warnings

import pytest
import torch
from sklearn.svm import LinearSVC
from torch.nn.functional import one_hot

from handful.errors import InvalidOptionError, NotFiniteError, ShapeError
from handful.solvers import svm_dual

from .problems import every_two_class_problem, leaves, make, one_problem_a_shape, saved_bytes

STRENGTHS = pytest.mark.parametrize("C", [0.01, 0.1, 10.0])


def primal_objective(X, Y, W, C):
    scores = X @ W
    return W.square().sum() / 2 + C * ((1 - Y + scores).amax(-1) - (Y * scores).sum(-1)).sum()


@one_problem_a_shape
@STRENGTHS
def test_dual_objective_meets_the_primal(problem, C):
    A = svm_dual(problem.K, problem.one_hot, C)
    dual = (A * problem.one_hot).sum() - (A * (problem.K @ A)).sum() / 2
    primal = primal_objective(problem.X, problem.one_hot, problem.X.mT @ A, C)
    assert (C * problem.one_hot - A >= 0).all()
    assert A.sum(-1).abs().max() < 1e-9 * C * len(A)
    assert -1e-9 * primal < primal - dual < 1e-9 * primal  # n o times the barrier's 1e-11


@every_two_class_problem
@STRENGTHS
def test_equals_scikit_learn(problem, C):
    model = LinearSVC(C=C, fit_intercept=False, multi_class="crammer_singer", tol=1e-12, max_iter=1_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        golden = torch.from_numpy(model.fit(problem.X.numpy(), problem.one_hot.argmax(-1).numpy()).coef_.T)
    W = problem.X.mT @ svm_dual(problem.K, problem.one_hot, C)
    torch.testing.assert_close(W, golden, rtol=1e-6, atol=1e-7)  # liblinear stops at 1e-9 or so
    best = primal_objective(problem.X, problem.one_hot, W, C)
    assert best <= primal_objective(problem.X, problem.one_hot, golden, C) * (1 + 1e-9)


def test_known_answer_for_two_samples():
    K, Y = torch.eye(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    # by symmetry A = a [[1, -1], [-1, 1]], the dual is 2 a^2 - 2 a, and so a = 1/2 unless C is smaller
    swap = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(svm_dual(K, Y, 1.0), 0.5 * swap, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(svm_dual(K, Y, 0.2), 0.2 * swap, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("C", [0.05, 0.5])
def test_gradients_agree_with_finite_differences(C):
    problem = make((3, 5), 0)
    K, strength = leaves(problem.K, torch.tensor(C, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda K, C: svm_dual(K, problem.one_hot, C), (K, strength))


@pytest.mark.parametrize("shape", [(8, 30), (6, 6), (20, 60)])
@STRENGTHS
def test_implicit_gradient_equals_unrolling_at_convergence(shape, C):
    problem = make(shape, 0)
    strength = torch.tensor(C, dtype=torch.float64)

    def gradients(gradient):
        K, C = leaves(problem.K, strength)
        return torch.autograd.grad(svm_dual(K, problem.one_hot, C, gradient=gradient).sin().sum(), (K, C))

    for implicit, unrolled in zip(gradients("implicit"), gradients("unrolled"), strict=True):
        torch.testing.assert_close(implicit, unrolled, rtol=1e-6, atol=1e-8)  # 1e-9 of K's diagonal is held back


@pytest.mark.slow
def test_gradient_through_features_of_low_rank_agrees_with_finite_differences():
    problem = make((6, 3), 0)
    (X,) = leaves(problem.X)

    def scores(X):
        return X @ X.mT @ svm_dual(X @ X.mT, problem.one_hot, 0.1)

    # A is not unique here, but the scores are; the systems' condition of 1e9 leaves six digits
    assert torch.autograd.gradcheck(scores, (X,), eps=1e-5, atol=1e-4, rtol=1e-3)


def test_memory_of_the_implicit_gradient_does_not_grow_with_the_steps():
    problem = make((12, 30), 0)
    (K,) = leaves(problem.K)
    few, many = (saved_bytes(lambda n=n: svm_dual(K, problem.one_hot, 1.0, n)) for n in (2, 20))
    assert few == many > 0
    unrolled = [saved_bytes(lambda n=n: svm_dual(K, problem.one_hot, 1.0, n, "unrolled")) for n in (2, 20)]
    assert unrolled[1] > 5 * unrolled[0]


def test_leading_dimensions_broadcast():
    problems = [make((7, 12), seed) for seed in range(3)]
    K, Y = torch.stack([p.K for p in problems]), torch.stack([p.one_hot for p in problems])
    C = torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64)
    A = svm_dual(K, Y, C)
    for i, problem in enumerate(problems):
        torch.testing.assert_close(A[i], svm_dual(problem.K, problem.one_hot, float(C[i])), rtol=1e-8, atol=1e-9)
    assert svm_dual(K[0], Y, C).shape == (3, 7, 3)


def test_vmap_equals_a_batch():
    problems = [make((5, 9), seed) for seed in range(3)]
    K, Y = torch.stack([p.K for p in problems]), torch.stack([p.one_hot for p in problems])
    each = torch.func.vmap(torch.func.grad(lambda K, Y: svm_dual(K, Y, 0.1).sin().sum()))(K, Y)
    (leaf,) = leaves(K)
    (together,) = torch.autograd.grad(svm_dual(leaf, Y, 0.1).sin().sum(), leaf)
    torch.testing.assert_close(each, together, rtol=1e-8, atol=1e-9)


@one_problem_a_shape
def test_scaling_the_features_scales_the_answer(problem):
    A = svm_dual(problem.K, problem.one_hot, 0.1)
    torch.testing.assert_close(svm_dual(1e6 * problem.K, problem.one_hot, 1e-7) * 1e6, A, rtol=1e-6, atol=1e-8)


@one_problem_a_shape
def test_relabelling_classes_permutes_the_answer(problem):
    order = [2, 0, 1]
    scores = problem.K @ svm_dual(problem.K, problem.one_hot, 0.1)
    relabelled = problem.K @ svm_dual(problem.K, problem.one_hot[:, order], 0.1)
    torch.testing.assert_close(relabelled, scores[:, order], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("C", [1e-3, 0.1, 1e3])
@pytest.mark.parametrize("shape", [(25, 100), (25, 4)], ids=["full rank", "rank 4 of 25"])
def test_float32_stays_finite_with_finite_gradients(scale, C, shape):
    problem = make(shape, 0)
    X, strength = leaves(scale * problem.X.float(), torch.tensor(C))
    A = svm_dual(X @ X.mT, problem.one_hot, strength)
    assert A.dtype == torch.float32
    assert all(torch.isfinite(value).all() for value in (A, *torch.autograd.grad(A.sum(), (X, strength))))


def test_duplicates_with_conflicting_labels_are_solved():
    K, Y = torch.ones(4, 4, dtype=torch.float64), one_hot(torch.tensor([0, 1, 0, 1]), 2)
    A = svm_dual(K, Y, 1.0)
    assert torch.isfinite(A).all()
    assert (K @ A).abs().max() < 1e-6


def test_input_that_cannot_work_is_refused():
    problem = make((6, 9), 0)
    with pytest.raises(InvalidOptionError, match=r"^C .*positive.* 0"):
        svm_dual(problem.K, problem.one_hot, 0.0)
    with pytest.raises(InvalidOptionError, match="steps=0"):
        svm_dual(problem.K, problem.one_hot, 1.0, steps=0)
    with pytest.raises(InvalidOptionError, match=r"gradient .*implicit, unrolled.*'last_step'"):
        svm_dual(problem.K, problem.one_hot, 1.0, gradient="last_step")
    with pytest.raises(InvalidOptionError, match="6 rows of Y"):
        svm_dual(problem.K, torch.ones(6, 2), 1.0)
    with pytest.raises(NotFiniteError):
        svm_dual(problem.K * float("inf"), problem.one_hot, 1.0)
    with pytest.raises(ShapeError):
        svm_dual(problem.K, problem.one_hot[:5], 1.0)
    with pytest.raises(ShapeError, match=r"two classes.*\(6, 1\)"):
        svm_dual(problem.K, torch.ones(6, 1), 1.0)


def test_features_that_are_all_zero_are_a_problem_like_any_other():
    X, Y = torch.zeros(6, 4, dtype=torch.float64), torch.eye(3, dtype=torch.float64).repeat(2, 1)
    X[0, 0] = 1.0
    kernels = torch.stack([torch.zeros(6, 6, dtype=torch.float64), X @ X.mT])
    together = svm_dual(kernels, Y, 0.1)
    assert together.isfinite().all()
    torch.testing.assert_close(together[1], svm_dual(kernels[1], Y, 0.1))
