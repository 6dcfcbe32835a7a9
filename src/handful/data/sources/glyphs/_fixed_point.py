"""Drawing with integers, for the same bits on every machine: random numbers, sines, and rasterised pen strokes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import isqrt

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

FULL_TURN = 1024
"""Angles are integers; this is a full turn."""

ONE = 4096
"""Factors (sines, scales, shears) are integers; this is 1."""

_FOUR_UNIFORMS_STD = 37837


class Dice:
    """Random integers by hashing a counter (splitmix64, Steele et al. 2014): every label has its own sequence."""

    def __init__(self, seed: int | str) -> None:
        self._seed = seed

    def child(self, label: str) -> Dice:
        """Independent dice, with unrelated sequences."""
        return Dice(f"{self._seed}/{label}")

    def bits(self, label: str, shape: Sequence[int]) -> NDArray[np.uint64]:
        """64 random bits per entry."""
        key = int.from_bytes(hashlib.sha256(f"{self._seed}/{label}".encode()).digest()[:8], "little")
        counter = np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64)
        mixed = np.uint64(key) + counter * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (mixed ^ (mixed >> np.uint64(31))).reshape(shape)

    def between(self, label: str, low: int, high: int, shape: Sequence[int]) -> IntArray:
        """Uniform integers from `low` to `high`, both included."""
        wide = (self.bits(label, shape) >> np.uint64(32)).astype(np.int64)
        return low + ((wide * (high - low + 1)) >> 32)

    def normal(self, label: str, std: int | IntArray, shape: Sequence[int]) -> IntArray:
        """Integers that look normal: the sum of four uniforms, so never beyond 3.5 standard deviations."""
        bits = self.bits(label, shape)
        quarters = sum(((bits >> np.uint64(16 * part)) & np.uint64(0xFFFF)).astype(np.int64) for part in range(4))
        centred: IntArray = np.asarray(quarters, dtype=np.int64) - 2 * 0xFFFF
        return centred * std // _FOUR_UNIFORMS_STD

    def choose(self, label: str, weights: Sequence[int], shape: Sequence[int]) -> IntArray:
        """Random indices into `weights`, with probabilities proportional to the weights."""
        point = self.between(label, 0, sum(weights) - 1, shape)
        return np.searchsorted(np.cumsum(weights), point, side="right").astype(np.int64)


def sine(angle: IntArray) -> IntArray:
    """The sine in units of 1/ONE by Bhaskara's rational formula, in exact integers and with an error below 0.002."""
    half = FULL_TURN // 2
    within = angle % FULL_TURN
    fold = within % half
    arch = fold * (half - fold)
    value = 16 * ONE * arch // (5 * half * half - 4 * arch)
    return np.where(within < half, value, -value)


