"""The embedded data set: pinned to the bit, cut by alphabet, hard enough, and safe in its cache."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from handful.data.sources import glyphs
from handful.data.sources.glyphs._alphabets import STEPS, Characters, gaps_of, invent, join, select, write
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
from handful.data.table import Benchmark, ImageTable


@pytest.fixture(scope="module")
def table() -> ImageTable:
    return glyphs.draw()


@pytest.fixture(scope="module")
def benchmark(table: ImageTable) -> Benchmark:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(glyphs, "draw", lambda: table)
        return glyphs.load_glyphs()


class CountedDrawing:
    """Stands in for the drawing of seed 0, which takes seconds, and counts how often it was asked for."""

    def __init__(self, table: ImageTable) -> None:
        self.pixels = table.images.numpy()
        self.calls = 0

    def __call__(self, seed: int) -> NDArray[np.uint8]:
        assert seed == 0
        self.calls += 1
        return self.pixels


@pytest.fixture
def drawing(table: ImageTable, monkeypatch: pytest.MonkeyPatch) -> CountedDrawing:
    counted = CountedDrawing(table)
    monkeypatch.setattr(glyphs, "_draw", counted)
    return counted


def test_the_pixels_of_seed_0_are_the_pinned_ones_to_the_bit(table: ImageTable) -> None:
    assert hashlib.sha256(table.images.numpy().tobytes()).hexdigest() == glyphs.SHA256


def test_there_are_over_a_thousand_classes_of_twenty_grey_28x28_images(table: ImageTable) -> None:
    assert len(table.classes) >= 1000
    assert set(table.counts) == {20}
    assert table.images.shape == (20 * len(table.classes), 1, 28, 28)


def test_a_class_is_named_after_its_alphabet_and_grouped_by_it(table: ImageTable) -> None:
    assert "alphabet07/character12" in table.classes
    assert table.groups == tuple(name.split("/")[0] for name in table.classes)


def test_splits_share_no_alphabet_and_together_hold_every_class(benchmark: Benchmark, table: ImageTable) -> None:
    splits = (benchmark.train, benchmark.val, benchmark.test)
    alphabets = [set(split.groups or ()) for split in splits]
    assert [len(names) for names in alphabets] == [32, 6, 12]
    assert len(set.union(*alphabets)) == 50
    assert benchmark.train.classes + benchmark.val.classes + benchmark.test.classes == table.classes


def test_every_drawing_shows_ink_on_an_empty_ground(table: ImageTable) -> None:
    images = table.images.numpy()
    assert images.max(axis=(1, 2, 3)).min() >= 128
    assert (images == 0).mean(axis=(1, 2, 3)).min() > 0.4
    # Omniglot at this size: 0.078 of the pixels' ink on average over the background set, 0.084 over the evaluation set
    assert 0.06 < images.mean() / 255 < 0.10


def test_no_two_drawings_are_alike(table: ImageTable) -> None:
    rows = {image.tobytes() for image in table.images.numpy()}
    assert len(rows) == len(table.images)


def test_raw_pixels_do_better_than_chance_but_far_from_well(benchmark: Benchmark) -> None:
    images = benchmark.test.images.numpy().reshape(-1, 20, SIDE * SIDE).astype(np.float32) / 255
    generator = np.random.default_rng(0)
    hits = []
    for _ in range(400):
        chosen = images[generator.choice(len(images), 5, replace=False)]
        support, query = chosen[:, 0], chosen[:, 1:6]
        apart = ((query[:, :, None] - support) ** 2).sum(axis=-1)
        hits.append((apart.argmin(axis=-1) == np.arange(5)[:, None]).mean())
    # chance is 0.2; Omniglot gives 0.45 to 0.47; the error of the mean over 400 episodes is below 0.01
    assert 0.35 < np.mean(hits) < 0.6


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


def test_the_cache_is_written_once_and_mapped_afterwards(tmp_path: Path, drawing: CountedDrawing) -> None:
    first = glyphs.load_glyphs(tmp_path / "data")
    second = glyphs.load_glyphs(tmp_path / "data")
    assert drawing.calls == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["glyphs.npy"]
    assert np.array_equal(np.load(tmp_path / "data" / "glyphs.npy"), drawing.pixels)
    assert first.test.classes == second.test.classes
    assert np.array_equal(second.train.table.images.numpy(), drawing.pixels)


@pytest.mark.parametrize("damage", ["pixel", "header", "cut", "longer", "empty", "foreign"])
def test_a_damaged_or_foreign_cache_file_is_drawn_anew(damage: str, tmp_path: Path, drawing: CountedDrawing) -> None:
    glyphs.load_glyphs(tmp_path)
    path = tmp_path / "glyphs.npy"
    good = path.read_bytes()
    flip = {"pixel": 1_000_000, "header": 60}.get(damage)
    if flip is not None:
        path.write_bytes(good[:flip] + bytes([good[flip] ^ 1]) + good[flip + 1 :])
    else:
        path.write_bytes({"cut": good[:-1], "longer": good + b"\0", "empty": b"", "foreign": b"PK\3\4" * 99}[damage])
    loaded = glyphs.load_glyphs(tmp_path)
    assert drawing.calls == 2
    assert np.array_equal(loaded.train.table.images.numpy(), drawing.pixels)
    assert path.read_bytes() == good


def test_writing_to_mapped_images_does_not_change_the_file(tmp_path: Path, drawing: CountedDrawing) -> None:
    glyphs.load_glyphs(tmp_path)
    mapped = glyphs.load_glyphs(tmp_path)
    mapped.train.table.images[:5] = 7
    assert np.array_equal(np.load(tmp_path / "glyphs.npy"), drawing.pixels)


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path, drawing: CountedDrawing) -> None:
    (tmp_path / "occupied").write_text("a file where the folder should be")
    loaded = glyphs.load_glyphs(tmp_path / "occupied")
    assert drawing.calls == 1
    assert np.array_equal(loaded.val.table.images.numpy(), drawing.pixels)


def test_a_write_that_fails_leaves_no_temporary_file(
    tmp_path: Path, drawing: CountedDrawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", refuse)
    glyphs.load_glyphs(tmp_path)
    assert drawing.calls == 1
    assert list(tmp_path.iterdir()) == []
