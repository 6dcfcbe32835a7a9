"""3x3 convolutions by Winograd's minimal filtering (Lavin and Gray 2016), written as matrix products.

An m x m tile of the output is A [(G w G^T) * (B d B^T)] A^T, where d is the (m + 2) x (m + 2) tile of the input around
it. The product in the middle, summed over channels, is a batch of (m + 2)^2 matrix products. With m = 4 they need a
quarter of the multiplications of a plain convolution, with m = 6 even fewer.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function, forward_ad

TILES = (4, 5, 6)
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
"""Where the Toom-Cook polynomials are evaluated, in addition to infinity; a tile of size m uses the first m + 1."""
ROWS = 256
"""Tiles per chunk: few enough that a chunk stays in cache, enough for fast matrix products."""
FEWEST, FEWEST_IN_TRAINING = 64, 16
"""With fewer tiles than this, transforming the weights costs more than the tiles save."""
TRAINING_GAIN, INFERENCE_GAIN = 1.05, 1.22
"""The estimated gains above which tiles were faster in practice; the estimate is too optimistic for inference."""


@dataclass(frozen=True)
class Costs:
    """Nanoseconds per operation of a plain convolution and of a matrix product, and per transformed entry."""

    plain: float
    product: float
    map_entry: float
    weight_entry: float = 1.0


ALIKE = Costs(1 / 80, 1 / 65, 1.6)
"""Both libraries use the same instructions; measured on an AMD EPYC core with AVX2."""
SLOW_PRODUCTS = Costs(1 / 230, 1 / 98, 1.1)
"""Only convolutions use AVX-512; measured on an AMD EPYC core of family 26 (Zen 5)."""


class Conv3x3(nn.Conv2d):
    """An `nn.Conv2d` with 3x3 filters and padding 1 that uses the faster algorithm for its shape.

    Winograd's algorithm is used for float32 on the CPU. `torch.func` transforms, forward-mode derivatives, autocast,
    tracing and export use the plain convolution, and so do second derivatives.
    """

    def __init__(self, fan_in: int, fan_out: int, bias: bool = True) -> None:
        super().__init__(fan_in, fan_out, kernel_size=3, padding=1, bias=bias)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in nn.Conv2d)
        """(n, fan_in, h, w) -> (n, fan_out, h, w)."""
        tile = _chosen_tile(input, self.weight) if fast_path(input, self.weight) else None
        if tile is None:
            return super().forward(input)
        return winograd_conv2d(input, self.weight, self.bias, tile)


def winograd_conv2d(images: Tensor, weight: Tensor, bias: Tensor | None = None, tile: int = 4) -> Tensor:
    """`conv2d(images, weight, bias, padding=1)` for 3x3 weights, with tiles of `tile` x `tile` outputs (2 to 6).

    In float32, outputs and gradients differ from the exact ones by up to about 1e-5 of their largest entry.
    """
    result: Tensor = _Winograd.apply(images, weight, bias, tile)  # type: ignore[no-untyped-call]
    return result


def faster_tile(
    count: int, fan_in: int, fan_out: int, height: int, width: int, training: bool, costs: Costs = ALIKE
) -> int | None:
    """The tile size that is expected to beat a plain convolution of `count` maps, or None if none does."""
    tile = min(TILES, key=lambda m: (_tiles(m, height) * _tiles(m, width) * (m + 2) ** 2, m))
    per_map = _tiles(tile, height) * _tiles(tile, width)
    if count * per_map < (FEWEST_IN_TRAINING if training else FEWEST):
        return None
    plain = count * height * width * 18 * fan_in * fan_out * costs.plain
    each = 2 * fan_in * fan_out * costs.product + costs.map_entry * (fan_in + fan_out)
    ours = (tile + 2) ** 2 * (count * per_map * each + costs.weight_entry * fan_in * fan_out)
    return tile if plain >= (TRAINING_GAIN if training else INFERENCE_GAIN) * ours else None


def _chosen_tile(images: Tensor, weight: Tensor) -> int | None:
    count, fan_in, height, width = images.shape
    training = torch.is_grad_enabled() and (images.requires_grad or weight.requires_grad)
    return faster_tile(count, fan_in, weight.shape[0], height, width, training, this_machine())


@cache
def this_machine() -> Costs:
    """The costs on this processor.

    PyTorch multiplies matrices with MKL, which uses AVX-512 only on Intel's processors, and convolves with oneDNN,
    which uses it wherever there is AVX-512. A preloaded library can make MKL use it too (docs/scale.md).
    """
    avx512 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    slow = avx512 and torch.backends.mkl.is_available() and "AuthenticAMD" in _processor() and not _is_preloaded()
    return SLOW_PRODUCTS if slow else ALIKE


def _processor() -> str:
    """Text that names the maker of the processor."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()


