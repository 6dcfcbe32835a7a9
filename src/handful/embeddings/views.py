"""Mean features over several views of each image, for a little more accuracy from a network that is already trained."""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError, ShapeError

STEPS = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
"""Pixels down and to the right by which a view is moved."""


class MeanOverViews(nn.Module):
    """The mean of an embedding's features over views of the image; the cost grows with their number.

    `mirror` adds the mirror image. `shift` adds copies of all views, moved by one pixel in each of the four directions;
    the border is repeated. Each image is treated separately, so an inductive method stays inductive.
    """

    def __init__(self, embedding: nn.Module, *, mirror: bool = False, shift: bool = False) -> None:
        super().__init__()
        if isinstance(embedding, nn.Identity):
            raise InvalidOptionError(
                "Views are averaged after the embedding, but this learner's network is part of the learner. "
                "Evaluate it without views."
            )
        self.embedding = embedding
        self.views = tuple(product((False, True) if mirror else (False,), STEPS if shift else STEPS[:1]))

    def extra_repr(self) -> str:
        """The number of views."""
        return f"views={len(self.views)}"

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, height, width) -> features (n, ...)."""
        if images.ndim != 4:
            raise ShapeError(f"Views need images of shape (n, channels, height, width), but got {tuple(images.shape)}.")
        height, width = images.shape[-2:]
        padded = nn.functional.pad(images, (1, 1, 1, 1), mode="replicate")
        features = []
        for mirrored, (down, right) in self.views:
            view = padded[..., 1 - down : 1 - down + height, 1 - right : 1 - right + width]
            view = view.flip(-1) if mirrored else view
            features.append(self.embedding(view.contiguous(memory_format=torch.channels_last)))
        return torch.stack(features).mean(0)
