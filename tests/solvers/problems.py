"""The problems that every solver is tried on: wide, tall, square and a single sample, from several seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

SHAPES = {"wide": (8, 30), "tall": (30, 6), "square": (10, 10), "one sample": (1, 5)}


@dataclass(frozen=True)
class Problem:
    X: Tensor
    Y: Tensor
    labels: Tensor
    one_hot: Tensor

    @property
    def K(self) -> Tensor:  # noqa: N802 - the equation's own name
        return self.X @ self.X.mT


def make(shape: tuple[int, int], seed: int, outputs: int = 3) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    n, e = shape
    X = torch.randn(n, e, generator=generator, dtype=torch.float64)
    Y = torch.randn(n, outputs, generator=generator, dtype=torch.float64)
    classes = torch.randperm(n, generator=generator) % outputs
    one_hot = torch.nn.functional.one_hot(classes, outputs).double()
    return Problem(X, Y, labels=one_hot[:, 0], one_hot=one_hot)


every_problem = pytest.mark.parametrize(
    "problem",
    [pytest.param(make(shape, seed), id=f"{name}-{seed}") for name, shape in SHAPES.items() for seed in range(2)],
)

one_problem_a_shape = pytest.mark.parametrize(
    "problem", [pytest.param(make(s, 7), id=name) for name, s in SHAPES.items()]
)

every_two_class_problem = pytest.mark.parametrize(
    "problem",
    [
        pytest.param(make(shape, seed), id=f"{name}-{seed}")
        for name, shape in SHAPES.items()
        if name != "one sample"
        for seed in range(2)
    ],
)


def badly_scaled_problem() -> tuple[Tensor, Tensor]:
    """Samples whose sizes differ a thousandfold, with random labels: full Newton steps overshoot for ever."""
    generator = torch.Generator().manual_seed(2)
    sizes = 5 * torch.exp(2 * torch.randn(60, 1, generator=generator, dtype=torch.float64))
    X = sizes * torch.randn(60, 20, generator=generator, dtype=torch.float64)
    return X, (torch.rand(60, generator=generator) > 0.5).double()


def duplicated(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor])


def rotation(e: int) -> Tensor:
    return torch.linalg.qr(torch.randn(e, e, generator=torch.Generator().manual_seed(e), dtype=torch.float64)).Q


def leaves(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.clone().requires_grad_() for tensor in tensors)


def saved_bytes(run: Callable[[], Tensor]) -> int:
    """How many bytes autograd keeps for the backward of what `run` returns."""
    total = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        result = run()
    assert result.requires_grad
    return total