def cosine(angle: IntArray) -> IntArray:
    """The cosine in units of 1/ONE."""
    return sine(angle + FULL_TURN // 4)


def rotate(points: IntArray, angle: IntArray) -> IntArray:
    """Points (..., 2) rotated by `angle` (...) about the origin."""
    x, y, along, across = points[..., 0], points[..., 1], cosine(angle), sine(angle)
    return np.stack([x * along - y * across, x * across + y * along], axis=-1) >> 12


SIDE = 28
"""Height and width of an image in pixels."""

PIXEL = 256
"""Coordinates are integers; this is one pixel."""

RADII = 16
"""Number of pen radii; index r is a radius of (r + 6) / 24 pixels."""

_MARGIN = 4
_CANVAS = SIDE + 2 * _MARGIN
_WINDOW = 5
_LONGEST = (_WINDOW - 3) * PIXEL
_COARSE = 5
_RIM = 5 * PIXEL // 4
_AT_ONCE = 1 << 13


def _ink_by_distance() -> NDArray[np.uint8]:
    """Ink (0 to 255) by radius and squared distance: full inside the pen, falling to zero across its rim."""
    reach = 3 * PIXEL // 2
    table = np.zeros((RADII, (reach * reach >> _COARSE) + 1), dtype=np.uint8)
    distance = np.array([isqrt(squared << _COARSE) for squared in range(table.shape[1])])
    for index in range(RADII):
        rim = (index + 6) * PIXEL // 24 + _RIM // 2
        table[index] = np.clip((rim - distance) * 255 // _RIM, 0, 255)
    return table


_INK = _ink_by_distance()


def rasterise(strokes: IntArray, drawn: NDArray[np.bool_], radius: IntArray) -> NDArray[np.uint8]:
    """Images uint8 (n, SIDE, SIDE), ink 255 on 0, of strokes (n, strokes, points, 2), x to the right and y down.

    `drawn` (n, strokes) says which strokes there are; `radius` (n, strokes, points - 1) is the pen's index in RADII.
    """
    limit = (SIDE + 1) * PIXEL
    points = np.clip(strokes, -PIXEL, limit)
    image, stroke = np.nonzero(drawn)
    begin = points[image, stroke, :-1].reshape(-1, 2)
    end = points[image, stroke, 1:].reshape(-1, 2)
    pen = radius[image, stroke].reshape(-1)
    owner = np.repeat(image, strokes.shape[2] - 1)
    begin, end, piece_of = _cut(begin, end)
    canvas = np.zeros(len(strokes) * _CANVAS * _CANVAS, dtype=np.uint8)
    for first in range(0, len(begin), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        _stamp(canvas, begin[part], end[part], pen[piece_of[part]], owner[piece_of[part]])
    inner = slice(_MARGIN, _MARGIN + SIDE)
    return np.ascontiguousarray(canvas.reshape(-1, _CANVAS, _CANVAS)[:, inner, inner])


def _cut(begin: IntArray, end: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Segments cut into pieces short enough for the window; the third array has the segment of each piece."""
    pieces = 1 + np.abs(end - begin).max(axis=1) // _LONGEST
    piece_of = np.repeat(np.arange(len(begin)), pieces)
    within = (np.arange(len(piece_of)) - np.repeat(np.cumsum(pieces) - pieces, pieces))[:, None]
    step, count, origin = (end - begin)[piece_of], pieces[piece_of][:, None], begin[piece_of]
    return origin + step * within // count, origin + step * (within + 1) // count, piece_of


def _stamp(canvas: NDArray[np.uint8], begin: IntArray, end: IntArray, pen: IntArray, owner: IntArray) -> None:
    """Draw short segments, each onto a window of pixels around it; where they overlap, the darker ink wins."""
    corner = (np.minimum(begin, end) // PIXEL) - 1
    offsets = np.arange(_WINDOW, dtype=np.int32) * PIXEL + PIXEL // 2
    start = (begin - corner * PIXEL).astype(np.int32)
    step = (end - begin).astype(np.int32)
    x = offsets[None, :] - start[:, :1]  # (segments, window)
    y = offsets[None, :] - start[:, 1:]
    length = np.maximum((step * step).sum(axis=1, dtype=np.int32), 1)
    inverse = (1 << 30) // length
    along = (x * step[:, :1])[:, None, :] + (y * step[:, 1:])[:, :, None]  # (segments, y, x)
    along = np.clip(along, 0, length[:, None, None]) * inverse[:, None, None] >> 18
    across_x = x[:, None, :] - (along * step[:, :1, None] >> 12)
    across_y = y[:, :, None] - (along * step[:, 1:, None] >> 12)
    squared = (across_x * across_x + across_y * across_y) >> _COARSE
    np.minimum(squared, _INK.shape[1] - 1, out=squared)
    ink = _INK[pen[:, None, None], squared]
    pixel = np.arange(_WINDOW)
    place = (corner[:, 1] + _MARGIN)[:, None] + pixel
    row = (owner[:, None] * _CANVAS + place) * _CANVAS
    column = (corner[:, 0] + _MARGIN)[:, None] + pixel
    np.maximum.at(canvas, (row[:, :, None] + column[:, None, :]).ravel(), ink.ravel())
