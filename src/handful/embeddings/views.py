"""A little more accuracy from a network that is already trained: mean features over views, and centred features."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError, ShapeError

FARTHEST = 4
"""The largest shift in pixels; each pixel adds four views, or eight with the mirror image."""


class MeanOverViews(nn.Module):
    """The mean of an embedding's features over views of the image; the cost grows with their number.

    `mirror` adds the mirror image. `shift` adds copies of all views, moved in each of the four directions by one pixel
    up to `shift` pixels; the border is repeated. Each image is treated separately, so an inductive method stays
    inductive.
    """

    def __init__(self, embedding: nn.Module, *, mirror: bool = False, shift: int = 0) -> None:
        super().__init__()
        _require_features(embedding)
        if not 0 <= shift <= FARTHEST:
            raise InvalidOptionError(f"shift is a number of pixels from 0 to {FARTHEST}, but got {shift}.")
        self.embedding = embedding
        self.shift = int(shift)
        self.views = tuple(product((False, True) if mirror else (False,), _steps(self.shift)))

    def extra_repr(self) -> str:
        """The number of views."""
        return f"views={len(self.views)}"

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) -> features (n, ...)."""
        if images.ndim != 4:
            raise ShapeError(f"Views need images of shape (n, channels, height, width), but got {tuple(images.shape)}.")
        (height, width), border = images.shape[-2:], self.shift
        padded = nn.functional.pad(images, (border,) * 4, mode="replicate")
        features = []
        for mirrored, (down, right) in self.views:
            view = padded[..., border - down : border - down + height, border - right : border - right + width]
            view = view.flip(-1) if mirrored else view
            features.append(self.embedding(view.contiguous(memory_format=torch.channels_last)))
        return torch.stack(features).mean(0)


class Centred(nn.Module):
    """An embedding's features less a fixed vector, for example their mean over all training images."""

    def __init__(self, embedding: nn.Module, mean: Tensor) -> None:
        super().__init__()
        _require_features(embedding)
        self.embedding = embedding
        self.register_buffer("mean", mean)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) -> features (n, ...)."""
        features: Tensor = self.embedding(images)
        return features - self.get_buffer("mean")


def _steps(shift: int) -> list[tuple[int, int]]:
    """Pixels down and to the right by which a view is moved, the nearest first."""
    moves = [((far, 0), (-far, 0), (0, far), (0, -far)) for far in range(1, shift + 1)]
    return [(0, 0), *(step for four in moves for step in four)]


def _require_features(embedding: nn.Module) -> None:
    if isinstance(embedding, nn.Identity):
        raise InvalidOptionError(
            "This changes the features of an embedding, but this learner's network is part of the learner. "
            "Evaluate it without views and without centring."
        )
