"""The strokes that invented alphabets are made of: lines, bows, hooks, loops and their kin, each by how it turns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from handful.data.sources.glyphs._dice import FULL_TURN, ONE, Dice, IntArray, cosine, sine

STEPS = 16
"""A stroke is a path of this many steps."""

VOCABULARY = 8
"""How many strokes an alphabet chooses from."""


class _Family(NamedTuple):
    """Strokes that turn alike: at each step by its share of a whole, which is `least` to `greatest` degrees.

    A run of equal shares is an arc, a single one between zeros is a corner, a change of sign is an inflection.
    """

    shares: tuple[int, ...]
    whole: int
    least: int
    greatest: int
    often: int


_ARC = (0, *(1,) * 15)
_FAMILIES = {
    "line": _Family((0,) * 16, 1, 0, 0, 14),
    "bow": _Family(_ARC, 15, 20, 80, 13),
    "arc": _Family(_ARC, 15, 120, 240, 15),
    "ring": _Family(_ARC, 15, 320, 390, 10),
    "hook": _Family((*(0,) * 10, *(1,) * 6), 6, 100, 220, 11),
    "cane": _Family((*(1,) * 6, *(0,) * 10), 6, 90, 200, 7),
    "double curve": _Family((0, *(1,) * 7, *(-1,) * 8), 7, 110, 220, 8),
    "corner": _Family((*(0,) * 8, 1, *(0,) * 7), 1, 55, 130, 12),
    "tick": _Family((*(0,) * 11, 1, *(0,) * 4), 1, 60, 140, 6),
    "zigzag": _Family((*(0,) * 5, 1, *(0,) * 5, -1, *(0,) * 4), 1, 70, 140, 6),
    "bracket": _Family((*(0,) * 5, 1, *(0,) * 5, 1, *(0,) * 4), 1, 75, 105, 8),
    "box": _Family((*(0,) * 4, 1, *(0,) * 3, 1, *(0,) * 3, 1, *(0,) * 3), 1, 85, 95, 5),
    "triangle": _Family((*(0,) * 6, 1, *(0,) * 4, 1, *(0,) * 4), 1, 112, 128, 4),
    "loop within": _Family((*(0,) * 4, *(1,) * 9, *(0,) * 3), 9, 300, 400, 6),
    "loop at the end": _Family((*(0,) * 7, *(1,) * 9), 9, 280, 380, 7),
    "two bumps": _Family((0, *(4,) * 7, -22, *(4,) * 7), 28, 150, 220, 7),
    "wave": _Family((0, *(1,) * 4, *(-1,) * 4, *(1,) * 4, *(-1,) * 3), 4, 80, 160, 3),
    "spiral": _Family((0, *range(2, 17)), 150, 450, 600, 4),
}


def stroke_vocabulary(dice: Dice, alphabets: int) -> IntArray:
    """The strokes that each alphabet uses, (alphabets, VOCABULARY, STEPS + 1, 2): centred, their larger side ONE."""
    shape = (alphabets, VOCABULARY)
    turns = _family_turns(dice, shape) + dice.normal("own turn", 6, (*shape, STEPS))
    heading = np.cumsum(turns, axis=-1)
    taper = dice.normal("taper", ONE // 80, shape)[..., None] * (np.arange(STEPS) - STEPS // 2)
    length = np.clip(ONE + taper, ONE // 4, 7 * ONE // 4)
    steps = np.stack([length * cosine(heading) >> 12, length * sine(heading) >> 12], axis=-1)
    points = np.concatenate([np.zeros_like(steps[..., :1, :]), np.cumsum(steps, axis=-2)], axis=-2)
    stretched = points * (ONE + dice.normal("stretch", ONE // 6, (*shape, 1, 2))) >> 12
    low, high = stretched.min(axis=-2, keepdims=True), stretched.max(axis=-2, keepdims=True)
    centred: IntArray = (2 * stretched - low - high) * ONE // (2 * (high - low).max(axis=-1, keepdims=True))
    return centred


def _family_turns(dice: Dice, shape: tuple[int, int]) -> IntArray:
    """By how much each stroke turns before each of its steps: a family, how far it turns, and to which side."""
    families = list(_FAMILIES.values())
    family = dice.choose("family", [member.often for member in families], shape)
    shares = np.array([member.shares for member in families])[family]
    whole, least, greatest = (
        np.array([getattr(member, name) for member in families])[family] for name in ("whole", "least", "greatest")
    )
    degrees = least + (dice.between("turn", 0, ONE, shape) * (greatest - least) >> 12)
    extent = degrees * FULL_TURN // 360 * (1 - 2 * dice.between("side", 0, 1, shape))
    turns: IntArray = shares * extent[..., None] // whole[..., None]
    return turns
