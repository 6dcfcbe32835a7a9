"""Ridge regression from features to weights or predictions as one operation, with a backward that spares the features.

Forwards, S = X X^T + lam I, A = S^-1 Y and W = X^T A. Backwards, with G the gradient of W and C = S^-1 X G,

    dX = A (G - X^T C)^T - C W^T,      dY = C,      dlam = -sum(A * C).

So dX is one product of n x 2o with 2o x e, and no n x n gradient is multiplied with X. Predictions Q W with gradient H
add dQ = H W^T and G = Q^T H. All long matrices are kept as rows of length e, the layout in which products with them
run fastest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from handful.solvers._checks import require_positive, require_system
from handful.solvers._linear import add_diagonal, cholesky, rounding, solve_factorised, symmetric
from handful.solvers._operation import Operation
from handful.solvers._precision import no_autocast, recast, system_dtype
from handful.solvers.kernels import gram


def fused_ridge(X: Tensor, Y: Tensor, lam: Tensor) -> Tensor:
    """W (..., e, o) for X (..., n, e), Y (..., n, o) and lam (...), of equal leading dimensions, each in its dtype."""
    Wt: Tensor = _Weights.apply(X, Y, lam)[0]
    return Wt.mT


def fused_predictions(X: Tensor, Y: Tensor, lam: Tensor, Q: Tensor) -> Tensor:
    """Q W (..., q, o) for the same and Q (..., q, e) in the dtype of X."""
    predictions: Tensor = _Predictions.apply(X, Y, lam, Q)[0]
    return predictions


class _Weights(Operation):
    @staticmethod
    def forward(X: Tensor, Y: Tensor, lam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with no_autocast(X.device):
            return _solve(X, Y, lam)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None
        X, Y, lam, Wt, A, L = ctx.saved_tensors
        with no_autocast(X.device):
            A, Wt = _differentiable(X, Y, lam, L) if torch.is_grad_enabled() else (A, Wt)
            return _gradients(ctx.needs_input_grad, X, Y, lam, Wt, A, L, grad)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _Weights.apply(*_batched(info, in_dims, inputs)), (0, 0, 0)


class _Predictions(Operation):
    @staticmethod
    def forward(X: Tensor, Y: Tensor, lam: Tensor, Q: Tensor) -> tuple[Tensor, ...]:
        with no_autocast(X.device):
            Wt, A, L = _solve(X, Y, lam)
            return Q @ Wt.mT, Wt, A, L

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return None, None, None, None
        X, Y, lam, Q, Wt, A, L = ctx.saved_tensors
        with no_autocast(X.device):
            A, Wt = _differentiable(X, Y, lam, L) if torch.is_grad_enabled() else (A, Wt)
            grads = _gradients(ctx.needs_input_grad, X, Y, lam, Wt, A, L, grad.mT @ Q)
            return *grads, grad @ Wt if ctx.needs_input_grad[3] else None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        return _Predictions.apply(*_batched(info, in_dims, inputs)), (0, 0, 0, 0)


def _solve(X: Tensor, Y: Tensor, lam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """W^T, A and the factor of S."""
    work = system_dtype(X.device)
    require_positive("lam", lam)
    K = X @ X.mT
    S = K.to(work, copy=True)
    S.diagonal(dim1=-2, dim2=-1).add_(lam.item() if lam.ndim == 0 else lam.to(work).unsqueeze(-1))
    L = cholesky(S, rounding(X), lambda: require_system(K, Y, lam))
    A = torch.cholesky_solve(Y.to(work), L)
    if not (math.isfinite(K.sum().item()) and math.isfinite(A.sum().item())):  # a bad Y makes a bad A
        require_system(K, Y, lam)
    return recast(A, X.dtype).mT @ X, A, L


def _differentiable(X: Tensor, Y: Tensor, lam: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """A and W^T once more, as functions of the inputs, for derivatives of the gradient."""
    A = solve_factorised(_system(X, lam), L, recast(Y, L.dtype))
    return A, recast(A, X.dtype).mT @ X


def _gradients(
    needed: tuple[bool, ...], X: Tensor, Y: Tensor, lam: Tensor, Wt: Tensor, A: Tensor, L: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """dX, dY and dlam from the gradient of W^T (..., o, e)."""
    right = recast(X @ grad.mT, L.dtype).neg()
    D = solve_factorised(_system(X, lam), L, right) if torch.is_grad_enabled() else torch.cholesky_solve(right, L)  # -C
    both = recast(torch.cat([A, D], -1), X.dtype)  # (..., n, 2o)
    across = torch.cat([grad + both[..., A.shape[-1] :].mT @ X, Wt], -2)  # (..., 2o, e)
    grad_Y = recast(-D, Y.dtype) if needed[1] else None
    grad_lam = (A * D).sum((-2, -1)).to(lam.dtype) if needed[2] else None
    return both @ across, grad_Y, grad_lam


def _system(X: Tensor, lam: Tensor) -> Tensor:
    work = system_dtype(X.device)
    return add_diagonal(symmetric(recast(gram(X), work)), lam.to(work).unsqueeze(-1))


def _batched(info: Any, in_dims: tuple[int | None, ...], inputs: tuple[Tensor, ...]) -> Iterator[Tensor]:
    """The inputs with the dimension of a vmap in front."""
    for tensor, dim in zip(inputs, in_dims, strict=True):
        yield tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
