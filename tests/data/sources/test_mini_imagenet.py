from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from handful.data.archives import open_tree
from handful.data.sources import mini_imagenet
from handful.data.sources.mini_imagenet import class_names, official_lists
from handful.data.sources.source import Contents
from handful.data.splits import PARTS, entries
from handful.errors import DataError
from tests.data.pictures import encoded, noise, write_files, write_zip

PER_CLASS = 3
LISTS = {name: names[:PER_CLASS] for name, names in official_lists().items()}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three images a class: the first three of the official lists."""
    monkeypatch.setattr(mini_imagenet, "PER_CLASS", PER_CLASS)
    monkeypatch.setattr(mini_imagenet, "official_lists", lambda: LISTS)


def photo(wnid: str, number: int, size: int = 84) -> bytes:
    return encoded(np.full((size, size, 3), (int(wnid[1:]) * 31 + number) % 256, dtype=np.uint8), "PNG")


def number_of(file: str) -> int:
    return int(file[9:17])


def csvs(prefix: str = "") -> dict[str, bytes]:
    lists = {part: ["filename,label"] for part in PARTS}
    for entry in entries("mini-imagenet-ravi"):
        lists[entry.part] += [f"{file},{entry.name}" for file in LISTS[entry.name]]
    return {f"{prefix}{part}.csv": "\n".join(lines).encode() for part, lines in lists.items()}


def csv_layout() -> dict[str, bytes]:
    images = {f"images/{file}": photo(wnid, number_of(file)) for wnid, files in LISTS.items() for file in files}
    return {**csvs(), **images}


def class_folder_layout() -> dict[str, bytes]:
    part_of = {entry.name: entry.part for entry in entries("mini-imagenet-ravi")}
    return {
        f"{part_of[wnid]}/{wnid}/{file}": photo(wnid, number_of(file))
        for wnid, files in LISTS.items()
        for file in files
    }


def imagenet_layout() -> dict[str, bytes]:
    """Training images whose numbers have gaps and no fixed width: the list counts them in the order of the number."""
    most = {wnid: max(map(number_of, files)) + 2 for wnid, files in LISTS.items()}
    return {
        f"train/{wnid}/{wnid}_{7 * place}.JPEG": photo(wnid, place)
        for wnid, n in most.items()
        for place in range(1, n + 1)
    } | {"train/n99999999/n99999999_1.JPEG": b"another class"}


def read(path: Path) -> Contents:
    return mini_imagenet.read([open_tree(path, path.parent)])


def pixels(found: Contents) -> np.ndarray:
    return np.concatenate(list(found.pixels()))


def expected() -> np.ndarray:
    return np.array([(int(w[1:]) * 31 + number_of(file)) % 256 for w in class_names() for file in LISTS[w]])


@pytest.mark.parametrize("layout", [csv_layout, class_folder_layout, imagenet_layout])
def test_every_layout_gives_the_listed_images(layout: object, tmp_path: Path) -> None:
    assert callable(layout)
    for path in (write_files(tmp_path / "x", layout()), write_zip(tmp_path / "x.zip", layout())):
        found = read(path)
        assert found.splits["ravi"] == {"train": ((0, 64),), "val": ((64, 16),), "test": ((80, 20),)}
        assert found.classes == tuple(class_names())
        got = pixels(found)
        assert got.shape == (300, 84, 84, 3)
        assert np.array_equal(got[:, 40, 40, 0], expected())


def test_the_images_of_the_csv_layout_need_no_csv(tmp_path: Path) -> None:
    files = {name: data for name, data in csv_layout().items() if not name.endswith(".csv")}
    assert np.array_equal(pixels(read(write_files(tmp_path / "x", files)))[:, 0, 0, 0], expected())


def test_imagenet_with_csv_lists_of_ones_own_is_picked_by_them(tmp_path: Path) -> None:
    files = imagenet_layout()
    lists = csvs("mini_imagenet_ravi_")
    name = next(name for name in lists if name.endswith("train.csv"))
    first = class_names()[0]
    old, new = LISTS[first][0], f"{first}{number_of(LISTS[first][0]) - 1:08d}.jpg"
    assert new not in LISTS[first]
    lists[name] = lists[name].replace(old.encode(), new.encode())
    got = pixels(read(write_files(tmp_path / "x", {**files, **lists})))[:, 0, 0, 0]
    assert sorted(got[:3]) == sorted((int(first[1:]) * 31 + number_of(f)) % 256 for f in (new, *LISTS[first][1:]))


def test_other_sizes_are_squashed(tmp_path: Path) -> None:
    files = {name: encoded(noise(50, 200), "PNG") for name in class_folder_layout()}
    assert pixels(read(write_files(tmp_path / "x", files))).shape == (300, 84, 84, 3)


def test_a_missing_class_is_named(tmp_path: Path) -> None:
    files = {name: data for name, data in class_folder_layout().items() if "n01532829" not in name}
    with pytest.raises(DataError, match=r"1 of its 100 .*n01532829"):
        read(write_files(tmp_path / "x", files))


def test_a_class_with_too_few_images_is_named(tmp_path: Path) -> None:
    files = class_folder_layout()
    files.pop(next(name for name in files if "n01532829" in name))
    with pytest.raises(DataError, match=r"n01532829 .*3 images.* 2\b"):
        read(write_files(tmp_path / "x", files))


def test_a_folder_that_is_neither_is_refused(tmp_path: Path) -> None:
    files = imagenet_layout()
    kept = [name for name in files if "n01532829" in name]
    for name in kept[4:]:
        files.pop(name)
    with pytest.raises(DataError, match=r"n01532829 .*4 images.* 3 .* 7 "):
        read(write_files(tmp_path / "x", files))


def test_what_is_not_mini_imagenet_is_refused_with_the_layouts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"miniImageNet .*n01532829/\*\.jpg"):
        read(write_files(tmp_path / "x", {"cat/1.png": photo("n00000001", 1)}))


def test_a_list_in_another_form_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.csv .*'filename,label'.*'a,b,c'"):
        read(write_files(tmp_path / "x", {**csv_layout(), "train.csv": b"a,b,c\n"}))


def test_what_macos_adds_to_a_zip_is_neither_an_image_nor_a_list(tmp_path: Path) -> None:
    for layout in (csv_layout(), class_folder_layout()):
        copies = {f"__MACOSX/{Path(name).parent}/._{Path(name).name}": b"metadata" for name in layout}
        assert np.array_equal(pixels(read(write_zip(tmp_path / "x.zip", {**layout, **copies})))[:, 0, 0, 0], expected())


def test_a_list_may_have_the_line_ends_of_old_macs(tmp_path: Path) -> None:
    files = {name: data.replace(b"\n", b"\r") if name.endswith(".csv") else data for name, data in csv_layout().items()}
    assert np.array_equal(pixels(read(write_files(tmp_path / "x", files)))[:, 0, 0, 0], expected())


def test_a_list_that_is_no_csv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.csv .*'filename,label'.*field larger"):
        read(write_files(tmp_path / "x", {**csv_layout(), "train.csv": b"x" * 200_000}))


def test_a_list_that_is_damaged_in_its_archive_is_named(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", csv_layout())
    path.write_bytes(path.read_bytes().replace(b"filename,label", b"filename;label"))
    with pytest.raises(DataError, match=r"The list \w+\.csv cannot be read: Bad CRC"):
        read(path)
