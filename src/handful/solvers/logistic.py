"""Logistic regression by iteratively reweighted least squares (eq. 7), in a form that is safe when it saturates."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor

from handful.errors import ShapeError
from handful.solvers._checks import (
    common_batch,
    inspect,
    require_choice,
    require_finite,
    require_gram,
    require_labels,
    require_positive,
    require_steps,
    require_symmetric,
)
from handful.solvers._irls import SATURATION, iterate
from handful.solvers._linear import add_diagonal, rounding, solve, symmetric
from handful.solvers._precision import as_tensor, no_autocast, recast, result_dtype, system_dtype
from handful.solvers.kernels import dual_weights, gram

Gradient = Literal["unrolled", "last_step", "implicit"]
"""How an iterative solver is differentiated.

`unrolled` goes through all steps: the gradient of what was computed, converged or not. `last_step` goes through the
last step only, and `implicit` through the equation that the solution satisfies, taken at the result: both are exact at
convergence, and need memory that does not grow with the number of steps. `last_step` costs least, one solve with a
factor that is there; `implicit` factorises once more and is as accurate as one more step of `last_step` would be.
"""


def logistic_dual(K: Tensor, y: Tensor, lam: float | Tensor, steps: int, gradient: Gradient = "unrolled") -> Tensor:
    """Logistic regression in the dual: `steps` of eq. 7 in its Woodbury form, from 0; w = X^T a, logits are K(q, x) a.

    Minimises sum_i log(1 + exp(-t_i x_i.w)) + lam / 2 |w|^2 with t = 2 y - 1, for labels y in {0, 1} (eq. 7 with -1
    and 1, as printed, is another problem). K is (..., n, n). Labels with one dimension less than K, (..., n), are
    one problem a Gram matrix -> a (..., n); with as many or more, (..., n, o), one problem a column, all solved in one
    batch from the one Gram matrix -> A (..., n, o). `lam` is a number or broadcasts over the leading dimensions.

    With s = sigma(eta) sigma(-eta) and z = eta + t / sigma(t eta) a step is a = R (R K R + lam I)^-1 R z, where R is
    diag(sqrt(s)): the same algebra as the paper's, without its division by a vanishing s. Steps are full, as in the
    paper; where more samples than features of very different size keep them from converging, `softmax_dual` with two
    classes and 2 lam solves the same problem with steps that are halved until the objective falls.
    """
    require_gram(K)
    require_steps(steps)
    require_choice("gradient", gradient, get_args(Gradient))
    Y = _columns(K, y)
    lam = as_tensor(lam, K)
    batch = common_batch(K=K.shape[:-2], y=Y.shape[:-2], lam=lam.shape)
    inspect(_require_problem, K, Y, lam)
    work, n, o = system_dtype(K.device), K.shape[-1], Y.shape[-1]
    with no_autocast(K.device):
        t = (2 * Y.to(work) - 1).mT.expand(*batch, o, n)
        S = symmetric(recast(K, work)).expand(*batch, n, n)
        A = recast(iterate(S, t, lam.to(work).expand(batch), steps, gradient, rounding(K)), result_dtype(K)).mT
    return A.squeeze(-1) if _is_vector(K, y) else A


def logistic(X: Tensor, y: Tensor, lam: float | Tensor, steps: int, gradient: Gradient = "unrolled") -> Tensor:
    """Logistic regression by `steps` of eq. 7, through the smaller system: the dual if n <= e, else the primal.

    X (..., n, e) with labels y in {0, 1} as in `logistic_dual` -> w (..., e), or W (..., e, o) for a matrix of labels.
    """
    if X.ndim < 2 or 0 in X.shape[-2:]:
        raise ShapeError(f"X must have shape (..., n, e) with n, e >= 1, but got {tuple(X.shape)}.")
    Y = _columns(X, y)
    if X.shape[-2] <= X.shape[-1]:
        W = dual_weights(X, logistic_dual(gram(X), Y, lam, steps, gradient))
    else:
        W = _logistic_primal(X, Y, lam, steps, gradient)
    return W.squeeze(-1) if _is_vector(X, y) else W


def _logistic_primal(X: Tensor, Y: Tensor, lam: float | Tensor, steps: int, gradient: Gradient) -> Tensor:
    """Eq. 7 as printed but for X^T S z = X^T (s eta + t sigma(-t eta)), which divides by nothing."""
    require_steps(steps)
    require_choice("gradient", gradient, get_args(Gradient))
    lam = as_tensor(lam, X)
    common_batch(X=X.shape[:-2], y=Y.shape[:-2], lam=lam.shape)
    inspect(_require_samples, X, Y, lam)
    work = system_dtype(X.device)
    with no_autocast(X.device):
        t = (2 * Y.to(work) - 1).mT  # (..., o, n)
        features, penalty = recast(X, work).unsqueeze(-3), lam.to(work)[..., None, None]
        eta = torch.zeros_like(t)
        with nullcontext() if gradient == "unrolled" else torch.no_grad():
            for _ in range(steps - 1 if gradient != "implicit" else steps):
                eta = (features @ _primal_step(features, t, penalty, eta, rounding(X))).squeeze(-1)
        w = _primal_step(features, t, penalty, eta, rounding(X))
        return recast(w.squeeze(-1), result_dtype(X)).mT


def _primal_step(X: Tensor, t: Tensor, lam: Tensor, eta: Tensor, eps: float) -> Tensor:
    held = eta.clamp(-SATURATION, SATURATION)
    s = torch.sigmoid(held) * torch.sigmoid(-held)
    sz = s * eta + t * torch.sigmoid(-t * held)
    S = add_diagonal(symmetric(X.mT @ (s.unsqueeze(-1) * X)), lam)  # (..., o, e, e)
    return solve(S, X.mT @ sz.unsqueeze(-1), eps)  # (..., o, e, 1)


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
