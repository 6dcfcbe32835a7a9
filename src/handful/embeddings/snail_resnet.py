"""The embeddings of SNAIL (Mishra et al. 2018, section 5.1 and appendix): a small ResNet, and four blocks for Omniglot.

No code was released. The paper's figures give filters, pooling and dropout. Convolutions of the ResNet have no biases,
as in a well-known reimplementation (github.com/eambutu/snail-pytorch, c07c679, src/resnet_blocks.py); our other choices
are described below.
"""

from __future__ import annotations

from torch import Tensor, nn

from handful.embeddings.dropout import Dropout
from handful.errors import InvalidOptionError, ShapeError

WIDTHS = (64, 96, 128, 256)
BEFORE_LAST, FEATURES = 2048, 384
LEAK = 0.1
CHARACTER_WIDTH = 64


class SNAILResNet(nn.Module):
    """Residual blocks of 64, 96, 128 and 256 filters, a 1x1 convolution to 2048, its mean, and a layer to 384 features.

    `dropout` is the share that is dropped after each block and before the last layer. We read the paper's "0.9" as the
    share that is kept, because dropping nine of ten values five times in a row leaves nothing to learn from. Pooling
    rounds sizes up, so that 84 pixels give the 6x6 positions over which the paper averages.
    """

    def __init__(self, channels: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise InvalidOptionError(f"dropout is a probability in [0, 1), but got {dropout}.")
        first, second, third, fourth = WIDTHS
        self.blocks = nn.Sequential(
            _Residual(channels, first, dropout),
            _Residual(first, second, dropout),
            _Residual(second, third, dropout),
            _Residual(third, fourth, dropout),
        )
        self.widen = nn.Conv2d(fourth, BEFORE_LAST, 1, bias=False)
        self.project = nn.Sequential(nn.ReLU(), Dropout(dropout), nn.Linear(BEFORE_LAST, FEATURES, bias=False))

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) in [0, 1] -> features (n, 384)."""
        # a 1x1 convolution commutes with the mean over positions, and is 36 times cheaper on the mean
        mean = self.blocks(images).mean((-2, -1), keepdim=True)
        features: Tensor = self.project(self.widen(mean).flatten(1))
        return features


class CharacterNet(nn.Module):
    """For Omniglot, the four blocks of matching networks: 64 filters, batch norm, ReLU, 2x2 pooling; 64 features."""

    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        widths = (channels, *[CHARACTER_WIDTH] * 4)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(fan_in, CHARACTER_WIDTH, 3, padding=1),
                    nn.BatchNorm2d(CHARACTER_WIDTH),
                    nn.ReLU(),
                    nn.MaxPool2d(2),
                )
                for fan_in in widths[:-1]
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) in [0, 1] -> features (n, 64) at 28x28 pixels."""
        if min(images.shape[-2:]) < 16:
            raise ShapeError(
                f"snail-resnet halves an image four times and needs at least 16x16 pixels, "
                f"but got {images.shape[-2]}x{images.shape[-1]}."
            )
        maps: Tensor = self.blocks(images)
        return maps.flatten(1)


def snail_resnet(channels: int = 3, dropout: float = 0.1) -> nn.Module:
    """The original network for images with this many channels; one channel means Omniglot, which has no dropout."""
    if channels != 1:
        return SNAILResNet(channels, dropout)
    if dropout:
        raise InvalidOptionError(f"SNAIL's embedding for Omniglot has no dropout, but got dropout = {dropout}.")
    return CharacterNet(channels)


class _Residual(nn.Module):
    """Three 3x3 convolutions, each with batch norm and leaky ReLU, plus a 1x1 shortcut; then pooling and dropout."""

    def __init__(self, fan_in: int, fan_out: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (fan_in, fan_out, fan_out):
            layers += [
                nn.Conv2d(inputs, fan_out, 3, padding=1, bias=False),
                nn.BatchNorm2d(fan_out),
                nn.LeakyReLU(LEAK),
            ]
        self.body = nn.Sequential(*layers)
        self.shortcut = nn.Conv2d(fan_in, fan_out, 1, bias=False)
        self.end = nn.Sequential(nn.MaxPool2d(2, ceil_mode=True), Dropout(dropout))

    def forward(self, maps: Tensor) -> Tensor:
        """(n, fan_in, h, w) -> (n, fan_out, ceil(h / 2), ceil(w / 2))."""
        out: Tensor = self.end(self.body(maps) + self.shortcut(maps))
        return out
