from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from handful.data._packing import Item, decode_chunk
from handful.data.add import add
from handful.data.archives import Tree, open_tree
from handful.data.sources import omniglot
from handful.data.splits import PARTS
from handful.data.store import open_benchmark, store_path
from handful.errors import DataError
from tests.data.pictures import encoded, write_files, write_zip


def drawing() -> bytes:
    """A black bar on the left of white paper, as Omniglot's drawings are: 105 x 105, one bit."""
    paper = np.full((105, 105), True)
    paper[:, :30] = False
    return encoded(paper)


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    background = {c.split("/")[0] for part in ("train", "val") for c in omniglot.characters("lake", part)}
    png = drawing()
    return {
        f"{'images_background' if c.split('/')[0] in background else 'images_evaluation'}/{c}/{n:04d}_{d:02d}.png": png
        for n, c in enumerate(c for part in PARTS for c in omniglot.characters("lake", part))
        for d in range(1, 21)
    }


@pytest.fixture(scope="module")
def zips(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> list[Tree]:
    root = tmp_path_factory.mktemp("omniglot")
    halves = ("images_background", "images_evaluation")
    paths = [write_zip(root / f"{h}.zip", {k: v for k, v in files.items() if k.startswith(h)}) for h in halves]
    return [open_tree(path, root) for path in paths]


def test_both_zips_give_all_classes_in_the_order_of_the_vinyals_split(zips: list[Tree]) -> None:
    found = omniglot.read(zips)
    assert len(found.classes) == 1623 * 4
    assert set(found.counts) == {20}
    assert found.splits["vinyals"] == {"train": ((0, 4112),), "val": ((4112, 688),), "test": ((4800, 1692),)}
    lake = {
        part: [found.classes[f + i] for f, n in runs for i in range(n)] for part, runs in found.splits["lake"].items()
    }
    assert [len(lake[part]) for part in PARTS] == [806, 158, 659]
    assert all(name.endswith("/rot000") for names in lake.values() for name in names)
    assert found.groups is not None
    assert len(set(found.groups)) == 50


@pytest.mark.slow
def test_unpacked_folders_give_the_same(zips: list[Tree]) -> None:
    """As folders look: names below the root, the halves' own folders around the alphabets, or none."""
    flat = [Tree(Path("x"), {name.split("/", 1)[1]: blob for tree in zips for name, blob in tree.files.items()})]
    assert omniglot.read(flat).classes == omniglot.read(zips).classes


def test_one_half_alone_is_refused(zips: list[Tree]) -> None:
    with pytest.raises(DataError, match=r"images_background and images_evaluation.*659 of its 1623"):
        omniglot.read(zips[:1])


def test_a_missing_drawing_is_named(zips: list[Tree]) -> None:
    gone = next(iter(zips[0].files))
    fewer = Tree(zips[0].path, {name: blob for name, blob in zips[0].files.items() if name != gone})
    with pytest.raises(DataError, match=r"Alphabet_of_the_Magi/character01 .*20 images.* 19\b"):
        omniglot.read([fewer, zips[1]])


def test_what_is_not_omniglot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Omniglot \(Alphabet/characterNN/"):
        omniglot.read([open_tree(write_files(tmp_path / "x", {"cat/1.png": b""}), tmp_path)])


def test_ink_is_bright_on_black_and_turns_counter_clockwise(tmp_path: Path) -> None:
    tree = open_tree(write_files(tmp_path / "x", {"1.png": drawing()}), tmp_path)
    turned = [decode_chunk([Item(tree.files["1.png"], "1.png", t)], omniglot.DECODING)[0, :, :, 0] for t in range(4)]
    assert turned[0].shape == (28, 28)
    assert (turned[0][:, :7] == 255).all()
    assert (turned[0][:, 9:] == 0).all()
    sides = [turned[0][:, :7], turned[1][-7:, :], turned[2][:, -7:], turned[3][:7, :]]
    assert [int(side.min()) for side in sides] == [255] * 4  # left, bottom, right, top


# -------------------------------------------------------------------------------- pixels as in the authors' code


def one_bit_resize(data: bytes, turns: int) -> np.ndarray:
    """The released code's steps on a 1-bit image: open, rotate, resize, invert; ink is 1."""
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == "1"
        return 1 - np.asarray(image.rotate(90 * turns).resize((28, 28)), dtype=np.int64)


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("size", [105, 28, 30, 57, 211])
def test_nearest_pixels_equal_pillows_one_bit_resize(size: int, turns: int, tmp_path: Path) -> None:
    data = encoded(np.random.default_rng(size).random((size, size)) < 0.5)
    tree = open_tree(write_files(tmp_path / "x", {"1.png": data}), tmp_path)
    ours = decode_chunk([Item(tree.files["1.png"], "1.png", turns)], omniglot.NEAREST)[0, :, :, 0]
    assert np.array_equal(ours, 255 * one_bit_resize(data, turns))


@pytest.mark.data
@pytest.mark.skipif("HANDFUL_TEST_DATA" not in os.environ, reason="HANDFUL_TEST_DATA is not set")
def test_nearest_pixels_equal_pillows_one_bit_resize_on_real_drawings(tmp_path: Path) -> None:
    archive = Path(os.environ["HANDFUL_TEST_DATA"]) / "omniglot" / "images_evaluation.zip"
    blobs = [blob for name, blob in open_tree(archive, tmp_path).files.items() if name.endswith(".png")][::25]
    assert len(blobs) > 500
    items = [Item(blob, str(blob.member), turns) for blob in blobs for turns in range(4)]
    expected = np.stack([one_bit_resize(blob.read(), turns) for blob in blobs for turns in range(4)])
    assert np.array_equal(decode_chunk(items, omniglot.NEAREST)[..., 0], 255 * expected)
    antialiased = decode_chunk(items, omniglot.DECODING)
    assert len(np.unique(antialiased)) == 256


@pytest.mark.slow
def test_adding_omniglot_packs_both_kinds_and_adding_again_fills_in_a_missing_one(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    zipped, root = write_zip(tmp_path / "both.zip", files), tmp_path / "root"
    added = add("omniglot", root, [zipped])
    assert [each.header.name for each in (added, *added.companions)] == ["omniglot", "omniglot-nearest"]
    antialiased, nearest = (open_benchmark(store_path(root, name)) for name in ("omniglot", "omniglot-nearest"))
    assert antialiased.train.classes == nearest.train.classes
    assert set(nearest.val.images.unique().tolist()) == {0, 255}
    assert len(antialiased.val.images.unique()) > 2
    store_path(root, "omniglot").unlink()
    again = add("omniglot-nearest", root, [zipped])
    assert (again.header.name, again.is_new) == ("omniglot-nearest", False)
    assert [(each.header.name, each.is_new) for each in again.companions] == [("omniglot", True)]
    assert again.companions[0].header.content == added.header.content
