"""Which of its candidate characters an alphabet keeps: those that can be read and that are unlike each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from handful.data.glyphs_alphabets import Characters
from handful.data.glyphs_dice import ONE, IntArray
from handful.data.glyphs_raster import PIXEL, RADII, SIDE, rasterise
from handful.data.glyphs_strokes import STEPS

_CELL = 4
_FAR = 1 << 40


def select(candidates: Characters, size: int) -> IntArray:
    """The numbers of the `size` candidates (of one alphabet) to keep, in their order.

    Half of those that go are the most tangled ones; of the rest, the later one of the two most alike goes each time.
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
    """Ink per length of stroke: little where strokes run over each other."""
    steps = np.abs(np.diff(candidates.strokes, axis=-2)).sum(axis=(-2, -1))
    openness: IntArray = ink.sum(axis=-1) * ONE // np.where(candidates.drawn, steps, 0).sum(axis=-1)
    return openness


def _unlikeness(ink: IntArray) -> IntArray:
    """How much of the ink of two characters is not shared, for each pair (first, later)."""
    total = ink.sum(axis=-1)
    apart: IntArray = np.abs(ink[:, None] - ink[None]).sum(axis=-1) * ONE // (total[:, None] + total[None])
    apart[np.tril_indices(len(apart))] = _FAR
    return apart