def _is_preloaded() -> bool:
    return platform.system() == "Linux" and hasattr(ctypes.CDLL(None), "mkl_serv_intel_cpu_true")


def fast_path(images: Tensor, weight: Tensor) -> bool:
    """Whether nothing stands in the way of our own kernels: ordinary float32 tensors on the CPU, and no transform."""
    return (
        not torch._C._is_tracing()
        and not torch.compiler.is_compiling()
        and images.dim() == 4
        and images.shape[1] == weight.shape[1]
        and images.dtype == weight.dtype == torch.float32
        and images.device.type == weight.device.type == "cpu"
        and type(images) is Tensor
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._len_torch_dispatch_stack()  # who counts operations wants to see the usual ones
        and forward_ad._current_level < 0
    )


@dataclass(frozen=True)
class _Matrices:
    """The transforms for one tile size; those of the second axis are repeated once per row of the tile."""

    A: Tensor
    A_rows: Tensor
    AT: Tensor
    AT_rows: Tensor
    B: Tensor
    B_rows: Tensor
    BT: Tensor
    BT_rows: Tensor
    GG: Tensor


@cache
def _matrices(tile: int, dtype: torch.dtype) -> _Matrices:
    """Transposed Toom-Cook interpolation: A (m, m + 2), B (m + 2, m + 2), and G (m + 2, 3) for both axes."""
    points = torch.tensor(POINTS[: tile + 1], dtype=torch.float64)
    size = tile + 2
    A, B, G = (
        torch.zeros(rows, columns, dtype=torch.float64) for rows, columns in ((tile, size), (size, size), (size, 3))
    )
    for j, point in enumerate(points):
        others = torch.cat([points[:j], points[j + 1 :]])
        balance = 4.0 if abs(point) == 0.5 else 1.0  # a power of two, so that B stays exact
        A[:, j] = point ** torch.arange(tile)
        B[j, :-1] = _polynomial(others) * balance
        G[j] = point ** torch.arange(3) / (point - others).prod() / balance
    A[-1, -1], B[-1], G[-1, -1] = 1, _polynomial(points), 1

    def made(matrix: Tensor) -> Tensor:
        return matrix.to(dtype).contiguous()

    def rows(matrix: Tensor, count: int) -> Tensor:
        return made(matrix.expand(count, *matrix.shape))

    return _Matrices(
        made(A), rows(A, tile), made(A.mT), rows(A.mT, size),
        made(B), rows(B, size), made(B.mT), rows(B.mT, size),
        made(torch.kron(G, G)),
    )  # fmt: skip


def _polynomial(roots: Tensor) -> Tensor:
    """Coefficients of prod (x - root), the constant first."""
    coefficients = torch.ones(1, dtype=roots.dtype)
    for root in roots:
        shifted = torch.cat([coefficients.new_zeros(1), coefficients])
        shifted[:-1] -= root * coefficients
        coefficients = shifted
    return coefficients


class _Winograd(Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, bias: Tensor | None, tile: int) -> Tensor:
        work = _Work(images.permute(0, 2, 3, 1), weight, tile)
        ctx.save_for_backward(images, weight, work.U)
        ctx.tile = tile
        return work.outputs(bias).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        images, weight, U = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[:3])
        if torch.is_grad_enabled():  # a second derivative is needed
            return (*_plain_gradients(gradient, images, weight, wanted), None)
        work = _Work(images.permute(0, 2, 3, 1), weight, ctx.tile, U)
        return (*work.gradients(gradient.permute(0, 2, 3, 1), wanted), None)


