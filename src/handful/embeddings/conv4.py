"""The four-block convolutional embedding of the paper (section 4.2), in its 32C, 64C and wide versions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from handful.embeddings.dropout import Dropout
from handful.embeddings.first_block import FirstBlock
from handful.embeddings.winograd import Conv3x3
from handful.errors import InvalidOptionError, ShapeError

Norm = Literal["batch", "group", "group-unbiased"]
Width = Literal["32C", "64C", "wide"]

WIDTHS: dict[Width, tuple[int, int, int, int]] = {
    "32C": (32, 32, 32, 32),
    "64C": (64, 64, 64, 64),
    "wide": (96, 192, 384, 512),
}
GROUPS = 32
LEAK = 0.1
SMALLEST = 16
"""Pixels per side of the smallest image, whose last maps have one position."""


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, norm, max-pool, leaky ReLU 0.1; blocks 3 and 4 flattened and concatenated.

    Pooling has stride 2 in the first three blocks and 1 in the last. Block 3's output passes through one more 2x2
    max-pool of stride 1 before the concatenation; the paper's text does not mention it, but its feature sizes (3584,
    8064, 72576) require it. `shrink=False` omits it. With `concatenate=False` the features are those of block 4 alone.
    `dropout` applies to blocks 3 and 4. `norm="group-unbiased"` is the group norm of the authors' code, with the
    unbiased variance.
    """

    def __init__(
        self,
        channels: int,
        widths: tuple[int, int, int, int],
        norm: Norm = "batch",
        dropout: float = 0.0,
        concatenate: bool = True,
        shrink: bool = True,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise InvalidOptionError(f"dropout is a probability in [0, 1), but got {dropout}.")
        if norm not in NORMS:
            raise InvalidOptionError(f"norm must be one of {', '.join(NORMS)}, but got '{norm}'.")
        first, second, third, fourth = widths
        self.blocks = nn.ModuleList(
            [
                FirstBlock(*_block(channels, first, norm, stride=2, dropout=0.0)),
                _block(first, second, norm, stride=2, dropout=0.0),
                _block(second, third, norm, stride=2, dropout=dropout),
                _block(third, fourth, norm, stride=1, dropout=dropout),
            ]
        )
        self.concatenate = concatenate
        self.shrink: nn.Module = nn.MaxPool2d(2, stride=1) if shrink else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) in [0, 1] -> features (n, e)."""
        if min(images.shape[-2:]) < SMALLEST:
            raise ShapeError(
                f"Conv4 halves an image three times and then pools it once more, so it needs at least "
                f"{SMALLEST}x{SMALLEST} pixels, but got {images.shape[-2]}x{images.shape[-1]}."
            )
        third: Tensor = images
        for block in list(self.blocks)[:3]:
            third = block(third)
        fourth = self.blocks[3](third)
        if not self.concatenate:
            return torch.flatten(fourth, 1)
        return torch.cat([torch.flatten(self.shrink(third), 1), torch.flatten(fourth, 1)], dim=1)

    def feature_maps(self) -> nn.Sequential:
        """Feature maps for learners that compare them: the same blocks, with no pooling in the last two."""
        first, second, third, fourth = self.blocks
        return nn.Sequential(first, second, _unpooled(third), _unpooled(fourth))


def conv4(
    width: Width = "64C",
    channels: int = 3,
    norm: Norm = "batch",
    dropout: float = 0.0,
    concatenate: bool = True,
    shrink: bool = True,
) -> Conv4:
    """The paper's embedding with the width '32C', '64C' or 'wide' ([96, 192, 384, 512])."""
    if width not in WIDTHS:
        raise InvalidOptionError(f"width must be one of {', '.join(WIDTHS)}, but got '{width}'.")
    return Conv4(channels, WIDTHS[width], norm, dropout, concatenate, shrink)


class UnbiasedGroupNorm(nn.GroupNorm):
    """Group norm with the unbiased variance of the m values of a group: (x - mean) / sqrt(m / (m - 1) var + eps)."""

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise maps (n, channels, height, width)."""
        count = maps[0].numel() // self.num_groups
        share = (count - 1) / count
        return nn.functional.group_norm(maps, self.num_groups, self.weight * share**0.5, self.bias, self.eps * share)


NORMS: dict[Norm, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm2d,
    "group": partial(nn.GroupNorm, GROUPS),
    "group-unbiased": partial(UnbiasedGroupNorm, GROUPS),
}


def _block(fan_in: int, fan_out: int, norm: Norm, stride: int, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = [
        Conv3x3(fan_in, fan_out),
        NORMS[norm](fan_out),
        nn.MaxPool2d(2, stride=stride),
        nn.LeakyReLU(LEAK),
    ]
    return nn.Sequential(*layers, Dropout(dropout)) if dropout else nn.Sequential(*layers)


def _unpooled(block: nn.Module) -> nn.Sequential:
    return nn.Sequential(*(layer for layer in block.children() if not isinstance(layer, nn.MaxPool2d)))
