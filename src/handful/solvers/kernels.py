"""Gram matrices and other products of features in at least float32, and the diagonal prior of eq. 8."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from handful.solvers._checks import common_batch
from handful.solvers._operation import Operation, in_front
from handful.solvers._precision import expanded, no_autocast, recast, result_dtype


def gram(X: Tensor) -> Tensor:
    """K = X X^T, at least in float32 even under autocast: (..., n, e) -> (..., n, n).

    The backward pass is one product, (G + G^T) X; autograd through `X @ X.mT` takes two.
    """
    X = recast(X, result_dtype(X))
    K: Tensor = _Gram.apply(X)
    return K


def cross_gram(Q: Tensor, X: Tensor) -> Tensor:
    """Q X^T, at least in float32 even under autocast: (..., q, e), (..., n, e) -> (..., q, n).

    The backward pass, G X and G^T Q, only reads and writes rows. Autograd through a batched `Q @ X.mT` computes the
    gradient of X as a transpose, which takes several times as long for long rows. For weights W (..., e, o), Q W is
    cross_gram(Q, W.mT).
    """
    dtype, batch = result_dtype(Q, X), common_batch(Q=Q.shape[:-2], X=X.shape[:-2])
    Q, X = (expanded(recast(tensor, dtype), (*batch, *tensor.shape[-2:])) for tensor in (Q, X))
    G: Tensor = _CrossGram.apply(Q, X)
    return G


def dual_weights(X: Tensor, A: Tensor) -> Tensor:
    """W = X^T A, stored transposed, which is several times faster to compute and to use when e is large."""
    with no_autocast(X.device):
        return (A.mT @ recast(X, A.dtype)).mT


def diagonal_prior(X: Tensor, lam: Tensor) -> Tensor:
    """Features with the Gram matrix X diag(lam)^-1 X^T of eq. 8, to be used with a scalar lam of 1.

    `lam` (..., e) holds one positive value per feature.
    """
    return X * lam.rsqrt().unsqueeze(-2)


class _Gram(Operation):
    @staticmethod
    def forward(X: Tensor) -> Tensor:
        with no_autocast(X.device):
            return X @ X.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (X,) = ctx.saved_tensors
        with no_autocast(X.device):
            result: Tensor = (grad + grad.mT) @ X
        return result

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], X: Tensor) -> tuple[Tensor, int]:
        return gram(X.movedim(in_dims[0], 0)), 0


class _CrossGram(Operation):
    @staticmethod
    def forward(Q: Tensor, X: Tensor) -> Tensor:
        with no_autocast(X.device):
            return Q @ X.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        Q, X = ctx.saved_tensors
        with no_autocast(X.device):
            return (grad @ X if ctx.needs_input_grad[0] else None, grad.mT @ Q if ctx.needs_input_grad[1] else None)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> tuple[Tensor, int]:
        return cross_gram(*in_front(info, in_dims, inputs)), 0
