"""The embedding of relation networks (Sung et al. 2018, section 3.4): feature maps rather than vectors.

Padding and initial weights follow the authors' code (github.com/floodsung/LearningToCompare_FSL, b74e636).
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from handful.errors import ShapeError

WIDTH = 64


class RelationEmbedding(nn.Module):
    """Four blocks of 64 filters, batch norm and ReLU; the first two are pooled and have no padding, unlike the others.

    Maps are 19x19 at 84 pixels (miniImageNet), 5x5 at 28 (Omniglot), and 6x6 at 32, a size that the original does not
    use.
    """

    def __init__(self, channels: int = 3, width: int = WIDTH) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            _block(channels, width, 0, nn.MaxPool2d(2)),
            _block(width, width, 0, nn.MaxPool2d(2)),
            _block(width, width, 1),
            _block(width, width, 1),
        )
        start_as_original(self)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) in [0, 1] -> maps (n, 64, h, w)."""
        if min(images.shape[-2:]) < 10:
            raise ShapeError(
                f"relation-net pools an image twice and needs at least 10x10 pixels, "
                f"but got {images.shape[-2]}x{images.shape[-1]}."
            )
        maps: Tensor = self.blocks(images)
        return maps


def start_as_original(network: nn.Module) -> None:
    """Initialise weights as the authors' code does: convolutions by fan-out, linear layers small with biases of 1."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=math.sqrt(2 / (math.prod(module.kernel_size) * module.out_channels)))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.ones_(module.bias)


def _block(fan_in: int, fan_out: int, padding: int, *pool: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(fan_in, fan_out, 3, padding=padding), nn.BatchNorm2d(fan_out), nn.ReLU(), *pool)
