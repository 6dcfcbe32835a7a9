"""Invented alphabets, and the hands that write them: slant, size, pen, and strokes that vary with every drawing.

An alphabet combines its characters from its own few strokes. Of many candidates it keeps those that are legible and
different from each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from handful.data.sources.glyphs._fixed_point import (
    FULL_TURN,
    ONE,
    PIXEL,
    RADII,
    SIDE,
    Dice,
    IntArray,
    cosine,
    rasterise,
    rotate,
    sine,
)

STEPS = 16
"""Number of steps in the path of a stroke."""

VOCABULARY = 8
"""Number of strokes that an alphabet chooses from."""
MAX_STROKES = 5
"""The most strokes of a character."""

_CELL = 4
_FAR = 1 << 40


@dataclass(frozen=True)
class Characters:
    """Ideal characters, before a hand draws them: strokes (..., MAX_STROKES, STEPS + 1, 2), and which are drawn.

    `joints` (..., MAX_STROKES, 3) has for each stroke one of its points, the earlier stroke that it joins, and the
    point there. The origin is the middle of a character, its larger side is at most ONE; x points right and y down.
    """

    strokes: IntArray
    drawn: NDArray[np.bool_]
    joints: IntArray

    def pick(self, index: int | IntArray) -> Characters:
        """The characters at `index` along the first dimension."""
        return Characters(self.strokes[index], self.drawn[index], self.joints[index])


@dataclass(frozen=True)
class _Kinship:
    """Characters that copy their first strokes from an earlier one: related letters, or a bar that all share."""

    parent: IntArray
    taken: NDArray[np.bool_]

    def share(self, values: IntArray) -> IntArray:
        """Values (alphabets, characters, strokes), with those of the parent for strokes that are copied from it."""
        return np.where(self.taken, np.take_along_axis(values, self.parent, axis=1), values)


def invent(dice: Dice, alphabets: int, characters: int) -> Characters:
    """Invent alphabets of `characters` characters each, with strokes turned, sized, and joined to earlier ones."""
    shape = (alphabets, characters, MAX_STROKES)
    kin = _kinship(dice, shape)
    drawn = np.arange(MAX_STROKES) < _stroke_counts(dice, shape)[..., None]
    word = kin.share(dice.choose("word", (5, 5, 4, 4, 3, 3, 2, 2), shape))
    parts = _stroke_vocabulary(dice, alphabets)[np.arange(alphabets)[:, None, None], word]
    joints = _joints(dice, shape, kin)
    parts = join(_turned(dice, parts, kin), joints, _gaps(dice, shape, kin))
    return Characters(_sized(dice, np.where(drawn[..., None, None], parts, parts[:, :, :1])), drawn, joints)


def join(strokes: IntArray, joints: IntArray, gaps: IntArray) -> IntArray:
    """Move each stroke except the first so that its own point lies `gaps` (..., strokes, 2) from its joint."""
    flat = strokes.reshape(-1, *strokes.shape[-3:]).copy()
    own, other, theirs = joints.reshape(len(flat), -1, 3).transpose(2, 1, 0)
    apart = gaps.reshape(len(flat), -1, 2)
    each = np.arange(len(flat))
    for stroke in range(1, flat.shape[1]):
        goal = flat[each, other[stroke], theirs[stroke]] + apart[:, stroke]
        flat[:, stroke] += (goal - flat[each, stroke, own[stroke]])[:, None]
    return flat.reshape(strokes.shape)


def gaps_of(strokes: IntArray, joints: IntArray) -> IntArray:
    """The offset of each stroke's own point from the point that it joins, (..., strokes, 2)."""
    flat = strokes.reshape(-1, *strokes.shape[-3:])
    own, other, theirs = joints.reshape(len(flat), -1, 3).transpose(2, 0, 1)
    each, stroke = np.indices(own.shape)
    gaps: IntArray = flat[each, stroke, own] - flat[each, other, theirs]
    return gaps.reshape(*strokes.shape[:-2], 2)


