"""The steps of eq. 7 in the dual as one differentiable operation with a backward of its own.

In margins m = t eta, with s = sigma(m) sigma(-m) and R = diag(t sqrt(s)), a step reads

    u = S^-1 q   with   S = R K R + lam I   and   q = sqrt(s) (m + 1 / sigma(m)),      a = R u,      m = t K a.

Backwards, for a gradient g of a:  v = S^-1 R g  by the same factor,  c = R v,  and then

    dK = -c a^T,    dlam = -u.v,    deta = c (1 - exp(-m) - 2 lam t a sinh(m)),

where deta goes on to the step before. At the solution lam a = t sigma(-m), so that deta is 0: the last step alone gives
the whole gradient.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from handful.solvers._linear import add_diagonal, cholesky, factorise, solve_factorised
from handful.solvers._operation import Operation

SATURATION = 60.0
"""Weights and working responses are computed as if no logit were larger: exp(-60) moves no float64 solution, and keeps
every power of it that a gradient needs far from denormals."""


def iterate(K: Tensor, t: Tensor, lam: Tensor, steps: int, gradient: str, eps: float) -> Tensor:
    """Steps from 0 for symmetric K (..., n, n), signs t (..., o, n), lam (...) -> a (..., o, n); no broadcasting."""
    keep = gradient == "unrolled" and torch.is_grad_enabled()
    a: Tensor = _Iterate.apply(K, t, lam, steps, gradient, keep, eps)[0]
    return a


class _Iterate(Operation):
    """Returns a, and for the backward E = exp(-m / 2) and u of all steps (..., steps, o, n), and the factors."""

    @staticmethod
    def forward(
        K: Tensor, t: Tensor, lam: Tensor, steps: int, gradient: str, keep: bool, eps: float
    ) -> tuple[Tensor, ...]:
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        m = torch.zeros_like(t)
        for step in range(steps):
            E, r, q = weights(m, t)
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
            grads = _implicit(K, t, lam, a, grad, ctx.eps)
        elif torch.is_grad_enabled():
            grads = torch.func.vjp(lambda K, lam: _plain(K, t, lam, ctx.steps, ctx.gradient, ctx.eps), K, lam)[1](grad)
        else:
            E, u, *L = history
            grads = _backward(K, t, lam, E, u, L, grad)
        return grads[0], None, grads[1], None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        K, t, lam = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs[:3], in_dims[:3], strict=True)
        )
        outputs = _Iterate.apply(K, t, lam, *inputs[3:])
        return outputs, (0,) * len(outputs)


def _backward(
    K: Tensor, t: Tensor, lam: Tensor, E: Tensor, u: Tensor, L: list[Tensor], grad: Tensor
) -> tuple[Tensor, Tensor]:
    """All that does not depend on the step behind is done for all steps at once."""
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


def _implicit(K: Tensor, t: Tensor, lam: Tensor, a: Tensor, grad: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The gradient of the solution, where lam a = t sigma(-t K a), by operations that can be differentiated again."""
    _, r, _ = weights(t * (a @ K), t)
    S = _system(K, r, lam)
    v = solve_factorised(S, factorise(S, eps), (r * grad).unsqueeze(-1)).squeeze(-1)
    return -(r * v).mT @ a, -(v * a / r).sum((-2, -1))


def _plain(K: Tensor, t: Tensor, lam: Tensor, steps: int, gradient: str, eps: float) -> Tensor:
    """The same steps by operations that autograd knows, for derivatives of the gradient."""
    m = torch.zeros_like(t)
    for _ in range(steps):
        _, r, q = weights(m if gradient == "unrolled" else m.detach(), t)
        S = _system(K, r, lam)
        a = r * solve_factorised(S, factorise(S, eps), q.unsqueeze(-1)).squeeze(-1)
        m = t * (a @ K)
    return a


def _system(K: Tensor, r: Tensor, lam: Tensor) -> Tensor:
    return add_diagonal(r.unsqueeze(-1) * K.unsqueeze(-3) * r.unsqueeze(-2), lam[..., None, None])


def weights(m: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E = exp(-m / 2), t sqrt(s) = t E / (1 + E^2), and sqrt(s) (m + 1 / sigma(m)) = sqrt(s) m + E."""
    E = torch.exp(m.clamp(-SATURATION, SATURATION) * -0.5)
    root = E / (1 + E * E)
    return E, t * root, root * m + E


def _free(square: Tensor) -> Tensor:
    """Where the clamp of the margins, which is in exp(-m) here, lets a gradient through."""
    edge = math.exp(SATURATION) * (1 - 1e-9)
    return (square > 1 / edge) & (square < edge)
