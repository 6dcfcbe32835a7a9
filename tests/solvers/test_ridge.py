"""Ridge regression: the closed forms against each other, their objective, scikit-learn, and known weights."""

import pytest
import torch
from sklearn.linear_model import Ridge

from handful.errors import InvalidOptionError, NotFiniteError, NotPositiveDefiniteError, ShapeError
from handful.solvers import leave_one_out, ridge, ridge_dual, ridge_predictions, ridge_primal

from .problems import duplicated, every_problem, leaves, make, one_problem_a_shape, rotation

LAMS = pytest.mark.parametrize("lam", [1e-2, 1.0, 50.0])
EXACT = {"rtol": 1e-9, "atol": 1e-10}  # condition numbers here reach 1e4, float64 keeps the other 11 digits


@every_problem
@LAMS
def test_woodbury_form_equals_normal_equations(problem, lam):
    primal = ridge_primal(problem.X, problem.Y, lam)
    dual = problem.X.mT @ ridge_dual(problem.K, problem.Y, lam)
    torch.testing.assert_close(dual, primal, **EXACT)
    torch.testing.assert_close(ridge(problem.X, problem.Y, lam), primal, **EXACT)


@every_problem
@LAMS
def test_gradient_of_the_objective_is_zero(problem, lam):
    (W,) = leaves(ridge(problem.X, problem.Y, lam))
    objective = (problem.X @ W - problem.Y).square().sum() + lam * W.square().sum()
    (gradient,) = torch.autograd.grad(objective, W)
    assert gradient.abs().max() < 1e-10


@every_problem
@LAMS
def test_equals_scikit_learn(problem, lam):
    golden = Ridge(alpha=lam, fit_intercept=False).fit(problem.X.numpy(), problem.Y.numpy()).coef_.T
    torch.testing.assert_close(ridge(problem.X, problem.Y, lam), torch.from_numpy(golden), **EXACT)


def test_recovers_known_weights():
    X = make((40, 7), 0).X
    W = torch.arange(14, dtype=torch.float64).reshape(7, 2)
    lam = 3.0
    Y = X @ W + lam * torch.linalg.pinv(X).mT @ W  # then X^T Y = (X^T X + lam I) W by construction
    torch.testing.assert_close(ridge(X, Y, lam), W, **EXACT)


@every_problem
def test_diagonal_prior_solves_its_own_normal_equations(problem):
    e = problem.X.shape[-1]
    lam = torch.linspace(0.1, 5.0, e, dtype=torch.float64)
    expected = torch.linalg.solve(problem.X.mT @ problem.X + torch.diag(lam), problem.X.mT @ problem.Y)
    torch.testing.assert_close(ridge(problem.X, problem.Y, lam), expected, **EXACT)


@one_problem_a_shape
def test_diagonal_prior_of_equal_values_is_the_plain_prior(problem):
    lam = torch.full(problem.X.shape[-1:], 0.7, dtype=torch.float64)
    torch.testing.assert_close(ridge(problem.X, problem.Y, lam), ridge(problem.X, problem.Y, 0.7), **EXACT)


@every_problem
@LAMS
def test_leave_one_out_equals_refitting(problem, lam):
    n = len(problem.X)
    left_out = leave_one_out(problem.K, problem.Y, lam)
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        refit = ridge(problem.X[rest], problem.Y[rest], lam) if rest else torch.zeros(problem.X.shape[-1], 3).double()
        torch.testing.assert_close(left_out[i], problem.X[i] @ refit, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("shape", [(3, 5), (6, 3)], ids=["dual", "primal"])
def test_gradients_agree_with_finite_differences(shape):
    problem = make(shape, 0, outputs=2)
    X, Y, lam = leaves(problem.X, problem.Y, torch.tensor(0.8, dtype=torch.float64))
    assert torch.autograd.gradcheck(ridge, (X, Y, lam))
    assert torch.autograd.gradgradcheck(ridge, (X, Y, lam))
    (prior,) = leaves(torch.linspace(0.5, 2, shape[1], dtype=torch.float64))
    assert torch.autograd.gradcheck(ridge, (X, Y, prior))
    assert torch.autograd.gradgradcheck(ridge, (X, Y, prior))


@every_problem
@pytest.mark.parametrize("create_graph", [False, True])
def test_hand_written_backward_equals_autograd_through_a_linear_solve(problem, create_graph):
    X, Y, lam = leaves(problem.X, problem.Y, torch.tensor(0.7, dtype=torch.float64))
    plain = X.mT @ torch.linalg.solve(X @ X.mT + lam * torch.eye(len(X), dtype=torch.float64), Y)
    expected = torch.autograd.grad(plain.sin().sum(), (X, Y, lam))
    ours = torch.autograd.grad(ridge(X, Y, lam).sin().sum(), (X, Y, lam), create_graph=create_graph)
    for mine, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9)


