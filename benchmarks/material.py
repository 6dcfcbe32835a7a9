"""The images and networks that all contestants work on."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from handful import data
from handful.data.table import ClassDataset, ImageTable
from handful.embeddings import Conv4, conv4
from handful.embeddings.first_block import FirstBlock
from handful.embeddings.winograd import Conv3x3
from handful.errors import DataError


def random_split(classes: int, images: int, size: int) -> ClassDataset:
    """Random colour images: what is in a picture does not change how long it takes."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (classes * images, size, size, 3), generator=generator, dtype=torch.uint8)
    names = tuple(f"class{i}" for i in range(classes))
    return ImageTable(pixels.permute(0, 3, 1, 2), names, (images,) * classes).split("random", names)


def cifar_fs(part: str) -> tuple[ClassDataset, str]:
    """A split of CIFAR-FS if it is installed, else random images of its size; and which of the two it is."""
    try:
        benchmark = data.load("cifar-fs")
    except DataError:
        sizes = {"train": 64, "val": 16, "test": 20}
        return random_split(sizes[part], 600, 32), "random images of the size of CIFAR-FS, which is not installed"
    found: ClassDataset = getattr(benchmark, part)
    return found, "CIFAR-FS"


def network(width: str, channels: int = 3, seed: int = 0) -> Conv4:
    """An untrained embedding; batch norm knows the scale of random activations, so that features are of order one."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        embedding = conv4(width, channels)  # type: ignore[arg-type]
        with torch.no_grad():
            for _ in range(20):
                embedding(torch.rand(20, channels, 32, 32))
    return embedding.eval()


def plain_convolutions(embedding: Conv4) -> Conv4:
    """A copy that leaves all layers to PyTorch, whatever their shape."""
    embedding = deepcopy(embedding)
    for module in embedding.modules():
        if isinstance(module, Conv3x3):
            module.__class__ = nn.Conv2d  # type: ignore[assignment]
        elif isinstance(module, FirstBlock):
            module.__class__ = nn.Sequential  # type: ignore[assignment]
    return embedding


def unit_images(dataset: ClassDataset) -> Tensor:
    """All images of a split as contiguous floats in [0, 1], the way peers hold them."""
    return dataset.images.contiguous().to(torch.float32).div_(255)


def labels(dataset: ClassDataset) -> list[int]:
    """The class of each image of a split."""
    return torch.arange(len(dataset)).repeat_interleave(dataset.counts).tolist()


def features(size: int) -> Tensor:
    """Random features for the 12,000 test images of CIFAR-FS, in the range of a trained network's."""
    return 0.3 * torch.randn(12_000, size, generator=torch.Generator().manual_seed(0))


SIZES = {"32C": 576, "64C": 1152, "wide": 8064}
"""The number of features at 32x32 pixels."""
