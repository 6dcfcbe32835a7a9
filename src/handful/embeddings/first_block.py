"""The first block of a network, from convolution to activation, in one pass that never writes its full-size maps.

Images have few channels, so the output of the first convolution is the largest tensor of the whole network and the
cheapest one to compute. Three facts make it unnecessary to store it:

- A pooled output depends on 4x4 pixels. Its four values before pooling are the product of that window with a
  (16 c, 4 k) matrix that holds the 3x3 weights at four positions.
- The outputs are linear in the weights, so their mean and variance over a batch follow from those of the windows. Batch
  norm becomes a scale of the weights and a bias, both known before the convolution.
- Images need no gradient. Only the gradient of the matrix is computed, which again only needs the windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from handful.embeddings import winograd
from handful.embeddings.shared_norm import SharedBatchNorm, note_statistics, total

ROWS = 2048
"""Windows per chunk, few enough that everything for a chunk stays in cache."""
PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))
"""The offset of each of the four 3x3 patches in its window."""


class FirstBlock(nn.Sequential):
    """3x3 convolution, batch norm, 2x2 max-pool, (leaky) ReLU and further layers, as an `nn.Sequential`.

    It uses the single pass in training, and always for grey images, because PyTorch is slow with a single channel. Odd
    image sizes, other norms, and images that need a gradient go through the layers one by one.
    """

    def forward(self, images: Tensor) -> Tensor:
        """(n, channels, height, width) -> (n, fan_out, height / 2, width / 2)."""
        conv, norm, pool, activation, *rest = self
        if not (isinstance(conv, nn.Conv2d) and winograd.fast_path(images, conv.weight)):
            return self._one_by_one(images)
        if not (isinstance(activation, nn.LeakyReLU | nn.ReLU) and _fits(images, norm, pool)):
            # PyTorch is slower in its usual order, and copying so few channels is cheap
            return self._one_by_one(images.contiguous(memory_format=torch.channels_last))
        slope = activation.negative_slope if isinstance(activation, nn.LeakyReLU) else 0.0
        maps = _pooled(images, conv, norm, slope)
        for layer in rest:
            maps = layer(maps)
        return maps

    def _one_by_one(self, images: Tensor) -> Tensor:
        maps: Tensor = super().forward(images)  # type: ignore[no-untyped-call]
        return maps


def _fits(images: Tensor, norm: nn.Module, pool: nn.Module) -> bool:
    pooled = isinstance(pool, nn.MaxPool2d) and pool.kernel_size == pool.stride == 2
    normed = isinstance(norm, nn.Identity) or (
        isinstance(norm, nn.BatchNorm2d) and norm.affine and norm.track_running_stats and norm.momentum is not None
    )
    _, channels, height, width = images.shape
    pays = torch.is_grad_enabled() or channels == 1
    even = len(images) > 0 and height % 2 == width % 2 == 0
    return pooled and normed and pays and even and not images.requires_grad


def _pooled(images: Tensor, conv: nn.Conv2d, norm: nn.Module, slope: float) -> Tensor:
    n, c, height, width = images.shape
    windows = _windows(images)
    weight = conv.weight.permute(2, 3, 1, 0).flatten(0, 2)  # (9 c, k)
    bias = weight.new_zeros(weight.shape[1]) if conv.bias is None else conv.bias
    if isinstance(norm, nn.BatchNorm2d):
        weight, bias = _normalised(weight, bias, norm, windows)
    matrix = torch.cat([_placed(weight, place, c) for place in PLACES], 1)
    rows: Tensor = _Pooled.apply(windows, matrix, bias, slope)  # type: ignore[no-untyped-call]
    return rows.view(n, height // 2, width // 2, -1).permute(0, 3, 1, 2)


def _windows(images: Tensor) -> Tensor:
    """The 4x4 windows at every second pixel, with a border of zeros around each image: (n h/2 w/2, 16 c)."""
    n, c, height, width = images.shape
    padded = images.new_zeros(n, height + 2, width + 2, c)
    padded[:, 1:-1, 1:-1] = images.permute(0, 2, 3, 1)
    s = padded.stride()
    view = padded.as_strided((n, height // 2, width // 2, 4, 4 * c), (s[0], 2 * s[1], 2 * s[2], s[1], 1))
    return view.reshape(-1, 16 * c)


def _placed(weight: Tensor, place: tuple[int, int], c: int) -> Tensor:
    """The 3x3 weights (9 c, k) at one position of a 4x4 window, with zeros around them: (16 c, k)."""
    top, left = place
    around = (0, 0, 0, 0, left, 1 - left, top, 1 - top)
    return nn.functional.pad(weight.view(3, 3, c, -1), around).flatten(0, 2)


def _normalised(weight: Tensor, bias: Tensor, norm: nn.BatchNorm2d, windows: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (9 c, k) and bias (k,) with batch norm folded in; in training with the statistics of this batch."""
    if norm.training:
        mean, var, count = _moments(weight, bias, windows, shared=isinstance(norm, SharedBatchNorm))
        note_statistics(norm, mean.detach(), var.detach(), count)
    else:
        mean, var = (norm.get_buffer(f"running_{name}").double() for name in ("mean", "var"))
    scale = norm.weight.double() * torch.rsqrt(var + norm.eps)
    shift = norm.bias.double() + scale * (bias.double() - mean)
    return (weight * scale).to(weight), shift.to(bias)


