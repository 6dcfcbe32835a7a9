"""The embedded data set: pinned to the bit, cut by alphabet, hard enough, and safe in its cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from handful.data.sources import glyphs
from handful.data.sources.glyphs._fixed_point import (
    SIDE,
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
