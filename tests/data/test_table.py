"""Image tables and their splits: shapes that belong together, rows, inputs, and a `repr` without pixels."""

from __future__ import annotations

import pytest
import torch

from handful.data.table import CONVERT_BYTES, Benchmark, ImageTable, unit_floats
from handful.errors import DataError, ShapeError


def table(channels: int = 3, size: int = 4) -> ImageTable:
    """Classes a, b, c with 2, 3 and 1 images of random pixels, in channels-last memory."""
    pixels = torch.randint(
        256, (6, size, size, channels), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    return ImageTable(pixels.permute(0, 3, 1, 2), ("a", "b", "c"), (2, 3, 1))


def test_a_split_numbers_its_rows_class_by_class() -> None:
    split = table().split("train", ["c", "b"])
    assert split.classes == ("c", "b")
    assert split.rows.tolist() == [5, 2, 3, 4]
    assert torch.equal(split.images, table().images[[5, 2, 3, 4]])


@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 2, 2), (0,)])
def test_inputs_are_gathered_pixels_divided_by_255(shape: tuple[int, ...]) -> None:
    split = table().split("train", ["a", "b", "c"])
    rows = torch.randint(6, shape, generator=torch.Generator().manual_seed(1))
    inputs = split.inputs(rows)
    assert inputs.dtype == torch.float32
    assert inputs.shape == (*shape, 3, 4, 4)
    assert torch.equal(inputs, split.table.images[rows].float() / 255)
    assert inputs.movedim(-3, -1).is_contiguous()


def test_large_batches_are_converted_block_by_block_to_the_same_values() -> None:
    images = torch.arange(256, dtype=torch.uint8).repeat(2 * CONVERT_BYTES // 256).view(-1, 1, 64, 64)
    assert 4 * images.numel() > CONVERT_BYTES
    assert torch.equal(unit_floats(images), images.float() / 255)
    floats = torch.rand(2, 3, 4, 4)
    assert torch.equal(unit_floats(floats), floats)


def test_reprs_say_what_there_is_and_show_no_pixels() -> None:
    images = table(channels=1, size=28)
    benchmark = Benchmark("letters", *(images.split(part, [name]) for part, name in zip(PARTS, "abc", strict=True)))
    assert repr(images) == "ImageTable(3 classes, 6 images of 28 x 28 grey)"
    assert repr(benchmark.val) == "ClassDataset('val', 1 classes, 3 images of 28 x 28 grey)"
    assert repr(benchmark) == "Benchmark('letters', 1 train, 1 val, 1 test classes, 6 images of 28 x 28 grey)"


PARTS = ("train", "val", "test")


def test_what_does_not_belong_together_is_refused() -> None:
    images = table().images
    with pytest.raises(ShapeError, match="uint8"):
        ImageTable(images.float(), ("a",), (6,))
    with pytest.raises(ShapeError, match="sum to 5"):
        ImageTable(images, ("a", "b"), (2, 3))
    with pytest.raises(DataError, match=r"once: a\."):
        ImageTable(images, ("a", "a"), (2, 4))
    with pytest.raises(ShapeError, match="2 classes but 1 group"):
        ImageTable(images, ("a", "b"), (2, 4), ("x",))
    with pytest.raises(DataError, match=r"'train'.*1 classes.* z\."):
        table().split("train", ["a", "z"])
    with pytest.raises(DataError, match=r"'a' of x .*'train' and 'test'"):
        Benchmark("x", *(table().split(part, [name]) for part, name in zip(PARTS, "aba", strict=True)))