def _plain_gradients(
    gradient: Tensor, images: Tensor, weight: Tensor, wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    one, none = [1, 1], [0, 0]
    sizes = [weight.shape[0]]
    found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
        gradient, images, weight, sizes, one, one, one, False, none, 1, list(wanted)
    )
    return tuple(each if asked else None for each, asked in zip(found, wanted, strict=True))


class _Work:
    """One convolution: maps (n, h, w, c), transformed weights U (p, k, c) for the p = (m + 2)^2 points of a tile."""

    def __init__(self, maps: Tensor, weight: Tensor, tile: int, U: Tensor | None = None) -> None:
        self.maps, self.tile, self.size = maps, tile, tile + 2
        self.matrices = _matrices(tile, maps.dtype)
        (self.n, self.h, self.w, self.c), self.k = maps.shape, weight.shape[0]
        self.rows, self.columns = _tiles(tile, self.h), _tiles(tile, self.w)
        if U is None:
            U = torch.mm(self.matrices.GG, weight.reshape(-1, 9).mT).view(-1, self.k, self.c)
        self.U = U
        self.chunk = min(self.n, max(1, round(ROWS / (self.rows * self.columns))))
        largest = self.size**2 * self.chunk * self.rows * self.columns * max(self.c, self.k)
        self.buffers = [maps.new_empty(largest) for _ in range(2)]
        self.padded = maps.new_zeros(self.chunk, tile * self.rows + 2, tile * self.columns + 2, self.c)

    def outputs(self, bias: Tensor | None) -> Tensor:
        """The convolved maps, (n, h, w, k)."""
        out = self.maps.new_empty(self.n, self.h, self.w, self.k)
        m, p = self.tile, self.size
        for start, count in self._chunks():
            V = self._transformed_maps(start, count)
            M = torch.bmm(V, self.U.mT, out=self._buffer(1, p * p, V.shape[1], self.k))
            if bias is not None:
                M[p + 1] += bias  # the point 1 on both axes, which A spreads evenly over the tile
            half = torch.mm(self.matrices.A, M.view(p, -1), out=self._buffer(0, m, p * V.shape[1] * self.k))
            Y = torch.bmm(
                self.matrices.A_rows, half.view(m, p, -1), out=self._buffer(1, m, m, V.shape[1] * self.k)
            ).view(m, m, count, self.rows, self.columns, self.k)
            for place, view in self._blocks(out[start : start + count]):
                view.copy_(Y[place])
        return out

    def gradients(self, gradient: Tensor, wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
        """The needed gradients of images, weight and bias, from the gradient of the outputs (n, h, w, k)."""
        for_maps, for_weight, for_bias = wanted
        maps = self.maps.new_empty(self.maps.shape) if for_maps else None
        U = torch.empty_like(self.U) if for_weight else None
        bias = gradient.new_zeros(self.k) if for_bias else None
        kept = torch.empty_like(self.buffers[0])
        summed = torch.empty_like(self.padded) if for_maps else self.padded
        for start, count in self._chunks():
            M = self._transformed_gradient(gradient[start : start + count], kept)
            if bias is not None:
                bias += M[self.size + 1].sum(0)
            if U is not None:
                U.baddbmm_(M.mT, self._transformed_maps(start, count), beta=1 if start else 0)
            if maps is not None:
                self._overlap_add(torch.bmm(M, self.U, out=self._buffer(0, *M.shape[:2], self.c)), summed[:count])
                maps[start : start + count] = summed[:count, 1 : self.h + 1, 1 : self.w + 1]
        # the product in this order and a copy are several times as fast as the product of the transposes
        weight = (
            None if U is None else torch.mm(self.matrices.GG.mT, U.view(len(U), -1)).mT.reshape(self.k, self.c, 3, 3)
        )
        return None if maps is None else maps.permute(0, 3, 1, 2), weight, bias

    def _transformed_maps(self, start: int, count: int) -> Tensor:
        """V = B d B^T of all tiles of a chunk, (p, tiles, c), in the first buffer."""
        p, tiles = self.size, count * self.rows * self.columns
        padded = self.padded[:count]
        padded[:, 1 : self.h + 1, 1 : self.w + 1] = self.maps[start : start + count]
        d = self._buffer(0, p, p, count, self.rows, self.columns, self.c)
        d.copy_(self._tiled(padded, 0, 0, p, p))
        half = torch.mm(self.matrices.B, d.view(p, -1), out=self._buffer(1, p, p * tiles * self.c))
        V = torch.bmm(self.matrices.B_rows, half.view(p, p, -1), out=self._buffer(0, p, p, tiles * self.c))
        return V.view(p * p, tiles, self.c)

    def _transformed_gradient(self, gradient: Tensor, kept: Tensor) -> Tensor:
        """The gradient of M from that of a chunk's outputs: A^T g A, (p, tiles, k), in `kept`."""
        m, p, count = self.tile, self.size, len(gradient)
        tiles = count * self.rows * self.columns
        g = self._buffer(0, m, m, count, self.rows, self.columns, self.k)
        if self.h % m or self.w % m:
            g.zero_()
        for place, view in self._blocks(gradient):
            g[place] = view
        half = torch.mm(self.matrices.AT, g.view(m, -1), out=self._buffer(1, p, m * tiles * self.k))
        M = kept[: p * p * tiles * self.k].view(p, p, -1)
        return torch.bmm(self.matrices.AT_rows, half.view(p, m, -1), out=M).view(p * p, tiles, self.k)

    def _overlap_add(self, V: Tensor, summed: Tensor) -> None:
        """Write B^T v B of all tiles into the padded maps of a chunk; overlaps of two between neighbours are added."""
        m, p = self.tile, self.size
        half = torch.mm(self.matrices.BT, V.view(p, -1), out=self._buffer(1, p, V.numel() // p))
        d = torch.bmm(self.matrices.BT_rows, half.view(p, p, -1), out=self._buffer(0, p, p, V.numel() // p**2))
        d = d.view(p, p, len(summed), self.rows, self.columns, self.c)
        summed[:, m * self.rows :] = 0
        summed[:, :, m * self.columns :] = 0
        self._tiled(summed, 0, 0, m, m).copy_(d[:m, :m])
        self._tiled(summed, m, 0, 2, m).add_(d[m:, :m])
        self._tiled(summed, 0, m, m, 2).add_(d[:m, m:])
        self._tiled(summed, m, m, 2, 2).add_(d[m:, m:])

    def _tiled(self, padded: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
        """A view of the same window in each tile: (height, width, n, rows, columns, c)."""
        s, m = padded.stride(), self.tile
        return padded.as_strided(
            (height, width, len(padded), self.rows, self.columns, padded.shape[3]),
            (s[1], s[2], s[0], m * s[1], m * s[2], s[3]),
            padded.storage_offset() + top * s[1] + left * s[2],
        )

    def _blocks(self, maps: Tensor) -> Iterator[tuple[tuple[slice, ...], Tensor]]:
        """Whole tiles and those cut off at the bottom and right: their positions, and matching views of the maps."""
        s, m = maps.stride(), self.tile
        for height, first_row, rows in _spans(m, self.h):
            for width, first_column, columns in _spans(m, self.w):
                place = (
                    slice(height), slice(width), slice(None),
                    slice(first_row, first_row + rows), slice(first_column, first_column + columns),
                )  # fmt: skip
                yield (
                    place,
                    maps.as_strided(
                        (height, width, len(maps), rows, columns, maps.shape[3]),
                        (s[1], s[2], s[0], m * s[1], m * s[2], s[3]),
                        maps.storage_offset() + m * (first_row * s[1] + first_column * s[2]),
                    ),
                )

    def _buffer(self, index: int, *shape: int) -> Tensor:
        return self.buffers[index][: torch.Size(shape).numel()].view(shape)

    def _chunks(self) -> Iterator[tuple[int, int]]:
        for start in range(0, self.n, self.chunk):
            yield start, min(self.chunk, self.n - start)


def _tiles(tile: int, extent: int) -> int:
    return -(-extent // tile)


def _spans(tile: int, extent: int) -> list[tuple[int, int, int]]:
    """Extent, first tile and number of the whole tiles along one axis, then the same for the tile that is cut off."""
    whole, rest = divmod(extent, tile)
    return ([(tile, 0, whole)] if whole else []) + ([(rest, whole, 1)] if rest else [])
