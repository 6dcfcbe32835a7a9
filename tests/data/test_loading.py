from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from handful.data import load
from handful.data.add import add
from handful.data.loading import load_recorded
from handful.errors import DataError, InvalidOptionError
from tests.data.pictures import class_folders, png, write_files


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'omniglut'.*glyphs, omniglot, omniglot-nearest, cifar-fs, mini-imagenet"):
        load("omniglut", root=tmp_path)


def test_a_benchmark_that_is_not_there_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="handful data add cifar-fs"):
        load("cifar-fs", root=tmp_path)


def test_nearest_omniglot_that_is_not_there_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'omniglot-nearest' .*handful data add omniglot \("):
        load("omniglot-nearest", root=tmp_path)


def test_a_folder_with_a_benchmarks_name_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "omniglot", class_folders())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="handful data add omniglot"):
        load("omniglot", root=tmp_path / "root")


@pytest.mark.slow
def test_glyphs_are_always_there_in_one_split(tmp_path: Path) -> None:
    assert load("glyphs", root=tmp_path).name == "glyphs"
    with pytest.raises(InvalidOptionError, match="only one class split"):
        load("glyphs", split="lake", root=tmp_path)


def test_an_added_data_set_loads_by_name_and_by_its_file(tmp_path: Path) -> None:
    photos = write_files(tmp_path / "photos", class_folders())
    added = add("kinds", tmp_path / "root", [photos])
    by_name = load("kinds", root=tmp_path / "root")
    by_file = load(added.path, root=tmp_path / "elsewhere")
    assert torch.equal(by_name.train.images, by_file.train.images)
    assert by_name.train.image_shape == (3, 84, 84)


def test_a_folder_loads_by_its_path_and_is_packed_once(tmp_path: Path) -> None:
    photos, root = write_files(tmp_path / "photos", class_folders()), tmp_path / "root"
    benchmark = load(photos, split="5/2/3", root=root, size=12, seed=1)
    assert benchmark.name == "photos"
    assert [len(benchmark.train), len(benchmark.val), len(benchmark.test)] == [5, 2, 3]
    assert benchmark.train.image_shape == (3, 12, 12)
    stores = {path: path.stat().st_mtime_ns for path in root.glob("*.pack")}
    load(str(photos), split="5/2/3", root=root, size=12, seed=1)
    assert {path: path.stat().st_mtime_ns for path in root.glob("*.pack")} == stores


def test_a_folder_that_changed_takes_the_place_of_its_older_state(tmp_path: Path) -> None:
    photos, root = write_files(tmp_path / "photos", class_folders()), tmp_path / "root"
    load(photos, root=root, size=8)
    assert load(photos, root=root, size=8, grey=True).train.image_shape == (1, 8, 8)
    write_files(photos, {"kind00/new.png": png(77)})
    benchmark = load(photos, root=root, size=8)
    counts = [int(n) for part in (benchmark.train, benchmark.val, benchmark.test) for n in part.counts]
    assert sorted(counts) == [4] * 9 + [5]
    assert len(list(root.glob("*.pack"))) == 2  # grey, and colour as the folder is now


def test_a_size_that_a_packed_data_set_does_not_have_is_refused(tmp_path: Path) -> None:
    add("kinds", tmp_path, [write_files(tmp_path / "photos", class_folders())])
    assert load("kinds", root=tmp_path, size=84).train.image_shape == (3, 84, 84)
    with pytest.raises(InvalidOptionError, match=r"'kinds' .*84 x 84.* size = 32"):
        load("kinds", root=tmp_path, size=32)


def test_a_damaged_store_never_loads(tmp_path: Path) -> None:
    added = add("kinds", tmp_path, [write_files(tmp_path / "photos", class_folders())])
    added.path.write_bytes(added.path.read_bytes()[:-1])
    with pytest.raises(DataError, match="damaged"):
        load("kinds", root=tmp_path)


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, handful.data, handful.data._packing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_store_with_the_name_of_a_foreign_folder_does_not_open_it(tmp_path: Path) -> None:
    photos, root = write_files(tmp_path / "photos", class_folders()), tmp_path / "root"
    root.mkdir()
    (root / "photos.pack").write_bytes(b"x")
    with pytest.raises(DataError, match="not been used on this machine"):
        load_recorded(str(photos), "5/2/3", root)
