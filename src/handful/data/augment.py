"""Augmentation of training images, a whole batch at once: crop with padding, flip, colour jitter.

A transform takes images (n, channels, height, width), uint8 or float in [0, 1], and a CPU generator, and returns
float32 in [0, 1] in channels-last memory. All randomness comes from the generator, so if the generator is seeded by the
episode, the result is a function of the episode.
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
        """The changed images as float32 in [0, 1]; the input is not modified."""
        if images.ndim != 4:
            raise ShapeError(
                f"Transforms need images of shape (n, channels, height, width), but got {tuple(images.shape)}."
            )
        changed = unit_floats(self.change(images, generator))
        return changed.contiguous(memory_format=torch.channels_last)

    @abstractmethod
    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """The changed images, in any dtype."""


@dataclass(frozen=True)
class Crop(Transform):
    """Pad every side by `padding` black pixels, then crop each image to its original size at a random position."""

    padding: int = 4

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise InvalidOptionError(f"A crop's padding must be 0 or more, but got {self.padding}.")

    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """Crop with a single gather: every row of a crop is contiguous in the padded batch."""
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
        """Append mirrored copies of the chosen images, then take each image or its mirror with one gather."""
        n, nhwc = len(images), images.movedim(1, -1)
        flipped = (torch.rand(n, generator=generator) < self.probability).to(images.device)
        mirrors = nhwc.index_select(0, flipped.nonzero().squeeze(1)).flip(2)
        rows = torch.where(flipped, n - 1 + flipped.cumsum(0), torch.arange(n, device=images.device))
        return torch.cat((nhwc, mirrors)).index_select(0, rows).movedim(-1, 1)


@dataclass(frozen=True)
class Jitter(Transform):
    """Scale brightness, contrast and saturation by factors b, c, s in [1 - amount, 1 + amount], drawn for each image.

    Brightness scales the pixels, contrast their distance from the image's mean grey, saturation their distance from
    their own grey. Together they form one linear map, clipped to [0, 1]:
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
        """Jitter in three passes: compute the grey image, apply the map, clip."""
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
    """Several transforms in sequence, with one generator."""

    transforms: tuple[Transform, ...]

    def change(self, images: Tensor, generator: Generator) -> Tensor:
        """Apply the transforms; images stay uint8, which is four times smaller, until a transform needs floats."""
        for transform in self.transforms:
            images = transform.change(images, generator)
        return images


AUGMENTATIONS: dict[str, Transform] = {"crop": Crop(), "flip": Flip(), "jitter": Jitter()}
"""The augmentations that a recipe can name."""


def grey_weights(nhwc: Tensor) -> Tensor:
    """The weights of the channels in a grey image: ITU-R 601 luma, or the mean if there are not three channels."""
    channels = nhwc.shape[-1]
    return nhwc.new_tensor([0.299, 0.587, 0.114]) if channels == 3 else nhwc.new_full((channels,), 1 / channels)
