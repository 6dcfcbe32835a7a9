"""Hands that draw ideal characters, each in its own way: slant, size, pen, and strokes that never fall twice alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from handful.data.sources.glyphs._alphabets import STEPS, Characters, gaps_of, join
from handful.data.sources.glyphs._dice import FULL_TURN, ONE, Dice, IntArray, rotate
from handful.data.sources.glyphs._raster import PIXEL, RADII, SIDE, rasterise

_KNOTS = 5
_LETTER = 35 * PIXEL // 2


def write(dice: Dice, letters: Characters, hands: int) -> NDArray[np.uint8]:
    """The characters of one alphabet, each drawn once by each hand, (characters, hands, SIDE, SIDE)."""
    characters, strokes = letters.drawn.shape
    shape = (characters, hands)
    points = _postured(dice, _warped(dice, _restroked(dice, letters, hands)))
    page = points * _LETTER // ONE + _place(dice, shape)
    drawn = np.repeat(letters.drawn[:, None], hands, axis=1)
    pen = _pen(dice, (*shape, strokes))
    images = rasterise(
        page.reshape(-1, strokes, STEPS + 1, 2), drawn.reshape(-1, strokes), pen.reshape(-1, strokes, STEPS)
    )
    return images.reshape(*shape, SIDE, SIDE)


def _habitual(dice: Dice, label: str, std: int, shape: tuple[int, int]) -> IntArray:
    """Deviations of which half the variance is the hand's habit and half this drawing's chance."""
    half = std * 181 // 256
    return dice.normal(f"{label} by habit", half, (1, shape[1])) + dice.normal(f"{label} by chance", half, shape)


def _restroked(dice: Dice, letters: Characters, hands: int) -> IntArray:
    """Each stroke turned, sized and bent a little on its own, then joined to the others about where it belongs."""
    ideal, joints = (np.repeat(part[:, None], hands, axis=1) for part in (letters.strokes, letters.joints))
    shape = ideal.shape[:3]
    low, high = ideal.min(axis=-2, keepdims=True), ideal.max(axis=-2, keepdims=True)
    middle, side = (low + high) // 2, (high - low).max(axis=-1, keepdims=True)
    size = ONE + dice.normal("stroke size", ONE // 7, (*shape, 1, 2))
    angle = dice.normal("stroke angle", FULL_TURN // 50, shape)
    knots = dice.normal("waver", (side + ONE // 4) // 28, (*shape, _KNOTS, 2))
    waver = np.einsum("pk,...kd->...pd", _between_knots(), knots) >> 12
    tremor = dice.normal("tremor", (side + ONE // 4) // 200, ideal.shape)
    strokes = middle + rotate((ideal - middle) * size >> 12, angle[..., None]) + waver + tremor
    missed = dice.normal("missed joint", ONE // 40, (*shape, 2))
    return join(strokes, joints, gaps_of(ideal, joints) + missed)


def _between_knots() -> IntArray:
    """Weights in units of 1/ONE that spread _KNOTS values over the points of a stroke, straight from knot to knot."""
    place = np.arange(STEPS + 1) * (_KNOTS - 1) * ONE // STEPS
    weights: IntArray = np.clip(ONE - np.abs(place[:, None] - np.arange(_KNOTS) * ONE), 0, ONE)
    return weights


def _warped(dice: Dice, points: IntArray) -> IntArray:
    """The whole character on a page that a quadratic map bends, so that strokes which touch still touch."""
    x, y = points[..., 0], points[..., 1]
    bend = dice.normal("warp", ONE // 5, (*points.shape[:2], 1, 1, 3, 2))
    terms = np.stack([x * x >> 12, x * y >> 12, y * y >> 12], axis=-1)[..., None]
    warped: IntArray = points + ((terms * bend).sum(axis=-2) >> 12)
    return warped


def _postured(dice: Dice, points: IntArray) -> IntArray:
    """Slant, rotation and size of the whole character, by habit and by chance."""
    wide, high, size, slant, angle = (
        _habitual(dice, label, std, points.shape[:2])[..., None, None]
        for label, std in (
            ("wide", ONE // 15),
            ("high", ONE // 15),
            ("size", ONE // 15),
            ("slant", ONE // 6),
            ("angle", FULL_TURN // 60),
        )
    )
    y = points[..., 1] * (ONE + high) >> 12
    x = (points[..., 0] * (ONE + wide) - y * slant) >> 12
    return rotate(np.stack([x, y], axis=-1), angle) * (ONE + size[..., None]) >> 12


def _place(dice: Dice, shape: tuple[int, int]) -> IntArray:
    """Where on the page the middle of each drawing is, (characters, hands, 1, 1, 2)."""
    off = np.stack([_habitual(dice, f"place {axis}", PIXEL, shape) for axis in "xy"], axis=-1)
    return SIDE * PIXEL // 2 + off[:, :, None, None]


def _pen(dice: Dice, shape: tuple[int, int, int]) -> IntArray:
    """The pen's radius at every step of every stroke: each hand has its pen, and presses it unevenly."""
    pen = 9 + dice.choose("pen", (1, 2, 5, 8, 5, 2, 1), (1, shape[1], 1, 1))
    pressure = dice.normal("pressure", 1, (*shape, STEPS // 4))
    return np.clip(pen + np.repeat(pressure, 4, axis=-1), 0, RADII - 1)
