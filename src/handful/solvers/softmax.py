"""Multinomial logistic (softmax) regression by Newton's method in the dual, all classes coupled."""

from __future__ import annotations

from functools import partial
from typing import get_args

import torch
from torch import Tensor

from handful.solvers._checks import (
    common_batch,
    inspect,
    require_choice,
    require_classes,
    require_steps,
    require_targets,
)
from handful.solvers._coupled import couple
from handful.solvers._linear import rounding, symmetric
from handful.solvers._operation import implicit
from handful.solvers._precision import as_tensor, no_autocast, recast, result_dtype, system_dtype
from handful.solvers.logistic import SATURATION, Gradient

HALVINGS = 12
"""The most halvings of a Newton step; usually there are none, or a few if the first steps overshoot."""

ROUNDING = 500
"""Rounding errors of the objective's terms that a step may lose and still count as a decrease."""

SUFFICIENT = 1e-4
"""The share of the decrease predicted by the slope that a step must achieve (Armijo, 1966)."""


def softmax_dual(K: Tensor, Y: Tensor, lam: float | Tensor, steps: int, gradient: Gradient = "unrolled") -> Tensor:
    """Softmax regression in the dual: `steps` of Newton's method from 0; W = X^T A, and logits are K(q, x) A.

    Minimises sum_i (log sum_c exp(x_i.w_c) - x_i.w_{y_i}) + lam / 2 |W|^2, where scikit-learn's LogisticRegression has
    C = 1 / lam. K (..., n, n), one-hot Y (..., n, o) -> A (..., n, o), which satisfies lam A = Y - softmax(K A) at
    convergence. Steps are halved until the objective falls, so it always converges.

    With p_c the probabilities of class c, a step solves (K + lam diag(p_c)^-1) A_c = eta_c + y_c / p_c + u for all
    classes at once, coupled by sum_c A_c = 0: `handful.solvers._coupled`. The cost is o systems of size n per step.
    """
    require_targets(K, Y)
    require_steps(steps)
    require_choice("gradient", gradient, get_args(Gradient))
    lam = as_tensor(lam, K)
    batch = common_batch(K=K.shape[:-2], Y=Y.shape[:-2], lam=lam.shape)
    inspect(partial(require_classes, "lam"), K, Y, lam)
    work, n, o = system_dtype(K.device), K.shape[-1], Y.shape[-1]
    with no_autocast(K.device):
        S = symmetric(recast(K, work)).expand(*batch, n, n)
        y = Y.to(work).mT.expand(*batch, o, n)
        A = _solve(S, y, lam.to(work).expand(batch), steps, gradient, rounding(K))
        return recast(A, result_dtype(K)).mT


def _solve(K: Tensor, y: Tensor, lam: Tensor, steps: int, gradient: Gradient, eps: float) -> Tensor:
    if gradient == "implicit":
        return implicit(partial(_iterate, steps=steps, eps=eps), partial(_adjoint, eps=eps), K, y, lam)
    if gradient == "unrolled" or steps == 1:
        return _iterate(K, y, lam, steps, eps)
    with torch.no_grad():
        A = _iterate(K, y, lam, steps - 1, eps)
    full, share = _newton(K, y, lam, A, A @ K.detach(), eps)
    return full - ((1 - share) * (full - A)).detach()  # the gradient of a full step, even if the last one was halved


def _iterate(K: Tensor, y: Tensor, lam: Tensor, steps: int, eps: float) -> Tensor:
    A = eta = torch.zeros_like(y)
    for _ in range(steps):
        A = _step(K, y, lam, A, eta, eps)
        eta = A @ K
    return A


def _step(K: Tensor, y: Tensor, lam: Tensor, A: Tensor, eta: Tensor, eps: float) -> Tensor:
    full, share = _newton(K, y, lam, A, eta, eps)
    return A + share * (full - A)


def _newton(K: Tensor, y: Tensor, lam: Tensor, A: Tensor, eta: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Where a full step from A leads, and the share of it to take."""
    log_p = torch.log_softmax(eta, -2)
    r = torch.exp(log_p.clamp_min(-SATURATION) / 2)
    full = r * couple(K, r, lam, eps).solve(r * log_p + y / r)
    with torch.no_grad():
        return full, _share(y, lam, A, eta, full, full @ K)


def _share(y: Tensor, lam: Tensor, A: Tensor, eta: Tensor, full: Tensor, full_eta: Tensor) -> Tensor:
    """The largest fraction 1, 1/2, 1/4, ... of the step from A to `full` that lowers the objective: (..., 1, 1)."""
    shares = 0.5 ** torch.arange(HALVINGS + 1, dtype=y.dtype, device=y.device).reshape(-1, *[1] * y.ndim)

    def terms(A: Tensor, eta: Tensor) -> Tensor:
        """The terms of the objective, (..., 3 n)."""
        return torch.cat([torch.logsumexp(eta, -2), -(y * eta).sum(-2), lam[..., None] / 2 * (A * eta).sum(-2)], -1)

    before = terms(A, eta)
    residual = torch.softmax(eta, -2) - y + lam[..., None, None] * A
    slope = (residual * (full_eta - eta)).sum((-2, -1))
    reached = terms(A + shares * (full - A), eta + shares * (full_eta - eta)).sum(-1)
    # large terms cancel, so their rounding error exceeds that of the sum
    rounding_error = ROUNDING * torch.finfo(y.dtype).eps * (1 + before.abs().sum(-1))
    enough = reached <= before.sum(-1) + SUFFICIENT * shares[..., 0, 0] * slope + rounding_error
    enough[-1] = True
    halvings = enough.to(torch.uint8).argmax(0)
    return (0.5 ** halvings.to(y.dtype))[..., None, None]


def _adjoint(A: Tensor, grad: Tensor, K: Tensor, y: Tensor, lam: Tensor, eps: float) -> tuple[Tensor, None, Tensor]:
    """From lam A = Y - P(K A): with C the solution of the coupled system for `grad`, dK = -C^T A, dlam = -C.(A / p)."""
    r = torch.exp(torch.log_softmax(A @ K, -2).clamp_min(-SATURATION) / 2)
    V = couple(K, r, lam, eps).solve(r * grad)
    return -(r * V).mT @ A, None, -(V * A / r).sum((-2, -1))