@every_problem
@pytest.mark.parametrize("create_graph", [False, True])
def test_predictions_and_their_gradients_are_those_of_the_weights(problem, create_graph):
    queries = make((7, problem.X.shape[-1]), 3).X
    inputs = leaves(problem.X, problem.Y, torch.tensor(0.7, dtype=torch.float64), queries)
    X, Y, lam, Q = inputs
    plain = Q @ X.mT @ torch.linalg.solve(X @ X.mT + lam * torch.eye(len(X), dtype=torch.float64), Y)
    ours = ridge_predictions(X, Y, lam, Q)
    torch.testing.assert_close(ours, plain, rtol=1e-8, atol=1e-9)
    expected = torch.autograd.grad(plain.sin().sum(), inputs)
    found = torch.autograd.grad(ours.sin().sum(), inputs, create_graph=create_graph)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9)


def test_gradients_of_predictions_agree_with_finite_differences():
    problem = make((3, 5), 0, outputs=2)
    inputs = leaves(problem.X, problem.Y, torch.tensor(0.8, dtype=torch.float64), make((2, 5), 1).X)
    assert torch.autograd.gradcheck(ridge_predictions, inputs)
    assert torch.autograd.gradgradcheck(ridge_predictions, inputs)


def test_predictions_of_a_batch_equal_those_of_each_problem():
    X, Y, Q = (torch.stack([part(seed) for seed in range(3)]) for part in (
        lambda seed: make((5, 9), seed).X, lambda seed: make((5, 9), seed).Y, lambda seed: make((4, 9), seed + 9).X
    ))  # fmt: skip
    lam = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    together = ridge_predictions(X, Y, lam, Q)
    for i in range(3):
        torch.testing.assert_close(together[i], Q[i] @ ridge(X[i], Y[i], float(lam[i])), **EXACT)
    each = torch.func.vmap(ridge_predictions)(X, Y, lam, Q)
    torch.testing.assert_close(each, together, **EXACT)
    one_query_set = ridge_predictions(X, Y, lam, Q[0])
    torch.testing.assert_close(one_query_set[2], Q[0] @ ridge(X[2], Y[2], 10.0), **EXACT)


def test_func_grad_of_predictions_equals_autograd():
    problem, Q = make((5, 9), 0), make((4, 9), 1).X
    found = torch.func.grad(lambda X: ridge_predictions(X, problem.Y, 0.5, Q).sin().sum())(problem.X)
    (X,) = leaves(problem.X)
    (expected,) = torch.autograd.grad(ridge_predictions(X, problem.Y, 0.5, Q).sin().sum(), X)
    torch.testing.assert_close(found, expected, **EXACT)


def test_predictions_refuse_queries_of_another_length_and_values_that_are_not_finite():
    problem = make((5, 9), 0)
    with pytest.raises(ShapeError, match=r"\(5, 9\) and \(2, 8\)"):
        ridge_predictions(problem.X, problem.Y, 1.0, torch.ones(2, 8))
    for bad in (float("nan"), float("inf")):
        X, Y = problem.X.clone(), problem.Y.clone()
        X[0, 0], Y[1, 1] = bad, bad
        with pytest.raises(NotFiniteError, match="K "):
            ridge_predictions(X, problem.Y, 1.0, problem.X)
        with pytest.raises(NotFiniteError, match="Y "):
            ridge_predictions(problem.X, Y, 1.0, problem.X)
    with pytest.raises(InvalidOptionError, match=r"lam .*positive"):
        ridge_predictions(problem.X, problem.Y, -1.0, problem.X)