def _moments(weight: Tensor, bias: Tensor, windows: Tensor, shared: bool) -> tuple[Tensor, Tensor, int]:
    """Mean and variance of the convolution's outputs (k,), in float64, from those of the patches in all windows.

    The last value is the number of outputs per channel; if `shared`, they are those of all processes.
    """
    c, count, middle = windows.shape[1] // 16, len(windows), windows.mean(0)
    if shared:
        sums = total(torch.cat([middle.double() * count, torch.tensor([count], dtype=torch.float64)]))
        count, middle = int(sums[-1]), (sums[:-1] / sums[-1]).to(middle)
    spread = torch.zeros(16 * c, 16 * c, dtype=torch.float64)
    for part in windows.split(ROWS):  # centred first, and summed in float64, to avoid cancellation
        centred = part - middle
        spread += centred.mT @ centred
    if shared:
        total(spread)
    positions = torch.arange(16 * c).view(4, 4, c)
    patches = [positions[top : top + 3, left : left + 3].flatten() for top, left in PLACES]
    means = torch.stack([middle.double()[patch] for patch in patches])  # (4, 9 c)
    mean = means.mean(0)
    within = torch.stack([spread[patch][:, patch] for patch in patches]).mean(0) / count
    covariance = within + (means - mean).mT @ (means - mean) / len(patches)
    W = weight.double()
    return mean @ W + bias.double(), ((covariance @ W) * W).sum(0), 4 * count


class _Pooled(Function):
    """Maps windows (r, 16 c), matrix (16 c, 4 k) and bias (k,) to the leaky ReLU of each window's largest value."""

    @staticmethod
    def forward(ctx: Any, windows: Tensor, matrix: Tensor, bias: Tensor, slope: float) -> Tensor:
        out = windows.new_empty(len(windows), len(bias))
        chosen = torch.empty(out.shape, dtype=torch.uint8)
        four = windows.new_empty(min(ROWS, len(windows)), matrix.shape[1])
        for part in _chunks(len(windows)):
            values = _as_maps(torch.mm(windows[part], matrix, out=four[: part.stop - part.start]), 2)
            largest, index = torch.ops.aten.max_pool2d_with_indices(values, [2, 2])
            out[part] = nn.functional.leaky_relu_(largest.flatten(1).add_(bias), slope)
            chosen[part] = index.flatten(1)
        ctx.save_for_backward(windows, chosen, out)
        ctx.slope = slope
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        windows, chosen, out = ctx.saved_tensors
        rows, k = out.shape
        if torch.is_grad_enabled():  # a second derivative is asked for
            gradient = torch.where(out > 0, gradient, ctx.slope * gradient)
            four = gradient.new_zeros(rows, 4, k).scatter(1, chosen.long().unsqueeze(1), gradient.unsqueeze(1))
            return None, windows.mT @ four.flatten(1), gradient.sum(0), None
        matrix, bias = windows.new_zeros(windows.shape[1], 4 * k), windows.new_zeros(k)
        values = _as_maps(windows.new_empty(min(ROWS, rows), 4 * k), 2)  # only its shape matters
        for part in _chunks(rows):
            passed = torch.ops.aten.leaky_relu_backward(gradient[part], out[part], ctx.slope, True)
            bias += passed.sum(0)
            four = torch.ops.aten.max_pool2d_with_indices_backward(
                _as_maps(passed, 1), values[: len(passed)], [2, 2], [2, 2], [0, 0], [1, 1], False,
                _as_maps(chosen[part].long(), 1),
            )  # fmt: skip
            matrix.addmm_(windows[part].mT, four.permute(0, 2, 3, 1).reshape(-1, 4 * k))
        return None, matrix, bias, None


def _as_maps(rows: Tensor, side: int) -> Tensor:
    """Rows (r, side^2 k) as maps (r, k, side, side) in channels-last order."""
    return rows.view(len(rows), side, side, -1).permute(0, 3, 1, 2)


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS))
