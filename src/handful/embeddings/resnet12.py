"""ResNet-12: four residual blocks of three convolutions, with DropBlock (Lee et al. 2019, section 4.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from handful.embeddings.dropout import Dropout
from handful.embeddings.winograd import Conv3x3
from handful.errors import InvalidOptionError, ShapeError

WIDTHS = (64, 160, 320, 640)
LEAK = 0.1
ANNEALING = 40_000
"""Number of training passes in which the share of dropped features rises from 0 to its final value."""
BLOCK_SIZE, SMALL_BLOCK_SIZE, SMALL_SIDE = 5, 2, 64
"""Side of DropBlock's squares, and their side for images below 64 pixels (CIFAR), as in MetaOptNet's train.py."""


class DropBlock(nn.Module):
    """Drops squares of `size` x `size` positions of a feature map, separately for each channel (Ghiasi et al. 2018).

    Squares would cover a share `rate` of all positions if they did not overlap; the share rises linearly to `rate` in
    the first `annealing` training passes (MetaOptNet's models/ResNet12_embedding.py). The rest is scaled up so that the
    sum stays the same. In evaluation mode maps are not changed.
    """

    passes: Tensor

    def __init__(self, rate: float, size: int, annealing: int = ANNEALING) -> None:
        super().__init__()
        if not 0 <= rate < 1 or size < 1:
            raise InvalidOptionError(f"DropBlock needs 0 <= rate < 1 and size >= 1, but got {rate} and {size}.")
        self.rate, self.size, self.annealing = rate, size, annealing
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, maps: Tensor) -> Tensor:
        """(n, channels, height, width) -> the same shape."""
        if not self.training or not self.rate:
            return maps
        if not torch._C._are_functorch_transforms_active():  # they forbid it, so MAML's inner loop is not counted
            self.passes += 1
        # as a tensor, because reading a number would wait for the device
        rate = self.rate * (self.passes.float() / max(1, self.annealing)).clamp_max(1)
        kept = self._kept(maps, rate)
        return maps * kept * (kept.numel() / kept.sum().clamp_min(1))

    def _kept(self, maps: Tensor, rate: Tensor) -> Tensor:
        """A mask that is 0 in squares with random corners, and 1 elsewhere."""
        size = min(self.size, *maps.shape[-2:])
        places = [extent - size + 1 for extent in maps.shape[-2:]]
        share = (rate * (math.prod(maps.shape[-2:]) / math.prod(places) / size**2)).clamp_max(1)
        corners = torch.bernoulli(share.to(maps.dtype).expand(*maps.shape[:2], *places))
        around = nn.functional.pad(corners, (size - 1,) * 4)
        return 1 - nn.functional.max_pool2d(around, size, stride=1)


class ResNet12(nn.Module):
    """64, 160, 320 and 640 channels; each block halves the map. Dropout after blocks 1 and 2, DropBlock after 3 and 4.

    Without `pool` the last map is flattened (16,000 features at 84x84, for the ridge and SVM learners); with it, the
    map is averaged over its positions (640 features). `block_size` is 5 for miniImageNet and 2 for CIFAR
    (`block_size_for`).
    """

    def __init__(
        self,
        channels: int = 3,
        *,
        dropout: float = 0.1,
        block_size: int = BLOCK_SIZE,
        pool: bool = False,
        widths: tuple[int, int, int, int] = WIDTHS,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise InvalidOptionError(f"dropout is a probability in [0, 1), but got {dropout}.")
        first, second, third, fourth = widths
        self.blocks = nn.Sequential(
            _Block(channels, first, Dropout(dropout)),
            _Block(first, second, Dropout(dropout)),
            _Block(second, third, DropBlock(dropout, block_size)),
            _Block(third, fourth, DropBlock(dropout, block_size)),
        )
        self.pool = pool
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="leaky_relu")

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) in [0, 1] -> features (n, e)."""
        if min(images.shape[-2:]) < 16:
            raise ShapeError(
                f"ResNet-12 halves an image four times, so it needs at least 16x16 pixels, "
                f"but got {images.shape[-2]}x{images.shape[-1]}."
            )
        maps: Tensor = self.blocks(images)
        return maps.mean((-2, -1)) if self.pool else maps.flatten(1)

    def feature_maps(self) -> nn.Sequential:
        """Feature maps for learners that compare them: the same blocks, not pooled or flattened at the end."""
        return self.blocks


def block_size_for(side: int) -> int:
    """The side of DropBlock's squares for images of this side; the last maps of small images are only 2x2."""
    return SMALL_BLOCK_SIZE if side < SMALL_SIDE else BLOCK_SIZE


class _Block(nn.Module):
    """Three 3x3 convolutions with batch norm and a 1x1 shortcut, then leaky ReLU, 2x2 max-pool and dropout."""

    def __init__(self, fan_in: int, fan_out: int, drop: nn.Module) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (fan_in, fan_out, fan_out):
            layers += [
                Conv3x3(inputs, fan_out, bias=False),
                nn.BatchNorm2d(fan_out),
                nn.LeakyReLU(LEAK),
            ]
        self.body = nn.Sequential(*layers[:-1])  # the last activation comes after the sum
        self.shortcut = nn.Sequential(nn.Conv2d(fan_in, fan_out, 1, bias=False), nn.BatchNorm2d(fan_out))
        self.end = nn.Sequential(nn.LeakyReLU(LEAK), nn.MaxPool2d(2), drop)

    def forward(self, maps: Tensor) -> Tensor:
        """(n, fan_in, h, w) -> (n, fan_out, h // 2, w // 2)."""
        out: Tensor = self.end(self.body(maps) + self.shortcut(maps))
        return out
