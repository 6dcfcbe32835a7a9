"""Logistic regression by iteratively reweighted least squares (eq. 7), in a form that is safe under saturation.

The steps in the dual are one differentiable operation with its own backward pass. In margins m = t eta, with
s = sigma(m) sigma(-m) and R = diag(t sqrt(s)), a step reads

    u = S^-1 q   with   S = R K R + lam I   and   q = sqrt(s) (m + 1 / sigma(m)),      a = R u,      m = t K a.

Backwards, for a gradient g of a:  v = S^-1 R g  by the same factor,  c = R v,  and then

    dK = -c a^T,    dlam = -u.v,    deta = c (1 - exp(-m) - 2 lam t a sinh(m)),

where deta is passed on to the previous step. At the solution lam a = t sigma(-m), so deta is 0 and the last step alone
gives the whole gradient.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, get_args

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
from handful.solvers._linear import add_diagonal, cholesky, factorise, rounding, solve, solve_factorised, symmetric
from handful.solvers._operation import Operation, in_front
from handful.solvers._precision import as_tensor, no_autocast, recast, result_dtype, system_dtype
from handful.solvers.kernels import dual_weights, gram

Gradient = Literal["unrolled", "last_step", "implicit"]
"""How an iterative solver is differentiated.

`unrolled` differentiates all steps: it is the gradient of what was computed, converged or not. `last_step`
differentiates the last step only, and `implicit` the equation that the solution satisfies, evaluated at the result.
Both are exact at convergence, and their memory does not grow with the number of steps. `last_step` is the cheapest, one
solve with an existing factor; `implicit` factorises once more and is as accurate as `last_step` with one more step.
"""

SATURATION = 60.0
"""Logits are clamped to this size in weights and working responses. exp(-60) does not change a float64 solution, and
all of its powers that a gradient needs stay far from denormals."""


def logistic_dual(K: Tensor, y: Tensor, lam: float | Tensor, steps: int, gradient: Gradient = "unrolled") -> Tensor:
    """Logistic regression in the dual: `steps` of eq. 7 in its Woodbury form, from 0; w = X^T a, logits are K(q, x) a.

    Minimises sum_i log(1 + exp(-t_i x_i.w)) + lam / 2 |w|^2 with t = 2 y - 1, for labels y in {0, 1} (eq. 7 as
    printed, with -1 and 1, is a different problem). K is (..., n, n). Labels with one dimension less than K, (..., n),
    are one problem per Gram matrix -> a (..., n). Labels with as many dimensions or more, (..., n, o), are one problem
    per column, all solved in a batch from the same Gram matrix -> A (..., n, o). `lam` is a number or broadcasts over
    the leading dimensions.

    With s = sigma(eta) sigma(-eta) and z = eta + t / sigma(t eta) a step is a = R (R K R + lam I)^-1 R z, where R is
    diag(sqrt(s)): the same algebra as in the paper, but without dividing by an s that can vanish. Steps are full, as
    in the paper. They may not converge if there are more samples than features and features of very different size;
    then `softmax_dual` with two classes and 2 lam solves the same problem, halving steps until the objective falls.
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
        A = recast(_iterate(S, t, lam.to(work).expand(batch), steps, gradient, rounding(K)), result_dtype(K)).mT
    return A.squeeze(-1) if _is_vector(K, y) else A


