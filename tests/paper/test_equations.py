"""The equations of the paper, one test each: what is printed, written out plainly, against the function that solves it.

Bertinetto, Henriques, Torr and Vedaldi, "Meta-learning with differentiable closed-form solvers", ICLR 2019. The
batteries in tests/solvers go further; these are the ones to read beside the paper.
"""

import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from handful.solvers import leave_one_out, logistic, logistic_dual, ridge, ridge_dual, ridge_primal

EXACT = {"rtol": 1e-8, "atol": 1e-9}


@pytest.fixture(params=[(25, 200), (40, 12)], ids=["n < e", "n > e"])
def samples(request):
    n, e = request.param
    generator = torch.Generator().manual_seed(n)
    X = torch.randn(n, e, generator=generator, dtype=torch.float64)
    Y = torch.nn.functional.one_hot(torch.arange(n) % 5, 5).double()
    return X, Y


def eye(n):
    return torch.eye(n, dtype=torch.float64)


def test_eq_3_weights_minimise_squared_error_plus_lam_times_squared_norm(samples):
    X, Y = samples
    W = ridge(X, Y, 2.0)

    def objective(W):
        return (X @ W - Y).square().sum() + 2.0 * W.square().sum()

    generator = torch.Generator().manual_seed(0)
    steps = 1e-3 * torch.randn(20, *W.shape, generator=generator, dtype=torch.float64)
    assert all(objective(W) < objective(W + step) for step in steps)


def test_eq_4_normal_equations(samples):
    X, Y = samples
    printed = torch.linalg.inv(X.T @ X + 2.0 * eye(X.shape[1])) @ X.T @ Y
    torch.testing.assert_close(ridge_primal(X, Y, 2.0), printed, **EXACT)
    golden = Ridge(alpha=2.0, fit_intercept=False).fit(X.numpy(), Y.numpy()).coef_.T
    torch.testing.assert_close(ridge_primal(X, Y, 2.0), torch.from_numpy(golden), **EXACT)


def test_eq_5_woodbury_form(samples):
    X, Y = samples
    printed = X.T @ torch.linalg.inv(X @ X.T + 2.0 * eye(len(X))) @ Y
    torch.testing.assert_close(X.T @ ridge_dual(X @ X.T, Y, 2.0), printed, **EXACT)
    torch.testing.assert_close(ridge_primal(X, Y, 2.0), printed, **EXACT)


def test_eq_7_reweighted_least_squares(samples):
    X, Y = samples
    y, w = Y[:, 0], torch.zeros(X.shape[1], dtype=torch.float64)
    for steps in range(1, 6):
        mu = torch.sigmoid(X @ w)
        s = mu * (1 - mu)
        z = X @ w + (y - mu) / s
        w = torch.linalg.inv(X.T @ torch.diag(s) @ X + 3.0 * eye(len(w))) @ X.T @ torch.diag(s) @ z
        torch.testing.assert_close(logistic(X, y, 3.0, steps), w, **EXACT)


def test_eq_7_woodbury_form(samples):
    X, Y = samples
    y, w = Y[:, 0], torch.zeros(X.shape[1], dtype=torch.float64)
    for steps in range(1, 6):
        mu = torch.sigmoid(X @ w)
        s = mu * (1 - mu)
        z = X @ w + (y - mu) / s
        w = X.T @ torch.linalg.inv(X @ X.T + 3.0 * torch.diag(1 / s)) @ z
        torch.testing.assert_close(X.T @ logistic_dual(X @ X.T, y, 3.0, steps), w, **EXACT)


def test_eq_7_converges_to_logistic_regression(samples):
    X, Y = samples
    model = LogisticRegression(C=1 / 3.0, fit_intercept=False, solver="newton-cholesky", tol=1e-13, max_iter=1000)
    golden = torch.from_numpy(model.fit(X.numpy(), Y[:, 0].numpy()).coef_[0])
    torch.testing.assert_close(logistic(X, Y[:, 0], 3.0, steps=20), golden, **EXACT)


def test_one_step_of_eq_7_is_ridge_with_four_lam_and_targets_of_two(samples):
    X, Y = samples
    torch.testing.assert_close(logistic(X, Y, 3.0, steps=1), ridge(X, 4 * Y - 2, 12.0), **EXACT)


def test_eq_8_diagonal_prior(samples):
    X, Y = samples
    lam = torch.linspace(0.5, 4.0, X.shape[1], dtype=torch.float64)
    inverse = torch.diag(1 / lam)
    printed = inverse @ X.T @ torch.linalg.inv(X @ inverse @ X.T + eye(len(X))) @ Y
    torch.testing.assert_close(ridge(X, Y, lam), printed, **EXACT)


def test_leave_one_out_is_refitting_without_each_sample(samples):
    X, Y = samples
    left_out = leave_one_out(X @ X.T, Y, 2.0)
    for i in range(len(X)):
        keep = torch.arange(len(X)) != i
        torch.testing.assert_close(left_out[i], X[i] @ ridge(X[keep], Y[keep], 2.0), **EXACT)


@pytest.mark.parametrize("ratio", [1e6, 1e9, 1e12])
def test_float32_is_safe_when_the_gram_matrix_dwarfs_lam(samples, ratio):
    X, Y = samples[0].float().requires_grad_(), samples[1].float()
    lam = (torch.linalg.matrix_norm((X @ X.T).detach(), 2) / ratio).requires_grad_()
    K = X @ X.T
    for result in (ridge(X, Y, lam), ridge_dual(K, Y, lam), logistic(X, Y, lam, 10), logistic_dual(K, Y, lam, 10)):
        gradients = torch.autograd.grad(result.sum(), (X, lam), retain_graph=True)
        assert all(torch.isfinite(value).all() for value in (result, *gradients))
