"""Batch norm over a batch that is divided among the processes of torch.distributed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm


class SharedBatchNorm(nn.BatchNorm2d):
    """Batch norm whose statistics in training are those of the maps of all processes together.

    It takes over the weights and buffers of a batch norm of any dimension. PyTorch's own `nn.SyncBatchNorm` does the
    same, but on accelerators only.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            setattr(self, name, buffer)
        self.train(norm.training)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in nn.BatchNorm2d)
        """Normalise maps (n, channels, ...); n may differ between processes."""
        if not self.training:
            known = self.running_mean, self.running_var
            return nn.functional.batch_norm(
                input, *known, self.weight, self.bias, training=self.running_mean is None, eps=self.eps
            )
        mean, var, count = _moments(input.detach())
        note_statistics(self, mean, var, count)
        weight = input.new_ones(self.num_features) if self.weight is None else self.weight
        bias = torch.zeros_like(weight) if self.bias is None else self.bias
        result: Tensor = _Normalised.apply(input, weight, bias, mean, var, count, self.eps)  # type: ignore[no-untyped-call]
        return result


def note_statistics(norm: _BatchNorm, mean: Tensor, var: Tensor, count: int) -> None:
    """Update the running statistics of a batch norm, if it keeps any, by those of `count` values per channel."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean.to(norm.running_mean), share)
    norm.running_var.lerp_((var * count / (count - 1)).to(norm.running_var), share)


@contextmanager
def shared_norms(network: nn.Module) -> Iterator[None]:
    """Replace every batch norm of a network by a shared one with the same weights and buffers, within the block."""
    places = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, _BatchNorm)
    ]
    for parent, name, norm in places:
        setattr(parent, name, SharedBatchNorm(norm))
    try:
        yield
    finally:
        for parent, name, norm in places:
            norm.train(getattr(parent, name).training)
            setattr(parent, name, norm)


def total(values: Tensor) -> Tensor:
    """The sum over all processes, computed in place."""
    distributed.all_reduce(values)
    return values


def _moments(maps: Tensor) -> tuple[Tensor, Tensor, int]:
    """Mean and variance per channel over all processes, in float64, and the number of values that they cover."""
    exact = maps if maps.dtype == torch.float64 else maps.float()
    mean, var = (each.double() for each in torch.batch_norm_update_stats(exact, None, None, 0.0))
    count = maps.numel() // maps.shape[1]
    sums = total(torch.cat([mean * count, mean.new_tensor([count])]))
    every = int(sums[-1])
    middle = sums[:-1] / every
    spread = total(count * (var + (mean - middle) ** 2))  # centred first, to avoid cancellation
    return middle, spread / every, every


class _Normalised(Function):
    """Maps less the mean, over the deviation, times weight, plus bias; mean and variance depend on all maps."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, count: int, eps: float
    ) -> Tensor:
        mean, var = mean.to(weight.dtype), var.to(weight.dtype)  # not those of the maps, which may be bfloat16
        ctx.save_for_backward(maps, weight, mean, var)
        ctx.count, ctx.eps = count, eps
        return nn.functional.batch_norm(maps, mean, var, weight, bias, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, mean, var = ctx.saved_tensors
        # as if mean and variance were constants; what flows through them is subtracted below
        found, for_weight, for_bias = torch.ops.aten.native_batch_norm_backward(
            gradient, maps, weight, mean, var, None, None, False, ctx.eps, [True, True, True]
        )
        sums = total(torch.stack([for_weight, for_bias]))
        scale = weight * torch.rsqrt(var + ctx.eps)
        slope = scale * torch.rsqrt(var + ctx.eps) * sums[0] / ctx.count
        level = scale * sums[1] / ctx.count - slope * mean
        shape = (-1, *[1] * (maps.ndim - 2))
        found.sub_(level.view(shape)).addcmul_(maps, slope.view(shape).to(maps.dtype), value=-1)
        return found, for_weight, for_bias, None, None, None, None
