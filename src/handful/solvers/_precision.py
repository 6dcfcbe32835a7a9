"""The precision of the solvers: features keep their dtype, and the small systems are solved in float64.

All solvers follow the same rule:

- Gram matrices and products with features are computed in the dtype of the features, but at least in float32. This
  holds under autocast too: half-precision inputs are widened first, and autocast is off inside the solvers.
- The systems that are factorised (n x n in the dual, e x e in the primal) are solved in float64 on every device that
  supports it. They are small compared with the Gram product, so this costs next to nothing. Devices without float64
  (Apple's MPS) use float32.
- If |x|^2 / lam exceeds 1e4, `ridge`, `ridge_primal` and `ridge_predictions` compute the Gram matrix and the weights in
  float64 too, because the rounding error of a float32 Gram matrix is then no longer small compared with lam. They stay
  accurate up to |K| / lam = 1e12. A solver that takes K can be no more accurate than K, so compute K in float64 for
  such a small lam.
- Results have the dtype of the inputs, but at least float32.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from handful.solvers._operation import Operation, checking, transforming

FLUSH_BELOW = 1e-30
"""Smaller magnitudes become 0 when cast to float32. Denormals, eight decades below, would slow every product."""

SAFE_RATIO = 1e4
"""Up to this |x|^2 / lam, a float32 Gram matrix, with its relative rounding error of 6e-8, is accurate enough."""

_WITHOUT_FLOAT64 = frozenset({"mps"})


def system_dtype(device: torch.device) -> torch.dtype:
    """The dtype in which systems are factorised on this device."""
    return torch.float32 if device.type in _WITHOUT_FLOAT64 else torch.float64


def result_dtype(*tensors: Tensor) -> torch.dtype:
    """The widest floating dtype of the tensors, but at least float32; integers and booleans are ignored."""
    dtype = torch.float32
    for tensor in tensors:
        if tensor.dtype != dtype and tensor.is_floating_point():
            dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def safe_dtype(X: Tensor, lam: Tensor, dtype: torch.dtype) -> torch.dtype:
    """`dtype`, or float64 if the rounding error of float32 inner products of X (..., n, e) would swamp this lam.

    It is always float64 inside torch.func transforms, which hide the values, and when checks are off.
    """
    work = system_dtype(X.device)
    if dtype == work or transforming() or not checking():
        return work
    if not X.numel():
        return dtype
    largest = torch.linalg.vector_norm(X.detach().to(dtype), dim=-1).amax().square()
    if not math.isfinite(largest):
        return dtype  # it overflows, which a later check reports
    return work if bool((largest > SAFE_RATIO * lam.detach()).any()) else dtype


def no_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which autocast is off on this device."""
    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


def recast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another dtype; values and gradients that would be denormal in float32 become 0."""
    if tensor.dtype == dtype:
        return tensor
    if not tensor.is_floating_point():
        return tensor.to(dtype)
    result: Tensor = _Recast.apply(tensor, dtype) if torch.is_grad_enabled() else flushed(tensor, dtype)
    return result


def flushed(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """`recast` without autograd."""
    if dtype.itemsize < tensor.dtype.itemsize:
        tensor = torch.hardshrink(tensor, FLUSH_BELOW)
    return tensor.to(dtype)


def as_tensor(lam: float | Tensor, like: Tensor) -> Tensor:
    """A regulariser as a tensor on the device of `like`; a number gets the dtype in which systems are solved."""
    if isinstance(lam, Tensor):
        return lam.to(like.device)
    return torch.tensor(lam, dtype=system_dtype(like.device), device=like.device)


def expanded(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor.expand(shape)`, or the tensor itself, with nothing recorded, if it already has that shape."""
    return tensor if tensor.shape == shape else tensor.expand(shape)


class _Recast(Operation):
    """A linear map, so its backward pass is the same map with the dtypes exchanged."""

    @staticmethod
    def forward(tensor: Tensor, dtype: torch.dtype) -> Tensor:
        return flushed(tensor, dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.dtype], output: Tensor) -> None:
        ctx.dtype = inputs[0].dtype

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return recast(grad, ctx.dtype), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], tensor: Tensor, dtype: torch.dtype) -> tuple[Tensor, int]:
        return recast(tensor, dtype), in_dims[0]
