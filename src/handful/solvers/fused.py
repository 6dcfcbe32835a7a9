"""Ridge regression from features to weights as one operation, with a backward that spares the features.

Forwards, S = X X^T + lam I, A = S^-1 Y and W = X^T A. Backwards, with G the gradient of W and C = S^-1 X G,

    dX = A (G - X^T C)^T - C W^T,      dY = C,      dlam = -sum(A * C).

So dX is one product of n x 2o with 2o x e, and no n x n gradient is multiplied with X. All long matrices are kept as
rows of length e, the layout in which products with them run fastest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from handful.solvers.checks import require_system
from handful.solvers.kernels import gram
from handful.solvers.linear import add_diagonal, cholesky, rounding, solve_factorised, symmetric
from handful.solvers.precision import no_autocast, recast


def fused_ridge(X: Tensor, Y: Tensor, lam: Tensor) -> Tensor:
    """W (..., e, o) for X (..., n, e), and Y (..., n, o) and lam (...) in the dtype of the system; no broadcasting."""
    Wt: Tensor = _FusedRidge.apply(X, Y, lam)[0]  # type: ignore[no-untyped-call]
    return Wt.mT


class _FusedRidge(torch.autograd.Function):
    @staticmethod
    def forward(X: Tensor, Y: Tensor, lam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        with no_autocast(X.device):
            K = X @ X.mT
            require_system(K, Y, lam)
            L = cholesky(_system(K, lam), rounding(X))
            A = torch.cholesky_solve(Y, L)
            return recast(A, X.dtype).mT @ X, A, L

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if G is None:
            return None, None, None
        X, Y, lam, Wt, A, L = ctx.saved_tensors
        with no_autocast(X.device):
            XG = recast(X @ G.mT, Y.dtype)
            if torch.is_grad_enabled():
                S = _system(gram(X), lam)
                A, C = solve_factorised(S, L, Y), solve_factorised(S, L, XG)
                Wt = recast(A, X.dtype).mT @ X
            else:
                C = torch.cholesky_solve(XG, L)
            long_A, long_C = recast(A, X.dtype), recast(C, X.dtype)
            across = torch.cat([G - long_C.mT @ X, Wt], -2)  # (..., 2o, e)
            return torch.cat([long_A, -long_C], -1) @ across, C, -(A * C).sum((-2, -1))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        X, Y, lam = (
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs, in_dims, strict=True)
        )
        return _FusedRidge.apply(X, Y, lam), (0, 0, 0)  # type: ignore[no-untyped-call]


def _system(K: Tensor, lam: Tensor) -> Tensor:
    return add_diagonal(symmetric(recast(K, lam.dtype)), lam.unsqueeze(-1))