def logistic(X: Tensor, y: Tensor, lam: float | Tensor, steps: int, gradient: Gradient = "unrolled") -> Tensor:
    """Logistic regression by `steps` of eq. 7, on the smaller system: the dual if n <= e, else the primal.

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
    """Eq. 7 as printed, except that X^T S z is computed as X^T (s eta + t sigma(-t eta)), without a division."""
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
        step = partial(_primal_step, features, t, penalty, eps=rounding(X))
        with nullcontext() if gradient == "unrolled" else torch.no_grad():
            for _ in range(steps - 1):
                eta = (features @ step(eta)).squeeze(-1)
        if gradient == "implicit":
            with torch.no_grad():
                reached = step(eta)
            further = step((features @ reached).squeeze(-1).detach())
            w = reached + (further - further.detach())  # the value after `steps`, with the gradient of one more
        else:
            w = step(eta)
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
    """The labels as a matrix (..., n, o) with at least as many dimensions as K (or X); a vector becomes one column."""
    n, lead = K.shape[-2], tuple(K.shape[:-2])
    Y = y.unsqueeze(-1) if _is_vector(K, y) else y
    if Y.ndim < 2 or Y.shape[-2] != n or Y.shape[-1] == 0 or (y.ndim < K.ndim - 1 and y.ndim != 1):
        raise ShapeError(
            f"For {n} samples and leading dimensions {lead}, labels must have shape {(*lead, n)} for one problem "
            f"each, or {(*lead, n, 'o')} for one problem per column, but got {tuple(y.shape)}."
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


def _iterate(K: Tensor, t: Tensor, lam: Tensor, steps: int, gradient: str, eps: float) -> Tensor:
    """Steps from 0 for symmetric K (..., n, n), signs t (..., o, n), lam (...) -> a (..., o, n); no broadcasting."""
    keep = gradient == "unrolled" and torch.is_grad_enabled()
    a: Tensor = _Iterate.apply(K, t, lam, steps, gradient, keep, eps)[0]
    return a


class _Iterate(Operation):
    """Returns a, and for the backward pass E = exp(-m / 2) and u of all steps (..., steps, o, n), and the factors."""

    @staticmethod
    def forward(
        K: Tensor, t: Tensor, lam: Tensor, steps: int, gradient: str, keep: bool, eps: float
    ) -> tuple[Tensor, ...]:
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        m = torch.zeros_like(t)
        for step in range(steps):
            E, r, q = _weights(m, t)
            L = cholesky(_system(K, r, lam), eps)
            u = torch.cholesky_solve(q.unsqueeze(-1), L).squeeze(-1)
            a = r * u
            kept = [*kept, (E, u, L)] if keep else [(E, u, L)]
            m = t * (a @ K) if step + 1 < steps else m
        return a, torch.stack([k[0] for k in kept], -3), torch.stack([k[1] for k in kept], -3), *(k[2] for k in kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        K, t, lam, ctx.steps, ctx.gradient, _, ctx.eps = inputs
        a, *history = output
        ctx.mark_non_differentiable(*history)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(K, t, lam, a, *([] if ctx.gradient == "implicit" else history))

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 7
        K, t, lam, a, *history = ctx.saved_tensors
        if ctx.gradient == "implicit":
            grads = _at_the_solution(K, t, lam, a, grad, ctx.eps)
        elif torch.is_grad_enabled():
            grads = torch.func.vjp(lambda K, lam: _plain(K, t, lam, ctx.steps, ctx.gradient, ctx.eps), K, lam)[1](grad)
        else:
            E, u, *L = history
            grads = _backward(K, t, lam, E, u, L, grad)
        return grads[0], None, grads[1], None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        K, t, lam = in_front(info, in_dims[:3], inputs[:3])
        outputs = _Iterate.apply(K, t, lam, *inputs[3:])
        return outputs, (0,) * len(outputs)


def _backward(
    K: Tensor, t: Tensor, lam: Tensor, E: Tensor, u: Tensor, L: list[Tensor], grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Whatever does not depend on the previous step is computed for all steps at once."""
    square = E * E
    b = E / (1 + square) * u  # t a
    bend = 1 - _free(square) * (square + lam[..., None, None, None] * b * (1 / square - square))
    r = t.unsqueeze(-3) * E / (1 + square)
    rows, vs = [], []
    onward = torch.zeros_like(grad)
    for step in range(len(L) - 1, -1, -1):
        v = torch.cholesky_solve((r[..., step, :, :] * grad).unsqueeze(-1), L[step]).squeeze(-1)
        c = r[..., step, :, :] * v
        rows.append(onward - c)
        vs.append(v)
        if step:
            onward = c * bend[..., step, :, :]
            grad = onward @ K
    left, right = torch.stack(rows[::-1], -3), t.unsqueeze(-3) * b
    grad_lam = -(u * torch.stack(vs[::-1], -3)).sum((-3, -2, -1))
    return left.flatten(-3, -2).mT @ right.flatten(-3, -2), grad_lam


def _at_the_solution(K: Tensor, t: Tensor, lam: Tensor, a: Tensor, grad: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradient at the solution, where lam a = t sigma(-t K a), using differentiable operations."""
    _, r, _ = _weights(t * (a @ K), t)
    S = _system(K, r, lam)
    v = solve_factorised(S, factorise(S, eps), (r * grad).unsqueeze(-1)).squeeze(-1)
    return -(r * v).mT @ a, -(v * a / r).sum((-2, -1))


def _plain(K: Tensor, t: Tensor, lam: Tensor, steps: int, gradient: str, eps: float) -> Tensor:
    """The same steps as plain autograd operations, for derivatives of the gradient."""
    m = torch.zeros_like(t)
    for _ in range(steps):
        _, r, q = _weights(m if gradient == "unrolled" else m.detach(), t)
        S = _system(K, r, lam)
        a = r * solve_factorised(S, factorise(S, eps), q.unsqueeze(-1)).squeeze(-1)
        m = t * (a @ K)
    return a


def _system(K: Tensor, r: Tensor, lam: Tensor) -> Tensor:
    return add_diagonal(r.unsqueeze(-1) * K.unsqueeze(-3) * r.unsqueeze(-2), lam[..., None, None])


def _weights(m: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E = exp(-m / 2), t sqrt(s) = t E / (1 + E^2), and sqrt(s) (m + 1 / sigma(m)) = sqrt(s) m + E."""
    E = torch.exp(m.clamp(-SATURATION, SATURATION) * -0.5)
    root = E / (1 + E * E)
    return E, t * root, root * m + E


def _free(square: Tensor) -> Tensor:
    """Where the clamp of the margins, given as exp(-m), lets the gradient through."""
    edge = math.exp(SATURATION) * (1 - 1e-9)
    return (square > 1 / edge) & (square < edge)
