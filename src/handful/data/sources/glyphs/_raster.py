"""Pen strokes to grey pixels: the distance from each pixel to the nearest stroke, in integers only."""

from __future__ import annotations

from math import isqrt

import numpy as np
from numpy.typing import NDArray

from handful.data.sources.glyphs._dice import IntArray

SIDE = 28
"""Height and width of an image in pixels."""

PIXEL = 256
"""Coordinates are integers; this many make a pixel."""

RADII = 16
"""Pens come in this many radii: index r is a radius of (r + 6) / 24 pixels."""

_MARGIN = 4
_CANVAS = SIDE + 2 * _MARGIN
_WINDOW = 5
_LONGEST = (_WINDOW - 3) * PIXEL
_COARSE = 5
_RIM = 5 * PIXEL // 4
_AT_ONCE = 1 << 13


def _ink_by_distance() -> NDArray[np.uint8]:
    """Ink (0 to 255) by radius and squared distance: full inside the pen, falling to none across its rim."""
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
    """Segments cut into pieces short enough for the window; the third array says which segment a piece is of."""
    pieces = 1 + np.abs(end - begin).max(axis=1) // _LONGEST
    piece_of = np.repeat(np.arange(len(begin)), pieces)
    within = (np.arange(len(piece_of)) - np.repeat(np.cumsum(pieces) - pieces, pieces))[:, None]
    step, count, origin = (end - begin)[piece_of], pieces[piece_of][:, None], begin[piece_of]
    return origin + step * within // count, origin + step * (within + 1) // count, piece_of


def _stamp(canvas: NDArray[np.uint8], begin: IntArray, end: IntArray, pen: IntArray, owner: IntArray) -> None:
    """Draw short segments, each onto a window of pixels around it; where they overlap, the darker ink stays."""
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
