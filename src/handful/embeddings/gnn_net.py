"""The embeddings of few-shot learning with graph neural networks (Garcia and Bruna 2018, section 6.1).

Sizes, order and rates follow models/models.py of the authors' code (github.com/vgsatorras/few-shot-gnn, 6ad1563).
"""

from __future__ import annotations

from torch import Tensor, nn

from handful.errors import ShapeError

WIDTHS = (64, 96, 128, 256)
FEATURES = 128
LEAK = 0.2
CHARACTER_WIDTH = CHARACTER_FEATURES = 64
CHARACTER_LEAK = 0.1


class GNNNet(nn.Module):
    """For colour images: 64, 96, 128 and 256 filters, each block halving the map, then a linear layer to 128 features.

    Blocks are convolution, batch norm, max-pool and leaky ReLU; the second convolution has no padding. Whole channels
    are dropped after block 3 (0.4 of them) and block 4 (0.5). The linear layer ends in batch norm.
    """

    def __init__(self, channels: int = 3, side: int = 84) -> None:
        super().__init__()
        first, second, third, fourth = WIDTHS
        positions = ((side // 2 - 2) // 2 // 4) ** 2
        if positions < 1:
            raise ShapeError(
                f"gnn-net halves an image four times and needs at least 20x20 pixels, but got {side}x{side}."
            )
        self.side = side
        self.blocks = nn.Sequential(
            _block(channels, first, padding=1, leak=LEAK),
            _block(first, second, padding=0, leak=LEAK),
            nn.Sequential(*_block(second, third, padding=1, leak=LEAK), nn.Dropout2d(0.4)),
            nn.Sequential(*_block(third, fourth, padding=1, leak=LEAK), nn.Dropout2d(0.5)),
        )
        self.project = nn.Sequential(nn.Linear(fourth * positions, FEATURES), nn.BatchNorm1d(FEATURES))

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, side, side) in [0, 1] -> features (n, 128)."""
        _check_side(images, self.side)
        features: Tensor = self.project(self.blocks(images).flatten(1))
        return features


class CharacterNet(nn.Module):
    """For Omniglot: four blocks of 64 filters, pooling in the first two only, then a linear layer to 64 features.

    The last two convolutions have no padding. The linear layer ends in batch norm and a leaky ReLU of slope 0.01.
    """

    def __init__(self, channels: int = 1, side: int = 28) -> None:
        super().__init__()
        width = CHARACTER_WIDTH
        left = side // 4 - 4
        if left < 1:
            raise ShapeError(f"gnn-net needs characters of at least 20x20 pixels, but got {side}x{side}.")
        self.side = side
        self.blocks = nn.Sequential(
            _block(channels, width, padding=1, leak=CHARACTER_LEAK),
            _block(width, width, padding=1, leak=CHARACTER_LEAK),
            _block(width, width, padding=0, leak=CHARACTER_LEAK, pool=False),
            _block(width, width, padding=0, leak=CHARACTER_LEAK, pool=False),
        )
        self.project = nn.Sequential(
            nn.Linear(width * left**2, CHARACTER_FEATURES, bias=False),
            nn.BatchNorm1d(CHARACTER_FEATURES),
            nn.LeakyReLU(0.01),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, side, side) in [0, 1] -> features (n, 64)."""
        _check_side(images, self.side)
        features: Tensor = self.project(self.blocks(images).flatten(1))
        return features


def gnn_net(channels: int = 3, side: int = 84) -> nn.Module:
    """The original network for images with this many channels; one channel means Omniglot."""
    return CharacterNet(channels, side) if channels == 1 else GNNNet(channels, side)


def _block(fan_in: int, fan_out: int, padding: int, leak: float, pool: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(fan_in, fan_out, 3, padding=padding, bias=False), nn.BatchNorm2d(fan_out)]
    if pool:
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.LeakyReLU(leak))


def _check_side(images: Tensor, side: int) -> None:
    if images.shape[-2:] != (side, side):
        raise ShapeError(
            f"This gnn-net was built for images of {side}x{side} pixels, but got "
            f"{images.shape[-2]}x{images.shape[-1]}. Build it with the side of your images: "
            f"build_embedding('gnn-net', side=...)."
        )
