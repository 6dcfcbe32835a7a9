from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from handful.data import load
from handful.data.add import add
from handful.data.archives import open_tree
from handful.data.sources.folder import FolderOptions, read_folder
from handful.data.sources.source import Contents
from handful.errors import DataError, HandfulError, InvalidOptionError, NotEnoughImagesError
from tests.data.pictures import class_folders, encoded, noise, png, write_files, write_zip


def contents(path: Path, **options: object) -> Contents:
    return read_folder([open_tree(path, path.parent)], FolderOptions(**options))  # type: ignore[arg-type]


def parts(found: Contents) -> list[tuple[str, ...]]:
    scheme = next(iter(found.splits.values()))
    return [tuple(n for first, k in scheme[part] for n in found.classes[first : first + k]) for part in scheme]


def test_classes_stand_in_the_order_of_the_split(tmp_path: Path) -> None:
    found = contents(write_files(tmp_path / "x", class_folders()), split="5/2/3", seed=1)
    scheme = found.splits["5/2/3"]
    assert scheme == {"train": ((0, 5),), "val": ((5, 2),), "test": ((7, 3),)}
    assert sorted(found.classes) == [f"kind{i:02d}" for i in range(10)]


def test_without_a_split_the_classes_are_dealt_by_fractions(tmp_path: Path) -> None:
    found = contents(write_files(tmp_path / "x", class_folders()))
    assert [len(part) for part in parts(found)] == [6, 2, 2]


def test_subfolders_train_val_test_are_the_split(tmp_path: Path) -> None:
    names = {"train/a": 3, "train/b": 2, "Validation/c": 2, "test/d": 4}
    files = {f"{name}/{i}.png": png(i) for name, n in names.items() for i in range(n)}
    for path in (
        write_files(tmp_path / "x", files),
        write_zip(tmp_path / "x.zip", {f"x/{k}": v for k, v in files.items()}),
    ):
        found = contents(path)
        assert list(found.splits) == ["folders"]
        assert parts(found) == [("a", "b"), ("c",), ("d",)]
        assert found.counts == (3, 2, 2, 4)


def test_a_class_in_two_parts_is_refused_unless_it_is_dealt_anew(tmp_path: Path) -> None:
    files = {f"{part}/{name}/{i}.png": png(i) for part in ("train", "test") for name in "abc" for i in range(2)}
    path = write_files(tmp_path / "x", files)
    with pytest.raises(DataError, match=r"'a' .*test and train.*--split"):
        contents(path)
    found = contents(path, split="1/1/1")
    assert sorted(found.classes) == ["a", "b", "c"]
    assert found.counts == (4, 4, 4)


def test_a_class_called_like_a_part_is_a_class(tmp_path: Path) -> None:
    files = {f"{name}/{i}.png": png(i) for name in ("train", "test", "val") for i in range(3)}
    assert sorted(contents(write_files(tmp_path / "x", files), split="1/1/1").classes) == ["test", "train", "val"]


def test_wrapping_folders_are_looked_through(tmp_path: Path) -> None:
    files = {f"download/photos/{name}": data for name, data in class_folders().items()}
    assert sorted(contents(write_zip(tmp_path / "x.zip", files)).classes)[0] == "kind00"


def test_nested_classes_are_grouped_by_their_outer_folder(tmp_path: Path) -> None:
    files = {f"{family}/{kind}/{i}.png": png(i) for family in "xyz" for kind in "ab" for i in range(2)}
    found = contents(write_files(tmp_path / "x", files))
    assert sorted(found.classes) == ["x/a", "x/b", "y/a", "y/b", "z/a", "z/b"]
    assert found.groups == tuple(name[0] for name in found.classes)


