"""Ridge regression in closed form: the normal equations, their Woodbury form, and leave-one-out without refitting.

Given features, the dual is one operation with its own backward pass, which avoids large products.
Forwards, S = X X^T + lam I, A = S^-1 Y and W = X^T A. Backwards, with G the gradient of W and C = S^-1 X G,

    dX = A (G - X^T C)^T - C W^T,      dY = C,      dlam = -sum(A * C).

So dX is one product of n x 2o with 2o x e, and no n x n gradient is multiplied with X. Predictions Q W with gradient H
add dQ = H W^T and G = Q^T H. All long matrices are stored as rows of length e, the layout in which products with them
are fastest.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from handful.errors import ShapeError
from handful.solvers._checks import (
    common_batch,
    inspect,
    require_positive,
    require_rows,
    require_system,
    require_targets,
)
from handful.solvers._linear import add_diagonal, cholesky, factorise, rounding, solve, solve_factorised, symmetric
from handful.solvers._operation import Operation, checking, in_front
from handful.solvers._precision import as_tensor, expanded, no_autocast, recast, result_dtype, safe_dtype, system_dtype
from handful.solvers.factor import held_out
from handful.solvers.kernels import cross_gram, diagonal_prior, dual_weights, gram


def ridge(X: Tensor, Y: Tensor, lam: float | Tensor) -> Tensor:
    """The W that minimises |X W - Y|^2 + lam |W|^2, from the smaller system: eq. 5 if n <= e, else eq. 4.

    X (..., n, e), Y (..., n, o) -> W (..., e, o). `lam` is a number, a tensor that broadcasts over the leading
    dimensions, or, with a last dimension of e, one value per feature: the diagonal prior of eq. 8.
    """
    require_rows("X", X, "Y", Y)
    lam = as_tensor(lam, X)
    if not _is_prior(X, Y, lam):
        return _ridge_by_dual(X, Y, lam) if X.shape[-2] <= X.shape[-1] else ridge_primal(X, Y, lam)
    common_batch(X=X.shape[:-2], Y=Y.shape[:-2], lam=lam.shape[:-1])
    if X.shape[-2] > X.shape[-1]:
        return _normal_equations(X, Y, lam)
    inspect(lambda lam: require_positive("lam", lam), lam)
    lam = lam.to(result_dtype(X))
    W = _ridge_by_dual(diagonal_prior(X, lam), Y, lam.new_ones(()))
    return W * lam.rsqrt().unsqueeze(-1)


def ridge_predictions(X: Tensor, Y: Tensor, lam: float | Tensor, Q: Tensor) -> Tensor:
    """Predictions for Q of ridge regression on X and Y, Q X^T (X X^T + lam I)^-1 Y (eq. 5), as one operation.

    If n > e, it solves eq. 4, the smaller system, and multiplies.

    X (..., n, e), Y (..., n, o), Q (..., q, e), lam a number or a tensor that broadcasts over the leading dimensions
    -> (..., q, o). It is cheaper than `ridge` and a product, and differentiable in all four arguments.
    """
    require_rows("X", X, "Y", Y)
    lam = as_tensor(lam, X)
    if Q.ndim < 2 or Q.shape[-1] != X.shape[-1]:
        raise ShapeError(
            f"X (..., n, e) and Q (..., q, e) must agree in e, but got {tuple(X.shape)} and {tuple(Q.shape)}."
        )
    batch = common_batch(X=X.shape[:-2], Y=Y.shape[:-2], lam=lam.shape, Q=Q.shape[:-2])
    dtype = result_dtype(X, Y, Q)
    work = safe_dtype(X, lam, dtype)
    if X.shape[-2] > X.shape[-1]:
        return recast(cross_gram(recast(Q, work), ridge_primal(recast(X, work), Y, lam).mT), dtype)
    X, Q = (expanded(recast(each, work), (*batch, *each.shape[-2:])) for each in (X, Q))
    return recast(_fused_predictions(X, expanded(Y, (*batch, *Y.shape[-2:])), expanded(lam, batch), Q), dtype)


def ridge_primal(X: Tensor, Y: Tensor, lam: float | Tensor) -> Tensor:
    """Ridge regression by the normal equations (eq. 4): W = (X^T X + lam I)^-1 X^T Y, at a cost cubic in e.

    X (..., n, e), Y (..., n, o), lam a number or a tensor that broadcasts over the leading dimensions -> W (..., e, o).
    """
    require_rows("X", X, "Y", Y)
    lam = as_tensor(lam, X)
    common_batch(X=X.shape[:-2], Y=Y.shape[:-2], lam=lam.shape)
    return _normal_equations(X, Y, lam.unsqueeze(-1))


def ridge_dual(K: Tensor, Y: Tensor, lam: float | Tensor) -> Tensor:
    """Ridge regression in the dual (eq. 5): A = (K + lam I)^-1 Y, so that W = X^T A and predictions are K(q, x) A.

    K (..., n, n), Y (..., n, o), lam a number or a tensor that broadcasts over the leading dimensions -> A (..., n, o).
    The cost is cubic in the number of samples and does not depend on the embedding size. `lam` multiplies the sum of
    squares, as in the paper; for the authors' convention, the mean, pass n * lam.
    """
    require_targets(K, Y)
    lam = as_tensor(lam, K)
    common_batch(K=K.shape[:-2], Y=Y.shape[:-2], lam=lam.shape)
    work = system_dtype(K.device)
    inspect(require_system, K, Y, lam)
    with no_autocast(K.device):
        S = add_diagonal(symmetric(recast(K, work)), lam.to(work).unsqueeze(-1))
        return recast(solve(S, recast(Y, work), rounding(K)), result_dtype(K, Y))


def leave_one_out(K: Tensor, Y: Tensor, lam: float | Tensor) -> Tensor:
    """The prediction for each sample by ridge regression on all others, exactly and without refitting.

    The residual of sample i is a_i / [(K + lam I)^-1]_ii with A from eq. 5, so the prediction is Y minus that
    (Rifkin and Lippert, 2007). K (..., n, n), Y (..., n, o) -> (..., n, o), differentiable in K, Y and lam.
    """
    require_targets(K, Y)
    lam = as_tensor(lam, K)
    batch = common_batch(K=K.shape[:-2], Y=Y.shape[:-2], lam=lam.shape)
    work, n, o = system_dtype(K.device), K.shape[-1], Y.shape[-1]
    inspect(require_system, K, Y, lam)
    with no_autocast(K.device):
        S = add_diagonal(symmetric(recast(K, work)), lam.to(work).unsqueeze(-1))
        targets = recast(Y, work).expand(*batch, n, o)
        identity = torch.eye(n, dtype=work, device=K.device).expand(*batch, n, n)
        solved = solve_factorised(S, factorise(S, rounding(K)), torch.cat([targets, identity], -1))
        A, inverse_diagonal = solved[..., :o], solved[..., o:].diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        return recast(held_out(targets, A, inverse_diagonal), result_dtype(K, Y))


def _ridge_by_dual(X: Tensor, Y: Tensor, lam: Tensor) -> Tensor:
    batch = common_batch(X=X.shape[:-2], Y=Y.shape[:-2], lam=lam.shape)
    dtype = result_dtype(X, Y)
    X = recast(X, safe_dtype(X, lam, dtype))
    if batch != X.shape[:-2]:  # one Gram matrix for several problems
        return recast(dual_weights(X, ridge_dual(gram(X), Y, lam)), dtype)
    return recast(_fused_ridge(X, expanded(Y, (*batch, *Y.shape[-2:])), expanded(lam, batch)), dtype)


def _normal_equations(X: Tensor, Y: Tensor, diagonal: Tensor) -> Tensor:
    """(X^T X + diag(diagonal))^-1 X^T Y for a diagonal of shape (..., e) or (..., 1)."""
    dtype, work = result_dtype(X, Y), system_dtype(X.device)
    with no_autocast(X.device):
        safe = safe_dtype(X, diagonal, dtype)
        features, targets = recast(X, safe), recast(Y, safe)
        C, B = gram(features.mT), features.mT @ targets  # (..., e, e), (..., e, o)
        inspect(require_system, C, B, diagonal)
        S = add_diagonal(symmetric(recast(C, work)), diagonal.to(work))
        return recast(solve(S, recast(B, work), rounding(C)), dtype)


def _is_prior(X: Tensor, Y: Tensor, lam: Tensor) -> bool:
    """Whether lam holds one value per feature; raises if the shape could also mean one value per problem."""
    e = X.shape[-1]
    if lam.ndim == 0 or lam.shape[-1] != e:
        return False
    batch = common_batch(X=X.shape[:-2], Y=Y.shape[:-2])
    if lam.ndim <= len(batch) and batch[-1] == e and e > 1:
        raise ShapeError(
            f"lam of shape {tuple(lam.shape)} may mean one value per feature or one per problem, because X of shape "
            f"{tuple(X.shape)} and Y of shape {tuple(Y.shape)} make as many problems as there are features. Give lam "
            f"the shape {(*batch, e)}: use lam.expand(*batch, -1) for one per feature, or lam[..., None].expand(...) "
            f"for one per problem, where batch = {tuple(batch)}."
        )
    return True


def _fused_ridge(X: Tensor, Y: Tensor, lam: Tensor) -> Tensor:
    """W (..., e, o) for X (..., n, e), Y (..., n, o) and lam (...) with the same leading dimensions."""
    Wt: Tensor = _Weights.apply(X, Y, lam)[0]
    return Wt.mT


def _fused_predictions(X: Tensor, Y: Tensor, lam: Tensor, Q: Tensor) -> Tensor:
    """Q W (..., q, o) for the same inputs and Q (..., q, e) in the dtype of X."""
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
        return _Weights.apply(*in_front(info, in_dims, inputs)), (0, 0, 0)


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
        return _Predictions.apply(*in_front(info, in_dims, inputs)), (0, 0, 0, 0)


def _solve(X: Tensor, Y: Tensor, lam: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """W^T, A and the factor of S."""
    work = system_dtype(X.device)
    require_positive("lam", lam)
    K = X @ X.mT
    S = K.to(work, copy=True)
    S.diagonal(dim1=-2, dim2=-1).add_(lam.item() if lam.ndim == 0 and checking() else lam.to(work).unsqueeze(-1))
    L = cholesky(S, rounding(X), lambda: require_system(K, Y, lam))
    A = torch.cholesky_solve(Y.to(work), L)
    if checking() and not (
        math.isfinite(K.sum().item()) and math.isfinite(A.sum().item())
    ):  # if Y is not finite, neither is A
        require_system(K, Y, lam)
    return recast(A, X.dtype).mT @ X, A, L


def _differentiable(X: Tensor, Y: Tensor, lam: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """A and W^T again, as differentiable functions of the inputs, for derivatives of the gradient."""
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
