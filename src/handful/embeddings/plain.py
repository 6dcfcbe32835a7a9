"""The four-block networks of the methods that the paper compares with: ReLU, and only the features of block 4.

All go back to Vinyals et al. (2016, section 4.1). They differ from the paper's own network (`conv4`) in the activation,
the stride of the last pooling, and the blocks whose features they return.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from handful.embeddings.conv4 import NORMS, Norm
from handful.embeddings.dropout import Dropout
from handful.embeddings.first_block import FirstBlock
from handful.embeddings.winograd import Conv3x3
from handful.errors import InvalidOptionError, ShapeError

PlainName = Literal["plain-32C", "plain-64C", "maml-32C", "maml-64C", "maml-64C-strided"]
"""`plain-` as in the code of Snell et al. (2017), protonets/models/few_shot.py, and of Ravi and Larochelle (2017),
model/lstm-classifier.lua; `maml-` as in that of Finn et al. (2017), utils.py and maml.py, strided on Omniglot."""

PLAIN: dict[PlainName, int] = {
    "plain-32C": 32,
    "plain-64C": 64,
    "maml-32C": 32,
    "maml-64C": 64,
    "maml-64C-strided": 64,
}
"""Filters of each convolution, by name."""

MAML_EPS = 1e-3
"""The default of TensorFlow's `contrib.layers.batch_norm`, which by default also has no scale."""


class Plain(nn.Module):
    """Four blocks of 3x3 convolution, norm, ReLU and 2x2 max-pool of stride 2; block 4 is flattened.

    The code pools before the ReLU: the maps are the same, and the ReLU has a quarter of the work.
    With `strided`, convolutions of stride 2 replace pooling, and the last map is averaged over its positions. `eps` is
    that of batch norm; without `scaled`, batch norm only shifts. `xavier` initialises the convolutions as TensorFlow
    does. `dropout` follows the last two blocks, as in `Conv4`.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        *,
        norm: Norm = "batch",
        dropout: float = 0.0,
        strided: bool = False,
        eps: float = 1e-5,
        scaled: bool = True,
        xavier: bool = False,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise InvalidOptionError(f"dropout is a probability in [0, 1), but got {dropout}.")
        self.strided = strided
        norms = [nn.BatchNorm2d(width, eps=eps) if norm == "batch" else NORMS[norm](width) for _ in range(4)]
        first, *rest = (
            _block(width if i else channels, width, each, strided, dropout if i > 1 else 0.0)
            for i, each in enumerate(norms)
        )
        self.blocks = nn.Sequential(first if strided else FirstBlock(*first), *rest)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.requires_grad_(scaled)
            if isinstance(module, nn.Conv2d) and xavier:
                nn.init.xavier_uniform_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) in [0, 1] -> features (n, e)."""
        if min(images.shape[-2:]) < 16:
            raise ShapeError(
                f"This network halves an image four times, so it needs at least 16x16 pixels, "
                f"but got {images.shape[-2]}x{images.shape[-1]}."
            )
        maps: Tensor = self.blocks(images)
        return maps.mean((-2, -1)) if self.strided else torch.flatten(maps, 1)


def plain(name: PlainName, channels: int = 3, norm: Norm = "batch", dropout: float = 0.0) -> Plain:
    """The original network of a baseline, by name."""
    width = PLAIN[name]
    if name.startswith("plain-"):
        return Plain(channels, width, norm=norm, dropout=dropout)
    strided = name.endswith("strided")
    return Plain(channels, width, norm=norm, dropout=dropout, strided=strided, eps=MAML_EPS, scaled=False, xavier=True)


class _SamePad(nn.Module):
    """Pads with zeros as TensorFlow does, so that a 3x3 convolution of stride 2 halves the size, rounded up."""

    def forward(self, maps: Tensor) -> Tensor:
        """Pad maps (n, channels, height, width): by 1 at the end of an even side, by 1 on both ends of an odd side."""
        height, width = maps.shape[-2:]
        return nn.functional.pad(maps, (width % 2, 1, height % 2, 1))


def _block(fan_in: int, fan_out: int, norm: nn.Module, strided: bool, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = [Conv3x3(fan_in, fan_out), norm, nn.MaxPool2d(2), nn.ReLU()]
    if strided:
        layers = [_SamePad(), nn.Conv2d(fan_in, fan_out, 3, stride=2), norm, nn.ReLU()]
    return nn.Sequential(*layers, Dropout(dropout)) if dropout else nn.Sequential(*layers)
