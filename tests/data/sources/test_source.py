"""What all sources share: images in order, and classes that are missing or of the wrong size by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from handful.data._packing import Item
from handful.data.archives import open_tree
from handful.data.decode import Decoding
from handful.data.sources.source import decoded, expect_counts, joined
from handful.errors import DataError
from tests.data.pictures import noise, png, write_files

WANTED = {"apple": 3, "bee": 3, "cup": 2}


def test_the_right_number_of_images_in_every_class_is_accepted_and_other_classes_do_not_matter() -> None:
    expect_counts({**WANTED, "extra": 9}, WANTED, "x", "Fruit")


@pytest.mark.parametrize("empty", [{}, {"bee": 0}])
def test_missing_classes_are_counted_and_named(empty: dict[str, int]) -> None:
    with pytest.raises(DataError, match=r"^here .*Fruit.* 2 of its 3 .* apple, bee\b(?!, cup)"):
        expect_counts({"cup": 2, **empty}, WANTED, "here", "Fruit")


def test_a_class_of_the_wrong_size_is_named_and_the_others_are_counted() -> None:
    with pytest.raises(DataError, match=r"bee .*3 images .*2\.$"):
        expect_counts({**WANTED, "bee": 2}, WANTED, "here", "Fruit")
    with pytest.raises(DataError, match=r"apple .*3 images .*4, .*1 more class"):
        expect_counts({**WANTED, "apple": 4, "cup": 1}, WANTED, "here", "Fruit")


def test_images_are_decoded_on_demand_in_the_order_given(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "x", {f"{i}.png": png(i) for i in range(3)})
    tree = open_tree(folder, tmp_path)
    pixels = decoded([Item(tree.files[f"{i}.png"], f"{i}.png") for i in (2, 0, 1)], Decoding(10, 10))
    expected = np.stack([noise(seed=seed) for seed in (2, 0, 1)])
    for _ in range(2):  # as often as asked for
        np.testing.assert_array_equal(np.concatenate(list(pixels())), expected)
    assert joined([tree, tree]) == f"{folder}, {folder}"
