"""Logistic regression by iteratively reweighted least squares (eq. 7), in a form that is safe when it saturates."""

from __future__ import annotations

import torch
from torch import Tensor

from handful.errors import ShapeError
from handful.solvers.checks import (
    common_batch,
    inspect,
    require_finite,
    require_gram,
    require_labels,
    require_positive,
    require_steps,
    require_symmetric,
)
from handful.solvers.kernels import gram
from handful.solvers.linear import add_diagonal, rounding, solve, symmetric
from handful.solvers.precision import as_tensor, no_autocast, recast, result_dtype, system_dtype

SATURATION = 60.0
"""Weights and working responses are computed as if no logit were larger: exp(-60) moves no float64 solution, and keeps
every power of it that a gradient needs far from denormals."""


def logistic_dual(K: Tensor, y: Tensor, lam: float | Tensor, steps: int) -> Tensor:
    """Logistic regression in the dual: `steps` of eq. 7 in its Woodbury form, from 0; w = X^T a, logits are K(q, x) a.

    Minimises sum_i log(1 + exp(-t_i x_i.w)) + lam / 2 |w|^2 with t = 2 y - 1, for labels y in {0, 1} (eq. 7 with -1
    and 1, as printed, is another problem). K is (..., n, n). Labels with one dimension less than K, (..., n), are
    one problem a Gram matrix -> a (..., n); with as many or more, (..., n, o), one problem a column, all solved in one
    batch from the one Gram matrix -> A (..., n, o). `lam` is a number or broadcasts over the leading dimensions.

    With s = sigma(eta) sigma(-eta) and z = eta + t / sigma(t eta) a step is a = R (R K R + lam I)^-1 R z, where R is
    diag(sqrt(s)): the same algebra as the paper's, without its division by a vanishing s.
    """
    require_gram(K)
    require_steps(steps)
    Y = _columns(K, y)
    lam = as_tensor(lam, K)
    common_batch(K=K.shape[:-2], y=Y.shape[:-2], lam=lam.shape)
    inspect(_require_problem, K, Y, lam)
    work = system_dtype(K.device)
    with no_autocast(K.device):
        t = (2 * Y.to(work) - 1).mT  # (..., o, n)
        a = _iterate_dual(
            symmetric(recast(K, work)).unsqueeze(-3), t, lam.to(work)[..., None, None], steps, rounding(K)
        )
        A = recast(a, result_dtype(K)).mT
    return A.squeeze(-1) if _is_vector(K, y) else A


def logistic(X: Tensor, y: Tensor, lam: float | Tensor, steps: int) -> Tensor:
    """Logistic regression by `steps` of eq. 7, through the smaller system: the dual if n <= e, else the primal.

    X (..., n, e) with labels y in {0, 1} as in `logistic_dual` -> w (..., e), or W (..., e, o) for a matrix of labels.
    """
    if X.ndim < 2 or 0 in X.shape[-2:]:
        raise ShapeError(f"X must have shape (..., n, e) with n, e >= 1, but got {tuple(X.shape)}.")
    Y = _columns(X, y)
    if X.shape[-2] <= X.shape[-1]:
        A = logistic_dual(gram(X), Y, lam, steps)
        with no_autocast(X.device):
            W = recast(X, A.dtype).mT @ A
    else:
        W = _logistic_primal(X, Y, lam, steps)
    return W.squeeze(-1) if _is_vector(X, y) else W


def _iterate_dual(K: Tensor, t: Tensor, lam: Tensor, steps: int, eps: float) -> Tensor:
    eta = torch.zeros_like(t)
    for step in range(steps):
        r, rz = _weights(eta, t)
        S = add_diagonal(r.unsqueeze(-1) * K * r.unsqueeze(-2), lam)
        a = r * solve(S, rz.unsqueeze(-1), eps).squeeze(-1)  # (..., o, n)
        if step + 1 < steps:
            eta = (K @ a.unsqueeze(-1)).squeeze(-1)
    return a


def _logistic_primal(X: Tensor, Y: Tensor, lam: float | Tensor, steps: int) -> Tensor:
    """Eq. 7 as printed but for X^T S z = X^T (s eta + t sigma(-t eta)), which divides by nothing."""
    require_steps(steps)
    lam = as_tensor(lam, X)
    common_batch(X=X.shape[:-2], y=Y.shape[:-2], lam=lam.shape)
    inspect(_require_samples, X, Y, lam)
    work = system_dtype(X.device)
    with no_autocast(X.device):
        t = (2 * Y.to(work) - 1).mT  # (..., o, n)
        features = recast(X, work).unsqueeze(-3)  # (..., 1, n, e)
        eta = torch.zeros_like(t)
        for _ in range(steps):
            s, sz = _weighted_response(eta, t)
            S = add_diagonal(
                symmetric(features.mT @ (s.unsqueeze(-1) * features)), lam.to(work)[..., None, None]
            )  # (..., o, e, e)
            w = solve(S, features.mT @ sz.unsqueeze(-1), rounding(X))  # (..., o, e, 1)
            eta = (features @ w).squeeze(-1)
        return recast(w.squeeze(-1), result_dtype(X)).mT


def _weights(eta: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """sqrt(s) = 1 / (2 cosh(eta / 2)) and sqrt(s) z = sqrt(s) eta + t exp(-t eta / 2)."""
    held = eta.clamp(-SATURATION, SATURATION) / 2
    r = 0.5 / torch.cosh(held)
    return r, r * eta + t * torch.exp(-t * held)


def _weighted_response(eta: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """s and s z = s eta + t sigma(-t eta)."""
    held = eta.clamp(-SATURATION, SATURATION)
    s = torch.sigmoid(held) * torch.sigmoid(-held)
    return s, s * eta + t * torch.sigmoid(-t * held)


def _is_vector(K: Tensor, y: Tensor) -> bool:
    return y.ndim in {1, K.ndim - 1}


def _columns(K: Tensor, y: Tensor) -> Tensor:
    """The labels as a matrix (..., n, o) with at least the dimensions of K (or X); a vector is its one column."""
    n, lead = K.shape[-2], tuple(K.shape[:-2])
    Y = y.unsqueeze(-1) if _is_vector(K, y) else y
    if Y.ndim < 2 or Y.shape[-2] != n or Y.shape[-1] == 0 or (y.ndim < K.ndim - 1 and y.ndim != 1):
        raise ShapeError(
            f"For {n} samples and leading dimensions {lead}, labels have shape {(*lead, n)} for one problem each, "
            f"or {(*lead, n, 'o')} for one problem a column, but got {tuple(y.shape)}."
        )
    return Y.reshape((1,) * (K.ndim - Y.ndim) + Y.shape)


def _require_problem(K: Tensor, Y: Tensor, lam: Tensor) -> None:
    require_positive("lam", lam)
    require_finite("K (inner products of the features)", K)
    require_labels(Y)
    require_symmetric(K)


def _require_samples(X: Tensor, Y: Tensor, lam: Tensor) -> None:
    require_positive("lam", lam)
    require_finite("X (the features)", X)
    require_labels(Y)
