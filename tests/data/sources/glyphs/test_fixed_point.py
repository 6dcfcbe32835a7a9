"""Drawing in integers: random numbers, sines and ink are those of the formulas in real numbers."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from handful.data.sources.glyphs._fixed_point import (
    FULL_TURN,
    ONE,
    PIXEL,
    RADII,
    SIDE,
    Dice,
    cosine,
    rasterise,
    rotate,
    sine,
)

STEPS = 16


def splitmix64(key: int, counter: int) -> int:
    """The reference in Python's own integers."""
    mask = (1 << 64) - 1
    mixed = (key + counter * 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return mixed ^ (mixed >> 31)


def test_dice_are_splitmix64_of_a_hashed_label() -> None:
    key = int.from_bytes(hashlib.sha256(b"11/slant").digest()[:8], "little")
    bits = Dice(11).bits("slant", (2, 3))
    assert bits.ravel().tolist() == [splitmix64(key, counter) for counter in range(1, 7)]


def test_dice_keep_their_bounds_weights_and_deviations() -> None:
    dice = Dice(0)
    faces = dice.between("faces", -2, 3, (60_000,))
    assert np.unique(faces).tolist() == [-2, -1, 0, 1, 2, 3]
    assert np.bincount(faces + 2).min() > 9_600  # 10,000 each; 4.4 deviations of 91
    chosen = dice.choose("weights", (1, 0, 3), (40_000,))
    assert abs((chosen == 2).mean() - 0.75) < 0.01  # 4.6 deviations of 0.0022
    assert not (chosen == 1).any()
    normal = dice.normal("bell", 1000, (40_000,))
    assert abs(normal.mean()) < 25  # 5 deviations of 5
    assert abs(normal.std() - 1000) < 25


def test_children_of_dice_differ_from_each_other_and_from_their_parent() -> None:
    dice = Dice(0)
    rolls = {roller.bits("x", (1,)).item() for roller in (dice, dice.child("a"), dice.child("b"))}
    assert len(rolls) == 3


def test_integer_sine_and_cosine_follow_the_real_ones() -> None:
    angle = np.arange(-FULL_TURN, 2 * FULL_TURN)
    radians = 2 * np.pi * angle / FULL_TURN
    # the formula is off by 0.00164 at most, and rounding down adds 1/4096
    np.testing.assert_allclose(sine(angle) / ONE, np.sin(radians), atol=0.002)
    np.testing.assert_allclose(cosine(angle) / ONE, np.cos(radians), atol=0.002)


def test_a_quarter_turn_takes_right_to_down() -> None:
    turned = rotate(np.array([[100, 0], [0, 100]]), np.array(FULL_TURN // 4))
    assert turned.tolist() == [[0, 100], [-100, 0]]


def distance_to_segment(pixel: tuple[float, float], begin: NDArray[np.int64], end: NDArray[np.int64]) -> float:
    x, y = (end - begin).tolist()
    from_x, from_y = pixel[0] - begin[0], pixel[1] - begin[1]
    along = min(1.0, max(0.0, (from_x * x + from_y * y) / max(x * x + y * y, 1)))
    return math.hypot(from_x - along * x, from_y - along * y)


def test_ink_falls_with_the_true_distance_to_the_stroke() -> None:
    strokes = Dice(4).between("strokes", -PIXEL, (SIDE + 1) * PIXEL, (3, 2, STEPS + 1, 2))
    drawn = np.array([[True, True], [True, False], [True, True]])
    pen = Dice(4).between("pen", 0, RADII - 1, (3, 2, STEPS))
    images = rasterise(strokes, drawn, pen)
    rim = 5 * PIXEL / 4
    for image, stroke in zip(*np.nonzero(drawn), strict=True):
        strokes_of = [(strokes[image, s], pen[image, s]) for s in np.flatnonzero(drawn[image])]
        for row, column in ((0, 0), (13, 14), (27, 5), (int(stroke) + 9, 20)):
            pixel = ((column + 0.5) * PIXEL, (row + 0.5) * PIXEL)
            expected = max(
                ((radius + 6) * PIXEL / 24 + rim / 2 - distance_to_segment(pixel, path[step], path[step + 1])) / rim
                for path, radii in strokes_of
                for step, radius in enumerate(radii)
            )
            # integer distances are off by less than 3 of 320 units at the rim: 3 grey levels of 255
            assert abs(images[image, row, column] - 255 * min(1, max(0, expected))) <= 3


def test_a_stroke_off_the_page_leaves_no_trace_on_its_neighbours() -> None:
    strokes = np.full((3, 1, STEPS + 1, 2), 14 * PIXEL)
    strokes[1] = 1000 * PIXEL
    strokes[1, :, ::2] = -1000 * PIXEL
    alone = np.array([[False], [True], [False]])
    images = rasterise(strokes, alone, np.full((3, 1, STEPS), RADII - 1))
    assert images[0].max() == 0
    assert images[2].max() == 0
