"""Random changes to training images, drawn for a whole batch at once: crop with padding, flip, colour jitter.

A transform is called with images (n, channels, height, width), uint8 or float in [0, 1], and a CPU generator; it
returns float32 in [0, 1] in channels-last memory. All randomness comes from the generator, so that a generator seeded
by the episode makes the result a function of the episode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from handful.data.table import unit_floats
from handful.errors import InvalidOptionError, ShapeError


class Transform(ABC):
    """A random change to a batch of images."""

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        """The changed images, float32 in [0, 1]; the given ones stay as they are."""
        if images.ndim != 4:
            raise ShapeError(
                f"Transforms need images of shape (n, channels, height, width), but got {tuple(images.shape)}."
            )
        changed = unit_floats(self.change(images, generator))
        return changed.contiguous(memory_format=torch.channels_last)

    @abstractmethod
    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """The changed images, in a type of the transform's choice."""


@dataclass(frozen=True)
class Crop(Transform):
    """Pad every side by `padding` black pixels, then cut out the original size at a place drawn for each image."""

    padding: int = 4

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise InvalidOptionError(f"A crop's padding must be 0 or more, but got {self.padding}.")

    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """One gather: every row of every crop is one run of memory in the padded batch."""
        n, channels, height, width = images.shape
        reach = 2 * self.padding
        top, left = torch.randint(reach + 1, (2, n, 1), generator=generator).to(images.device)
        padded = images.new_zeros((n, height + reach, width + reach, channels))
        padded[:, self.padding : self.padding + height, self.padding : self.padding + width] = images.movedim(1, -1)
        rows = torch.arange(n, device=images.device).unsqueeze(1) * (height + reach) + top
        starts = (rows + torch.arange(height, device=images.device)) * (width + reach) + left  # (n, height)
        pixels = n * (height + reach) * (width + reach)
        runs = padded.as_strided((max(pixels - width + 1, 0), width * channels), (channels, 1))
        return runs.index_select(0, starts.flatten()).view(n, height, width, channels).movedim(-1, 1)


@dataclass(frozen=True)
class Flip(Transform):
    """Mirror each image left to right with the given probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise InvalidOptionError(f"A flip's probability must lie in [0, 1], but got {self.probability}.")

    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """Mirrored copies of the chosen images are appended, and one gather takes each image or its mirror."""
        n, nhwc = len(images), images.movedim(1, -1)
        flipped = (torch.rand(n, generator=generator) < self.probability).to(images.device)
        mirrors = nhwc.index_select(0, flipped.nonzero().squeeze(1)).flip(2)
        rows = torch.where(flipped, n - 1 + flipped.cumsum(0), torch.arange(n, device=images.device))
        return torch.cat((nhwc, mirrors)).index_select(0, rows).movedim(-1, 1)


@dataclass(frozen=True)
class Jitter(Transform):
    """Scale brightness, contrast and saturation by factors b, c, s in [1 - amount, 1 + amount], drawn for each image.

    Brightness scales the pixels, contrast their distance from the image's mean grey, saturation their distance from
    their own grey. Together they are one linear map, clipped to [0, 1] at the end:
    b c s x + b c (1 - s) grey(x) + b (1 - c) mean(grey(x)).
    """

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            if not 0 <= getattr(self, name) <= 1:
                raise InvalidOptionError(f"Jitter needs {name} in [0, 1], but got {getattr(self, name)}.")

    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """One pass for the grey image, one for the map, one to clip."""
        nhwc = unit_floats(images).movedim(1, -1)
        amounts = torch.tensor([self.brightness, self.contrast, self.saturation]).view(3, 1, 1, 1, 1)
        draws = torch.rand((3, len(images), 1, 1, 1), generator=generator)
        bright, contrast, saturation = (1 + amounts * (2 * draws - 1)).to(images.device)
        grey = (nhwc @ grey_weights(nhwc)).unsqueeze(-1)
        offset = grey.mean((1, 2), keepdim=True) * (bright * (1 - contrast))
        offset = offset + grey * (bright * contrast * (1 - saturation))
        return torch.addcmul(offset, bright * contrast * saturation, nhwc).clamp_(0, 1).movedim(-1, 1)


@dataclass(frozen=True)
class Compose(Transform):
    """Several transforms, one after the other, on one generator."""

    transforms: tuple[Transform, ...]

    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """Images stay uint8, and so four times smaller, until a transform needs floats."""
        for transform in self.transforms:
            images = transform.change(images, generator)
        return images


AUGMENTATIONS: dict[str, Transform] = {"crop": Crop(), "flip": Flip(), "jitter": Jitter()}
"""Those that a recipe can name: the only list of them."""


def grey_weights(nhwc: Tensor) -> Tensor:
    """The channels' weights in a pixel's grey: luma by ITU-R 601, or a mean where the channels are not three."""
    channels = nhwc.shape[-1]
    return nhwc.new_tensor([0.299, 0.587, 0.114]) if channels == 3 else nhwc.new_full((channels,), 1 / channels)
