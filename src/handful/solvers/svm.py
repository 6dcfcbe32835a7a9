"""The multi-class support-vector machine of Crammer and Singer (2001) in the dual, by an interior-point method."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

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
from handful.solvers._coupled import Coupled, couple
from handful.solvers._linear import add_diagonal, rounding, symmetric
from handful.solvers._operation import checking, implicit
from handful.solvers._precision import as_tensor, no_autocast, recast, result_dtype, system_dtype

BARRIER = 1e-11
"""The complementarity at which the method stops, for kernels of unit size."""

HOLD_STEPS, HOLD_GRADIENT = 1e-6, 1e-9
"""Added to the diagonal of kernels of unit size before factorising, so that a singular K costs no accuracy. In a step
it slows convergence but does not change the result; it does change the gradient, so it is smaller there."""

TO_THE_WALL = 0.995
"""The largest share of the distance to the nearest constraint that a step may cover."""


def svm_dual(
    K: Tensor,
    Y: Tensor,
    C: float | Tensor,
    steps: int = 30,
    gradient: Literal["implicit", "unrolled"] = "implicit",
) -> Tensor:
    """The multi-class support-vector machine in the dual; W = X^T A, and logits are K(q, x) A.

    Minimises |W|^2 / 2 + C sum_i max_c (1 - [c = y_i] + x_i.w_c - x_i.w_{y_i}), the learner of MetaOptNet (Lee et al.,
    2019, eq. 6) and scikit-learn's LinearSVC with multi_class="crammer_singer", through its dual

        min_A  sum_c A_c^T K A_c / 2 - sum_i A_{i, y_i}   with   A <= C Y   and   sum_c A_c = 0.

    K (..., n, n), one-hot Y (..., n, o), C a number or a tensor that broadcasts over the leading dimensions ->
    A (..., n, o). A primal-dual method with Mehrotra's predictor and corrector (1992) takes at most `steps` steps;
    15 are usually enough, but with more samples than features, classes that overlap and C times the mean |x|^2 above
    1e4, none of them may be near the solution. Each solves the coupled system of `_coupled`. The gradient comes from
    the optimality conditions, or from all steps, with their lengths and targets treated as constants.
    """
    require_targets(K, Y)
    require_steps(steps)
    require_choice("gradient", gradient, get_args(Literal["implicit", "unrolled"]))
    C = as_tensor(C, K)
    batch = common_batch(K=K.shape[:-2], Y=Y.shape[:-2], C=C.shape)
    inspect(partial(require_classes, "C"), K, Y, C)
    work, n, o = system_dtype(K.device), K.shape[-1], Y.shape[-1]
    with no_autocast(K.device):
        # scaled to a kernel of unit size, K / size, the problem has the solution size * A and the bound size * C
        size = K.detach().to(work).diagonal(dim1=-2, dim2=-1).mean(-1)
        size = torch.where(size > 0, size, 1)  # features that are all 0
        unit = symmetric(recast(K, work)) / size[..., None, None]
        unit = add_diagonal(unit, unit.new_full((1,), n * rounding(K))).expand(*batch, n, n)
        y, bound = Y.to(work).mT.expand(*batch, o, n), (C.to(work) * size).expand(batch)
        if gradient == "implicit":
            A = implicit(partial(_iterate, steps=steps, stop_early=True), _adjoint, unit, y, bound)
        else:
            A = _iterate(unit, y, bound, steps)
        return recast(A / size[..., None, None], result_dtype(K)).mT


def _iterate(K: Tensor, y: Tensor, bound: Tensor, steps: int, stop_early: bool = False) -> Tensor:
    """Follow the central path from a point well inside the constraints down to complementarity BARRIER."""
    scale = bound.clamp_max(1.0)[..., None, None]
    A = scale / 2 * (y - (1 - y) / (y.shape[-2] - 1))
    w = torch.ones_like(A)
    for _ in range(steps):
        dA, dw = _direction(K, y, A, w, bound[..., None, None] * y - A, BARRIER * scale)
        with torch.no_grad():
            s = bound[..., None, None] * y - A
            share = (TO_THE_WALL * _room(s, -dA, w, dw)).clamp_max(1.0)
        A, w = A + share * dA, w + share * dw
        if stop_early and checking() and bool((dA.abs() <= 1e-9 * scale).all()) and bool((share == 1).all()):
            break
    return A


def _direction(K: Tensor, y: Tensor, A: Tensor, w: Tensor, s: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's direction for K A_c - y_c + w_c + nu = 0, sum_c A_c = 0, and s w equal to the predictor's target."""
    system = _factorise(K, (s / w).sqrt(), HOLD_STEPS)
    downhill, excess = y - A @ K, -A.sum(-2)  # the sums are 0 up to rounding, which must not grow
    with torch.no_grad():
        dA = _solve(system, downhill, excess)
        dw = w / s * dA - w
        share = _room(s, -dA, w, dw).clamp_max(1.0)
        mean = (s * w).mean((-2, -1), keepdim=True)
        ahead = ((s - share * dA) * (w + share * dw)).mean((-2, -1), keepdim=True)
        centre = mean * (ahead / mean) ** 3
        # the last steps have no corrector, which would push them off the central path
        push = torch.where(centre > target, centre + dA * dw, target)
    dA = _solve(system, downhill - push / s, excess)
    return dA, push / s - w + w / s * dA


def _factorise(K: Tensor, r: Tensor, hold: float) -> Coupled:
    held = add_diagonal(K, K.new_full((1,), hold))
    return couple(held, r, K.new_ones(K.shape[:-2]), torch.finfo(K.dtype).eps)


def _solve(system: Coupled, z: Tensor, total: Tensor | float = 0.0) -> Tensor:
    return system.r * system.solve(system.r * z, total)


def _room(s: Tensor, ds: Tensor, w: Tensor, dw: Tensor) -> Tensor:
    """The fraction of the step at which the first entry of s or w reaches 0: (..., 1, 1)."""
    shrinking = torch.stack([-ds / s, -dw / w])
    return 1 / shrinking.amax((0, -2, -1), keepdim=True)[0].clamp_min(1e-3)


def _adjoint(A: Tensor, grad: Tensor, K: Tensor, y: Tensor, bound: Tensor) -> tuple[Tensor, None, Tensor]:
    """From K A_c - y_c + target / s_c + nu = 0 with s = bound y - A, whose derivative in A is K + target / s^2."""
    s = bound[..., None, None] * y - A
    target = BARRIER * bound.detach().clamp_max(1.0)[..., None, None]
    C = _solve(_factorise(K, s / target.sqrt(), HOLD_GRADIENT), grad)
    return -C.mT @ A, None, (C * y * target / s.square()).sum((-2, -1))