def _kinship(dice: Dice, shape: tuple[int, int, int]) -> _Kinship:
    alphabets, characters, strokes = shape
    barred = dice.between("barred", 0, 99, (alphabets, 1)) < 22
    alone = dice.between("alone", 0, 99, shape[:2]) < np.where(barred, 15, 60)
    earlier = dice.between("parent", 0, 1 << 20, shape[:2]) % np.maximum(np.arange(characters), 1)
    parent = np.where(alone, np.arange(characters), np.where(barred, 0, earlier))
    shared = np.where(barred, 1, dice.between("shared", 1, 3, shape[:2]))
    return _Kinship(parent[..., None], np.arange(strokes) < shared[..., None])


def _stroke_counts(dice: Dice, shape: tuple[int, int, int]) -> IntArray:
    """How many strokes each character has: alphabets differ in how rich their characters are."""
    plain = dice.choose("plain count", (17, 44, 28, 11), shape[:2])
    rich = dice.choose("rich count", (6, 26, 34, 22, 12), shape[:2])
    return 1 + np.where(dice.between("rich", 0, 1, (shape[0], 1)) == 1, rich, plain)


def _turned(dice: Dice, parts: IntArray, kin: _Kinship) -> IntArray:
    """Strokes rotated by quarter turns (in some alphabets eighths), sometimes mirrored, in several sizes."""
    shape = parts.shape[:3]
    grain = np.where(dice.between("grain", 0, 2, (shape[0], 1, 1)) == 0, 8, 4)
    turn = kin.share(dice.between("turn of a stroke", 0, 7, shape)) * grain // 8
    angle = turn * (FULL_TURN // grain) + kin.share(dice.normal("own angle", FULL_TURN // 72, shape))
    sizes = np.array([ONE, 3 * ONE // 4, ONE // 2, ONE // 3, ONE // 12])
    size = sizes[kin.share(dice.choose("size", (10, 6, 8, 4, 1), shape))]
    size = size * (ONE + kin.share(dice.normal("own size", ONE // 12, shape))) >> 12
    mirror = np.where(kin.share(dice.between("mirror", 0, 3, shape)) == 0, -1, 1)
    scale = np.stack([size * mirror, size], axis=-1)[..., None, :]
    return rotate(parts * scale >> 12, angle[..., None])


def _joints(dice: Dice, shape: tuple[int, int, int], kin: _Kinship) -> IntArray:
    own = kin.share(dice.choose("own point", (6, 1, 1, 1, 3), shape)) * (STEPS // 4)
    other = kin.share(dice.between("other stroke", 0, 1 << 20, shape)) % np.maximum(np.arange(shape[2]), 1)
    theirs = kin.share(dice.choose("their point", (4, 2, 3, 2, 4), shape)) * (STEPS // 4)
    return np.stack([own, other, theirs], axis=-1)


def _gaps(dice: Dice, shape: tuple[int, int, int], kin: _Kinship) -> IntArray:
    """The gaps between strokes: most touch, some do not."""
    loose = kin.share(dice.between("loose", 0, 99, shape)) < 28
    apart = np.stack([kin.share(dice.normal(f"apart {axis}", ONE // 3, shape)) for axis in "xy"], axis=-1)
    return np.where(loose[..., None], apart, 0)


def _sized(dice: Dice, parts: IntArray) -> IntArray:
    """Centred characters; large ones are scaled down to ONE, small ones may stay small."""
    low, high = parts.min(axis=(2, 3), keepdims=True), parts.max(axis=(2, 3), keepdims=True)
    side = (high - low).max(axis=-1, keepdims=True)
    least = dice.between("least size", ONE // 2, ONE, (*parts.shape[:2], 1, 1, 1))
    goal = np.clip(side * 3 // 4, least, ONE)
    sized: IntArray = (2 * parts - low - high) * goal // (2 * side)
    return sized


def select(candidates: Characters, size: int) -> IntArray:
    """The numbers of the `size` candidates (of one alphabet) to keep, in their order.

    Half of the discarded candidates are the most tangled ones; after that, the later one of the two most similar is
    discarded each time.
    """
    ink = _coarse_ink(candidates)
    surplus = len(ink) - size
    tangled = np.argsort(_openness(candidates, ink), kind="stable")[: surplus // 2]
    apart = _unlikeness(ink)
    keep = np.ones(len(ink), dtype=bool)
    for gone in tangled:
        _drop(keep, apart, int(gone))
    for _ in range(surplus - surplus // 2):
        _drop(keep, apart, int(np.argmin(apart)) % len(ink))
    return np.flatnonzero(keep)


def _drop(keep: NDArray[np.bool_], apart: IntArray, gone: int) -> None:
    keep[gone] = False
    apart[gone], apart[:, gone] = _FAR, _FAR


def _coarse_ink(candidates: Characters) -> IntArray:
    """How much ink the printed characters have in each cell of a coarse grid, (characters, cells)."""
    page = candidates.strokes * (18 * PIXEL) // ONE + SIDE * PIXEL // 2
    pen = np.full((*candidates.drawn.shape, STEPS), RADII // 2)
    printed = rasterise(page, candidates.drawn, pen).astype(np.int64)
    cells = SIDE // _CELL
    ink: IntArray = printed.reshape(-1, cells, _CELL, cells, _CELL).sum(axis=(2, 4))
    return ink.reshape(len(printed), -1)


def _openness(candidates: Characters, ink: IntArray) -> IntArray:
    """Ink per length of stroke, which is low where strokes overlap."""
    steps = np.abs(np.diff(candidates.strokes, axis=-2)).sum(axis=(-2, -1))
    openness: IntArray = ink.sum(axis=-1) * ONE // np.where(candidates.drawn, steps, 0).sum(axis=-1)
    return openness


def _unlikeness(ink: IntArray) -> IntArray:
    """The share of the ink of two characters that they do not have in common, for each pair (first, later)."""
    total = ink.sum(axis=-1)
    apart: IntArray = np.abs(ink[:, None] - ink[None]).sum(axis=-1) * ONE // (total[:, None] + total[None])
    apart[np.tril_indices(len(apart))] = _FAR
    return apart


class _Family(NamedTuple):
    """A kind of stroke: each step turns by its share of a total of `least` to `greatest` degrees.

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


def _stroke_vocabulary(dice: Dice, alphabets: int) -> IntArray:
    """The strokes of each alphabet, (alphabets, VOCABULARY, STEPS + 1, 2), centred, with their larger side ONE."""
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
    """How much each stroke turns before each of its steps: a family, an amount, and a side."""
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
    """Random deviations; half of the variance is the hand's habit, half varies with the drawing."""
    half = std * 181 // 256
    return dice.normal(f"{label} by habit", half, (1, shape[1])) + dice.normal(f"{label} by chance", half, shape)


def _restroked(dice: Dice, letters: Characters, hands: int) -> IntArray:
    """Each stroke slightly turned, sized and bent, then joined to the others near its joint."""
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
    """Weights in units of 1/ONE that interpolate _KNOTS values linearly over the points of a stroke."""
    place = np.arange(STEPS + 1) * (_KNOTS - 1) * ONE // STEPS
    weights: IntArray = np.clip(ONE - np.abs(place[:, None] - np.arange(_KNOTS) * ONE), 0, ONE)
    return weights


def _warped(dice: Dice, points: IntArray) -> IntArray:
    """The whole character bent by a quadratic map, so that strokes that touch still touch."""
    x, y = points[..., 0], points[..., 1]
    bend = dice.normal("warp", ONE // 5, (*points.shape[:2], 1, 1, 3, 2))
    terms = np.stack([x * x >> 12, x * y >> 12, y * y >> 12], axis=-1)[..., None]
    warped: IntArray = points + ((terms * bend).sum(axis=-2) >> 12)
    return warped


def _postured(dice: Dice, points: IntArray) -> IntArray:
    """The whole character with slant, rotation and size, from habit and chance."""
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
    """The position of the middle of each drawing on the page, (characters, hands, 1, 1, 2)."""
    off = np.stack([_habitual(dice, f"place {axis}", PIXEL, shape) for axis in "xy"], axis=-1)
    return SIDE * PIXEL // 2 + off[:, :, None, None]


def _pen(dice: Dice, shape: tuple[int, int, int]) -> IntArray:
    """The pen's radius at every step of every stroke; each hand has its own pen and varying pressure."""
    pen = 9 + dice.choose("pen", (1, 2, 5, 8, 5, 2, 1), (1, shape[1], 1, 1))
    pressure = dice.normal("pressure", 1, (*shape, STEPS // 4))
    return np.clip(pen + np.repeat(pressure, 4, axis=-1), 0, RADII - 1)