@pytest.mark.parametrize("solver", [ridge_dual, leave_one_out])
def test_gradients_in_gram_matrix_agree_with_finite_differences(solver):
    problem = make((4, 6), 0, outputs=2)
    K, Y, lam = leaves(problem.K, problem.Y, torch.tensor([0.5, 2.0], dtype=torch.float64))
    assert torch.autograd.gradcheck(solver, (K, Y, lam))
    assert torch.autograd.gradgradcheck(solver, (K, Y, lam))


def test_lam_broadcasts_over_problems():
    problems = [make((5, 9), seed) for seed in range(3)]
    X, Y = torch.stack([p.X for p in problems]), torch.stack([p.Y for p in problems])
    lam = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    batched = ridge(X, Y, lam)
    dual = ridge_dual(X @ X.mT, Y, lam)
    for i, problem in enumerate(problems):
        torch.testing.assert_close(batched[i], ridge(problem.X, problem.Y, float(lam[i])), **EXACT)
        torch.testing.assert_close(dual[i], ridge_dual(problem.K, problem.Y, float(lam[i])), **EXACT)


def test_several_lams_for_one_problem():
    problem = make((6, 4), 0)
    lam = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    assert ridge(problem.X, problem.Y, lam).shape == (3, 4, 3)
    torch.testing.assert_close(ridge(problem.X, problem.Y, lam)[1], ridge(problem.X, problem.Y, 1.0), **EXACT)


def test_diagonal_prior_goes_with_any_leading_dimensions():
    X, Y = make((4, 6), 0).X.repeat(5, 1, 1), make((4, 6), 0).Y.repeat(5, 1, 1)
    lam = torch.linspace(0.1, 1, 6, dtype=torch.float64)
    torch.testing.assert_close(ridge(X, Y, lam)[3], ridge(X[0], Y[0], lam), **EXACT)


def test_lam_that_may_mean_two_things_is_refused():
    X, Y = torch.ones(6, 4, 6), torch.ones(6, 4, 2)
    with pytest.raises(ShapeError, match=r"shape \(6,\) .* \(6, 4, 6\)"):
        ridge(X, Y, torch.ones(6))
    assert ridge(X, Y, torch.ones(6).expand(6, 6)).shape == (6, 6, 2)


@one_problem_a_shape
def test_duplicating_all_samples_equals_halving_lam(problem):
    twice = ridge(duplicated(problem.X), duplicated(problem.Y), 1.0)
    torch.testing.assert_close(twice, ridge(problem.X, problem.Y, 0.5), **EXACT)


@one_problem_a_shape
def test_rotating_features_rotates_weights(problem):
    Q = rotation(problem.X.shape[-1])
    torch.testing.assert_close(
        Q.mT @ ridge(problem.X, problem.Y, 0.3), ridge(problem.X @ Q, problem.Y, 0.3), rtol=1e-8, atol=1e-10
    )


@one_problem_a_shape
def test_order_of_samples_permutes_dual_weights(problem):
    order = torch.randperm(len(problem.X), generator=torch.Generator().manual_seed(0))
    A = ridge_dual(problem.K, problem.Y, 0.3)
    torch.testing.assert_close(ridge_dual(problem.K[order][:, order], problem.Y[order], 0.3), A[order], **EXACT)


@pytest.mark.parametrize("ratio", [1.0, 1e4, 1e8, 1e12])
@pytest.mark.parametrize("shape", [(25, 512), (25, 4), (100, 64)], ids=["full rank", "rank 4 of 25", "tall"])
def test_float32_stays_finite_with_finite_gradients(ratio, shape):
    problem = make(shape, 0)
    X, Y = leaves(problem.X.float(), problem.Y.float())
    (lam,) = leaves(torch.linalg.matrix_norm(problem.K, 2).float() / ratio)
    for result in (ridge(X, Y, lam), ridge_dual(X @ X.mT, Y, lam), leave_one_out(X @ X.mT, Y, lam)):
        assert result.dtype == torch.float32
        assert torch.isfinite(result).all()
        for gradient in torch.autograd.grad(result.sum(), (X, Y, lam), retain_graph=True):
            assert torch.isfinite(gradient).all()


