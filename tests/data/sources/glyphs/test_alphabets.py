"""Invented alphabets: characters share strokes, are unlike each other, and every hand writes them differently."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from handful.data.sources.glyphs._alphabets import STEPS, Characters, gaps_of, invent, join, select, write
from handful.data.sources.glyphs._fixed_point import ONE, SIDE, Dice


def test_another_seed_draws_other_characters() -> None:
    first, second = (invent(Dice(seed), alphabets=2, characters=3) for seed in (0, 1))
    assert not np.array_equal(first.strokes, second.strokes)


def test_characters_of_an_alphabet_share_strokes() -> None:
    characters = invent(Dice(3), alphabets=12, characters=24)
    for strokes, drawn in zip(characters.strokes, characters.drawn, strict=True):
        shown = strokes[drawn].astype(np.float64)
        centred = shown - (shown.min(axis=1, keepdims=True) + shown.max(axis=1, keepdims=True)) / 2
        unit = (centred / np.abs(centred).max(axis=(1, 2), keepdims=True)).reshape(len(shown), -1)
        # strokes of one word differ by a quarter turn or a jitter at most where they are not taken over as they are;
        # those that are agree up to the rounding of about 1/1000 of a small stroke
        same = np.abs(unit[:, None] - unit[None]).max(axis=-1) < 0.02
        assert same.sum() > len(shown)


def test_hands_draw_the_same_character_differently_and_repeatably() -> None:
    characters = invent(Dice(5), alphabets=1, characters=4).pick(0)
    drawings = write(Dice(6), characters, hands=7)
    assert drawings.shape == (4, 7, SIDE, SIDE)
    assert len({drawing.tobytes() for drawing in drawings.reshape(-1, SIDE * SIDE)}) == 28
    assert np.array_equal(drawings, write(Dice(6), characters, hands=7))


def line(*, upright: bool) -> NDArray[np.int64]:
    path = np.linspace(-ONE // 2, ONE // 2, STEPS + 1).astype(np.int64)
    still = np.zeros_like(path)
    return np.stack([still, path] if upright else [path, still], axis=-1)


def one_stroke_characters(*paths: NDArray[np.int64]) -> Characters:
    strokes = np.stack(paths)[:, None]
    return Characters(strokes, np.ones((len(paths), 1), dtype=bool), np.zeros((len(paths), 1, 3), dtype=np.int64))


def test_of_two_characters_alike_the_selection_drops_the_later() -> None:
    upright, level = line(upright=True), line(upright=False)
    kept = select(one_stroke_characters(upright, level, upright + ONE // 100), 2)
    assert kept.tolist() == [0, 1]


def test_the_selection_drops_what_runs_over_itself_first() -> None:
    upright, level = line(upright=True), line(upright=False)
    to_and_fro = np.concatenate([level[::2], level[-3::-2]])
    kept = select(one_stroke_characters(upright, to_and_fro, level + ONE // 4, upright - ONE // 4), 2)
    assert 1 not in kept


def test_joined_strokes_keep_their_gaps_however_they_are_drawn() -> None:
    characters = invent(Dice(9), alphabets=2, characters=5)
    gaps = gaps_of(characters.strokes, characters.joints)
    moved = characters.strokes + Dice(9).normal("scatter", ONE, characters.strokes.shape)
    joined = join(moved, characters.joints, gaps)
    assert np.array_equal(gaps_of(joined, characters.joints)[..., 1:, :], gaps[..., 1:, :])
    assert np.array_equal(joined[..., 0, :, :], moved[..., 0, :, :])
    shift = joined - moved
    assert np.array_equal(shift, np.broadcast_to(shift[..., :1, :], shift.shape))
