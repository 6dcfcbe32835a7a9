"""Two changes to the images of training episodes, in place: quarter turns, and CutMix of queries."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

TURNS = 4
"""Quarter turns of an image, including none."""


def turn_(images: Tensor, turns: Tensor) -> None:
    """Rotate each image of (..., channels, size, size) by its number (...) of quarter turns, from 0 to 3."""
    for count in range(1, TURNS):
        chosen = turns == count
        images[chosen] = images[chosen].rot90(count, (-2, -1))


def cutmix_(images: Tensor, targets: Tensor, generator: Generator) -> None:
    """Replace one box in all images (n, channels, height, width) by that of another image (Yun et al. 2019).

    The box has a uniformly drawn share of the area and a uniformly drawn centre, and is cut off at the border. Targets
    (n, way) become means of both images' targets, weighted by their visible areas.
    """
    height, width = images.shape[-2:]
    share, y, x = torch.rand(3, generator=generator).tolist()
    others = torch.randperm(len(images), generator=generator)
    (top, bottom), (left, right) = (_span(centre, math.sqrt(share), size) for centre, size in ((y, height), (x, width)))
    images[..., top:bottom, left:right] = images[others, ..., top:bottom, left:right]
    targets.lerp_(targets[others], (bottom - top) * (right - left) / (height * width))


def _span(centre: float, share: float, size: int) -> tuple[int, int]:
    """Where a share of an axis around a relative centre begins and ends, in pixels."""
    ends = (round(size * (centre + side * share / 2)) for side in (-1, 1))
    first, last = (min(max(end, 0), size) for end in ends)
    return first, last