def test_float32_is_as_good_as_its_gram_matrix():
    problem = make((25, 512), 1)
    lam = float(torch.linalg.matrix_norm(problem.K, 2)) / 1e12
    narrow = ridge(problem.X.float(), problem.Y.float(), lam).double()
    torch.testing.assert_close(narrow, ridge(problem.X, problem.Y, lam), rtol=1e-4, atol=1e-5)  # cond(K) is about 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs_under_autocast_are_solved_in_full(dtype):
    problem = make((10, 40), 0)
    X = problem.X.to(dtype).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        W = ridge(X, problem.one_hot, 1.0)
        A = ridge_dual(X @ X.mT, problem.one_hot.float(), 1.0)
    assert W.dtype == torch.float64  # the targets were float64
    assert A.dtype == torch.float32
    W.sum().backward()
    assert X.grad is not None
    assert torch.isfinite(X.grad).all()
    torch.testing.assert_close(W, ridge(X.detach().double(), problem.one_hot, 1.0), rtol=1e-4, atol=1e-5)


def test_float32_inputs_under_autocast_keep_their_digits():
    problem = make((10, 40), 0)
    X, Y = problem.X.float(), problem.Y.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = ridge(X, Y, 1.0)
    assert torch.equal(inside, ridge(X, Y, 1.0))


def test_integer_targets_are_taken_as_numbers():
    problem = make((5, 9), 0)
    torch.testing.assert_close(ridge(problem.X, problem.one_hot.long(), 1.0), ridge(problem.X, problem.one_hot, 1.0))


def test_vmap_equals_a_batch():
    X = torch.stack([make((5, 9), seed).X for seed in range(3)])
    Y = torch.stack([make((5, 9), seed).Y for seed in range(3)])
    torch.testing.assert_close(torch.func.vmap(lambda X, Y: ridge(X, Y, 0.5))(X, Y), ridge(X, Y, 0.5), **EXACT)
    each = torch.func.vmap(torch.func.grad(lambda X, Y: ridge(X, Y, 0.5).sin().sum()))(X, Y)
    (leaf,) = leaves(X)
    (gradient,) = torch.autograd.grad(ridge(leaf, Y, 0.5).sin().sum(), leaf)
    torch.testing.assert_close(each, gradient, **EXACT)


@pytest.mark.parametrize("lam", [0.0, -1.0, float("nan"), float("inf"), torch.tensor([1.0, -2.0])])
@pytest.mark.parametrize("solver", [ridge, ridge_primal])
def test_lam_that_is_not_positive_is_refused(solver, lam):
    with pytest.raises(InvalidOptionError, match=r"lam .*positive"):
        solver(torch.ones(3, 5), torch.ones(3, 1), lam)


@pytest.mark.parametrize("solver", [ridge_dual, leave_one_out])
def test_lam_that_is_not_positive_is_refused_in_the_dual(solver):
    with pytest.raises(InvalidOptionError, match=r"lam .*positive .*-1"):
        solver(torch.eye(3), torch.ones(3, 1), -1.0)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_features_that_are_not_finite_or_overflow_are_refused(shape, bad):
    X = torch.ones(shape)
    X[0, 0] = bad
    with pytest.raises(NotFiniteError, match="among"):
        ridge(X, torch.ones(shape[0], 2), 1.0)


def test_indefinite_gram_matrix_is_refused():
    with pytest.raises(NotPositiveDefiniteError, match=r"size 3 .*eigenvalue .*-1"):
        ridge_dual(-2 * torch.eye(3), torch.ones(3, 1), 1.0)


