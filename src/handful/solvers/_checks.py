"""Checks of a solver's inputs, with error messages that say what to change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from handful.errors import InvalidOptionError, NotFiniteError, NotPositiveDefiniteError, ShapeError
from handful.solvers._operation import Operation, checking, in_front, transforming


def inspect(inspector: Callable[..., None], *tensors: Tensor) -> None:
    """Call `inspector` on the values of the tensors; inside torch.func.vmap it sees the whole batch at once."""
    if not checking():
        return
    if transforming():
        _Inspect.apply(inspector, *(tensor.detach() for tensor in tensors))
    else:
        inspector(*(tensor.detach() for tensor in tensors))


class _Inspect(Operation):
    """Computes nothing; it is a Function because that is how torch.func gives access to the batch behind a tensor."""

    @staticmethod
    def forward(inspector: Callable[..., None], *tensors: Tensor) -> Tensor:
        inspector(*(tensor.detach() for tensor in tensors))
        return tensors[0].new_empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None

    @staticmethod
    def vmap(info: Any, in_dims: Any, inspector: Callable[..., None], *tensors: Tensor) -> tuple[Tensor, None]:
        return _Inspect.apply(inspector, *in_front(info, in_dims[1:], tensors)), None


def require_finite(name: str, tensor: Tensor) -> None:
    """Raise if the tensor has NaN or infinite values, with their number."""
    if not checking():
        return
    if math.isfinite(tensor.sum()) or bool(torch.isfinite(tensor).all()):  # the sum is cheaper, but may overflow
        return
    nan, infinite = int(torch.isnan(tensor).sum()), int(torch.isinf(tensor).sum())
    raise NotFiniteError(
        f"{name} of shape {tuple(tensor.shape)} holds {nan} NaN and {infinite} infinite values among {tensor.numel()}. "
        "The embedding may have diverged, or features are so large that their products overflow."
    )


def require_positive(name: str, value: Tensor) -> None:
    """Raise if a regulariser is zero, negative or not finite."""
    if not checking():
        return
    if value.numel() == 1 and 0 < value.item() < math.inf:  # the common case, at the cost of one call
        return
    sound = (value > 0) & (value < math.inf)
    if bool(sound.all()):
        return
    bad = value[~sound].flatten()
    raise InvalidOptionError(
        f"{name} must be positive and finite, but {bad.numel()} of its {value.numel()} values are not (the first is "
        f"{bad[0]:g}). If it is learnt, learn its logarithm: exp() keeps it positive."
    )


def require_labels(y: Tensor) -> None:
    """Raise unless all labels are 0 or 1."""
    if not checking():
        return
    if not torch.equal(y.bool().to(y.dtype), y):
        outside = y[(y != 0) & (y != 1)]
        raise InvalidOptionError(
            f"Labels must be 0 or 1, but {outside.numel()} of {y.numel()} are not (the first is "
            f"{outside.flatten()[0]:g}). Convert labels of -1 and 1 with (y + 1) / 2, and class indices with one_hot."
        )


def require_one_hot(Y: Tensor) -> None:
    """Raise unless each row of Y names exactly one of at least two classes."""
    if Y.shape[-1] < 2:
        raise ShapeError(f"A classifier needs at least two classes, but Y of shape {tuple(Y.shape)} has one column.")
    require_labels(Y)
    rows = int((Y.sum(-1) != 1).sum()) if checking() else 0
    if rows:
        raise InvalidOptionError(f"{rows} rows of Y do not hold exactly one 1. Convert class indices with one_hot.")


def require_steps(steps: int) -> None:
    """Raise if there is not at least one step."""
    if steps < 1:
        raise InvalidOptionError(f"An iterative solver needs at least 1 step, but steps={steps}.")


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise if the value is not one of the choices."""
    if value not in choices:
        raise InvalidOptionError(f"{name} must be one of {', '.join(choices)}, but is {value!r}.")


def require_symmetric(S: Tensor) -> None:
    """Raise if a matrix is far from symmetric; rounding, even in bfloat16, is tolerated."""
    if not checking() or not S.numel():
        return
    gap = float((S - S.mT).max())
    size = float(S.abs().max()) if gap > 0 else 0.0
    if gap > 0.05 * size:
        raise NotPositiveDefiniteError(
            f"The matrix is not symmetric: entries that should be equal differ by up to {gap:.3g}, and the largest "
            f"entry is {size:.3g}. A Gram matrix holds inner products of the support with itself, not with the queries."
        )


def require_system(K: Tensor, Y: Tensor, lam: Tensor) -> None:
    """Raise if (K + lam I) A = Y is not a valid system."""
    require_positive("lam", lam)
    require_finite("K (inner products of the features)", K)
    require_finite("Y (the targets)", Y)
    require_symmetric(K)


def require_classes(name: str, K: Tensor, Y: Tensor, strength: Tensor) -> None:
    """Raise if a multi-class classifier cannot be fitted to these values."""
    require_positive(name, strength)
    require_finite("K (inner products of the features)", K)
    require_one_hot(Y)
    require_symmetric(K)


def require_gram(K: Tensor) -> None:
    """Raise if the shape is not that of a Gram matrix (..., n, n)."""
    if K.ndim < 2 or K.shape[-1] != K.shape[-2] or K.shape[-1] == 0:
        raise ShapeError(
            f"A Gram matrix has shape (..., n, n) with n >= 1, but got {tuple(K.shape)}. For features X, K is X @ X.mT."
        )


def require_rows(name: str, M: Tensor, other: str, N: Tensor) -> None:
    """Raise if two stacks of matrices differ in the number of rows n."""
    if M.ndim < 2 or N.ndim < 2 or M.shape[-2] != N.shape[-2] or 0 in (*M.shape[-2:], *N.shape[-2:]):
        raise ShapeError(
            f"{name} (..., n, ...) and {other} (..., n, o) must be stacks of matrices with the same n >= 1, "
            f"but got {tuple(M.shape)} and {tuple(N.shape)}."
        )


def require_targets(K: Tensor, Y: Tensor) -> None:
    """Raise if a Gram matrix (..., n, n) and targets (..., n, o) do not match."""
    require_gram(K)
    if Y.ndim < 2 or Y.shape[-2] != K.shape[-1] or Y.shape[-1] == 0:
        raise ShapeError(
            f"K (..., n, n) and Y (..., n, o) must agree in n, but got {tuple(K.shape)} and {tuple(Y.shape)}. "
            "Convert a vector of targets to a matrix with Y[..., None]."
        )


def common_batch(**shapes: torch.Size) -> torch.Size:
    """The shape that these batch shapes broadcast to."""
    distinct = {shape for shape in shapes.values() if shape}
    if len(distinct) <= 1:  # the usual case, and ten times cheaper than torch.broadcast_shapes
        return distinct.pop() if distinct else torch.Size()
    try:
        return torch.Size(torch.broadcast_shapes(*shapes.values()))
    except RuntimeError:
        said = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ShapeError(
            f"Leading (batch) dimensions must broadcast, but they are {said}. "
            "If lam has one value per problem, give it exactly the batch's shape."
        ) from None