def test_hidden_foreign_and_loose_files_are_skipped_and_counted(tmp_path: Path) -> None:
    extra = {
        "kind00/.DS_Store": b"x",
        ".git/objects/1.png": png(),
        "kind01/notes.txt": b"x",
        "kind01/Thumbs.db": b"x",
        "labels.csv": b"x",
        "cover.png": png(),
    }
    found = contents(write_files(tmp_path / "x", {**class_folders(), **extra}))
    assert found.counts == (4,) * 10
    assert found.notes == (
        "skipped 2 hidden files",
        "skipped 3 files that are not images",
        "skipped 1 images outside any class folder",
    )


def test_classes_may_differ_in_their_number_of_images(tmp_path: Path) -> None:
    files = {f"kind{c}/{i}.png": png(i) for c in range(5) for i in range(c + 2)}
    found = contents(write_files(tmp_path / "x", files))
    assert dict(zip(found.classes, found.counts, strict=True)) == {f"kind{c}": c + 2 for c in range(5)}


def test_a_class_with_too_few_images_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = write_files(tmp_path / "x", {**class_folders(), "lonely/1.png": png()})
    with pytest.raises(NotEnoughImagesError, match=r"1 of 11 classes .*2 images.*'lonely' \(1\).*--min-images"):
        contents(path)
    assert "lonely" in contents(path, min_images=1).classes
    with pytest.raises(NotEnoughImagesError, match=r"11 of 11 classes .*, \.\.\.\."):
        contents(path, min_images=5)


@pytest.mark.parametrize("files", [{}, {"a.png": png()}, {"kind/readme.txt": b"x"}])
def test_a_folder_without_classes_is_refused(files: dict[str, bytes], tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(DataError, match=r"/x.*folder per class"):
        contents(write_files(tmp_path / "x", files))


@pytest.mark.parametrize("options", [{"size": 0}, {"size": 5000}, {"min_images": 0}])
def test_impossible_options_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(InvalidOptionError):
        FolderOptions(**options)  # type: ignore[arg-type]


def test_mixed_formats_modes_and_sizes_become_one_table(tmp_path: Path) -> None:
    files = {}
    for c in range(4):
        files |= {
            f"kind{c}/grey.png": encoded(noise(40, 30, 1)),
            f"kind{c}/deep.tiff": encoded(np.full((20, 20), 40_000, dtype=np.uint16), "TIFF"),
            f"kind{c}/alpha.PNG": encoded(noise(15, 15, 4)),
            f"kind{c}/photo.jpeg": encoded(noise(50, 70), "JPEG"),
            f"kind{c}/moving.gif": encoded(noise(12, 12), "GIF"),
            f"kind{c}/flat.bmp": encoded(noise(9, 200), "BMP"),
            f"kind{c}/new.webp": encoded(noise(30, 30), "WEBP"),
        }
    benchmark = load(write_files(tmp_path / "x", files), root=tmp_path / "root", size=20)
    images = benchmark.train.images
    assert images.shape == (2 * 7, 3, 20, 20)
    deep = images[2]  # alpha, deep, flat, ...: names in alphabetical order, capitals first
    assert (benchmark.train.table.images == 40_000 >> 8).flatten(1).all(1).sum() == 4
    assert deep.float().std() > 0


def test_a_truncated_image_is_named_and_nothing_is_packed(tmp_path: Path) -> None:
    path = write_files(tmp_path / "x", {**class_folders(), "kind03/9.png": png()[:-60]})
    with pytest.raises(HandfulError, match=r"kind03/9\.png"):
        load(path, root=tmp_path / "root")
    assert not list((tmp_path / "root").glob("*.pack"))
    assert not list((tmp_path / "root").glob(".*.tmp"))


def test_two_folders_with_an_image_of_the_same_name_are_refused(tmp_path: Path) -> None:
    one, other = (write_files(tmp_path / name, class_folders()) for name in ("one", "other"))
    with pytest.raises(DataError, match=r"kind00.*Rename"):
        add("merged", tmp_path / "root", [one, other], FolderOptions(size=12))
    assert not list((tmp_path / "root").glob("*.pack"))