@pytest.mark.parametrize(
    ("K", "Y"),
    [((3, 4), (3, 1)), ((3, 3), (4, 1)), ((3, 3), (3,)), ((2, 3, 3), (5, 3, 1)), ((0, 0), (0, 1)), ((3, 3), (3, 0))],
)
def test_shapes_that_do_not_match_are_refused(K, Y):
    with pytest.raises(ShapeError):
        ridge_dual(torch.ones(K), torch.ones(Y), 1.0)


@pytest.mark.parametrize("solver", [ridge, ridge_primal])
def test_samples_that_do_not_match_targets_are_refused(solver):
    with pytest.raises(ShapeError, match=r"\(3, 5\) and \(4, 2\)"):
        solver(torch.ones(3, 5), torch.ones(4, 2), 1.0)


@pytest.mark.parametrize("shape", [(2, 3), (5, 3)], ids=["dual", "primal"])
@pytest.mark.parametrize("ratio", [1e6, 1e8, 1e10, 1e12])
def test_float32_features_that_are_all_alike_predict_the_mean_target(shape, ratio):
    n, e = shape
    X = torch.arange(1.0, e + 1).repeat(n, 1)
    Y = torch.eye(n)[:, :1]
    lam = n * float(X[0].square().sum()) / ratio
    for predictions in (X @ ridge(X, Y, lam), ridge_predictions(X, Y, lam, X), X @ ridge_primal(X, Y, lam)):
        assert predictions.dtype == torch.float32
        # float64 keeps 16 digits, of which this ratio costs 12
        torch.testing.assert_close(predictions, torch.full((n, 1), 1 / n), rtol=0, atol=1e-3 if ratio > 1e10 else 1e-5)


@pytest.mark.parametrize("shape", [(6, 40), (40, 6)], ids=["dual", "primal"])
def test_float32_ridge_of_nearly_equal_samples_is_that_of_float64(shape):
    problem = make(shape, 0)
    X = (problem.X[:1] + 1e-3 * problem.X).float().requires_grad_()
    Y, lam = problem.Y.float(), float(X.detach().square().sum()) / 1e8
    wide = X.detach().double().requires_grad_()
    for solver in (lambda X, Y: ridge(X, Y, lam), lambda X, Y: ridge_predictions(X, Y, lam, X)):
        narrow, expected = solver(X, Y), solver(wide, Y.double())
        torch.testing.assert_close(
            narrow.double(), expected, rtol=1e-4, atol=1e-4 * float(expected.detach().abs().max())
        )
        (gradient,) = torch.autograd.grad(narrow.sum(), X)
        (exact,) = torch.autograd.grad(expected.sum(), wide)
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-4, atol=1e-4 * float(exact.abs().max()))


def test_predictions_of_many_samples_are_those_of_the_smaller_system():
    problem = make((40, 6), 0)
    expected = problem.X @ ridge_primal(problem.X, problem.Y, 0.3)
    torch.testing.assert_close(ridge_predictions(problem.X, problem.Y, 0.3, problem.X), expected, **EXACT)
    # the 6 x 6 system has full rank, so even this lambda does no harm; the 40 x 40 system would be singular
    lam = 1e-16 * float(problem.X.square().sum())
    fitted = problem.X @ torch.linalg.lstsq(problem.X, problem.Y).solution
    torch.testing.assert_close(ridge_predictions(problem.X, problem.Y, lam, problem.X), fitted, **EXACT)


def test_as_many_targets_as_features_make_a_vector_of_lambdas_ambiguous_too():
    X, Y = torch.randn(6, 3), torch.randn(3, 6, 2)
    with pytest.raises(ShapeError, match=r"\(3,\).*\(6, 3\).*\(3, 6, 2\)"):
        ridge(X, Y, torch.ones(3))
    torch.testing.assert_close(ridge(X, Y, torch.full((3, 3), 2.0)), ridge(X, Y, 2.0))


def test_no_problems_have_no_answers():
    assert ridge(torch.zeros(0, 5, 9), torch.zeros(0, 5, 2), 1.0).shape == (0, 9, 2)
    assert ridge_dual(torch.zeros(0, 5, 5), torch.zeros(0, 5, 2), 1.0).shape == (0, 5, 2)
