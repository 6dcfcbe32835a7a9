"""What counts as images: nothing is skipped in silence, and nothing but a file of an image is read."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, features

from handful.classifier import FewShotClassifier, inputs
from handful.classifier.inputs import (
    Picture,
    UnreadableImagesError,
    count_of,
    labelled_pictures,
    listed_pictures,
    pictures,
)
from handful.data import decode as decoding
from handful.data.decode import Decoding, decode, eight_bit, extensions
from handful.errors import DataError, HandfulError, InvalidOptionError
from tests.classifier.drawings import SHAPES, drawing, encoded, photograph, write_folder

SQUARE = Decoding(8, 8, channels=1, fit="squash")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "shapes", {"bar": 3, "hook": 2})


def test_every_skipped_file_is_counted_with_its_reason(folder: Path) -> None:
    (folder / "bar" / "notes.txt").write_text("not an image")
    (folder / "bar" / "IMG_0001").write_bytes(b"?")
    (folder / "bar" / ".hidden.png").write_bytes(b"?")
    (folder / "hook" / "readme.txt").write_text("not an image either")
    drawing("bar", 7).save(folder / "loose.png")
    os.mkfifo(folder / "hook" / "pipe.png")
    (folder / "about.txt").write_text("beside the class folders")
    found = labelled_pictures(folder, None)
    assert len(found.pictures) == 5
    assert {reason: len(files) for reason, files in found.skipped.items()} == {
        ".txt is not an image format": 3,
        "no extension": 1,
        "hidden": 1,
        "a broken link, a pipe or a device": 1,
        "beside the class folders, not in one": 1,
    }
    assert found.remarks[1].startswith("1 file skipped: no extension, for example ")


def test_a_class_of_unreadable_formats_says_why_it_is_empty(folder: Path) -> None:
    (folder / "phone").mkdir()
    (folder / "phone" / "a.raw").write_bytes(b"?")
    with pytest.raises(DataError, match=r"'phone'.*1 file.*\.raw"):
        labelled_pictures(folder, None)


def test_photographs_of_phones_say_what_is_needed_to_read_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bar" / "IMG_0001.HEIC").write_bytes(b"?")
    monkeypatch.setattr(inputs, "extensions", lambda: frozenset({".png"}))
    assert list(labelled_pictures(folder, None).skipped) == ["HEIC needs pip install pillow-heif"]


def test_train_and_test_folders_are_recognised(tmp_path: Path) -> None:
    for part, first in (("train", 0), ("test", 50), ("valid", 90)):
        write_folder(tmp_path / part, dict.fromkeys(SHAPES, 3), first)
    clf = FewShotClassifier(cache=False).fit(tmp_path)
    assert list(clf.classes_) == list(SHAPES)
    assert all(Path(source.name).parts[-3] == "train" for source in clf._state.sources)
    assert labelled_pictures(tmp_path, None, "test").folder == tmp_path / "test"
    assert 0 <= clf.score(tmp_path) <= 1
    (tmp_path / "birds").mkdir()
    assert labelled_pictures(tmp_path / "train", None).folder == tmp_path / "train"


@pytest.mark.parametrize("head", ["path,label\n", "", "number,Label,Image\n"])
def test_a_table_of_paths_and_labels_is_learnt(folder: Path, head: str) -> None:
    rows = [(f"{path.parent.name}/{path.name}", path.parent.name) for path in sorted(folder.rglob("*.png"))]
    lines = [f"1,{label},{path}" if head.startswith("number") else f"{path},{label}" for path, label in rows]
    (folder / "labels.csv").write_text(head + "\n".join(lines) + "\n")
    clf = FewShotClassifier(cache=False).fit(folder / "labels.csv")
    assert list(clf.labels_) == [label for _, label in rows]
    (folder / "bad.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(DataError, match="path and label"):
        clf.score(folder / "bad.csv")


class Column:
    """As a column of pandas or polars: no list, but it turns into one."""

    def __init__(self, items: Iterable[object] = ()) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: int) -> object:
        return self.items[place]

    def to_list(self) -> list[object]:
        return list(self.items)


def test_a_table_larger_than_any_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "table.csv").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(DataError, match="64 MB"):
        labelled_pictures(tmp_path / "table.csv", None)


def test_a_folder_within_a_class_that_cannot_be_read_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bar" / "more").mkdir()
    scandir = os.scandir

    def forbidding(path: Any) -> Any:  # the tests may run as root, whom no mode keeps out
        if os.fspath(path).endswith("/more"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidding)
    with pytest.raises(DataError, match=r"bar/more.*Permission denied"):
        labelled_pictures(folder, None)


def test_columns_of_data_frames_and_empty_lists_are_handled(folder: Path) -> None:
    paths = Column(str(path) for path in sorted(folder.rglob("*.png")))
    labels = Column(Path(str(path)).parent.name for path in paths)
    clf = FewShotClassifier(cache=False).fit(paths, labels)
    assert list(clf.predict(Column([paths[0]]))) == ["bar"]
    assert clf.predict([]).shape == (0,)
    assert clf.predict_proba(np.array([])).shape == (0, 2)
    assert clf.transform(Column()).shape == (0, clf.n_features_in_)


def test_all_bad_images_are_named_at_once(folder: Path, tmp_path: Path) -> None:
    bad = [tmp_path / "a.png", tmp_path / "b.png"]
    for path in bad:
        path.write_bytes(b"not an image")
    images = [bad[0], *sorted(folder.rglob("*.png")), bad[1]]
    with pytest.raises(UnreadableImagesError, match=r"a\.png.*1 more of 7") as caught:
        FewShotClassifier(cache=False).fit(images, ["bar"] * 4 + ["hook"] * 3)
    assert sorted(caught.value.reasons) == [0, 6]


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "a\0b.png", "missing.png"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    if name == "pipe":
        name = str(tmp_path / "pipe")
        os.mkfifo(name)
    with pytest.raises(DataError):
        Picture(name).read()
    with pytest.raises(DataError):
        pictures([name])[0].read()


def grey(pixels: np.ndarray, kind: str) -> np.ndarray:
    return decode(encoded(Image.fromarray(pixels), kind), SQUARE)[..., 0]


def test_deep_pixels_keep_their_detail() -> None:
    ramp = np.linspace(0, 1, 64).reshape(8, 8)
    expected = (255 * ramp).astype(int)
    for top, kind in ((255, "PNG"), (4095, "PNG"), (65535, "PNG"), (65535, "TIFF")):
        # the lower bits are cut off, so a grey value may be one less
        assert np.abs(grey((top * ramp).astype(np.uint16), kind) - expected).max() <= 1, top
    for top in (255, 4095, 65535):
        assert np.abs(grey((top * ramp).astype(np.int32), "TIFF") - expected).max() <= 1, top
        assert np.abs(grey((top * ramp).astype(np.float32), "TIFF") - expected).max() <= 1, top
    assert np.abs(grey((1.02 * ramp).astype(np.float32), "TIFF") - expected).max() <= 6  # clipped at 1


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((8, 8), 70_000, np.int32),
        np.full((8, 8), -5, np.int32),
        np.full((8, 8), 3.0, np.float32),
        np.full((8, 8), 1e6, np.float32),
        np.array([[np.nan, 0.5]], np.float32),
    ],
)
def test_pixels_that_would_be_lost_are_an_error(pixels: np.ndarray) -> None:
    with pytest.raises(DataError, match=r"pixels"):
        grey(pixels, "TIFF")


def test_deep_and_transparent_pixels_are_narrowed_band_by_band(monkeypatch: pytest.MonkeyPatch) -> None:
    ramp = np.linspace(0, 1, 90_000, dtype=np.float32).reshape(300, 300)
    deep = [Image.fromarray(ramp), Image.fromarray((4000 * ramp).astype(np.int32))]
    clear = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 4), dtype=np.uint8))
    whole = [np.asarray(eight_bit(image, "L")) for image in [*deep, clear]]
    monkeypatch.setattr(decoding, "BAND", 1000)
    tracemalloc.start()
    narrow = [np.asarray(eight_bit(image, "L")) for image in deep]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for one, other in zip([*narrow, np.asarray(eight_bit(clear, "L"))], whole, strict=True):
        np.testing.assert_array_equal(one, other)
    assert peak < 90_000 * 12  # four bytes a pixel twice, the result, and no copy in float64 or int64


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_photographs_of_phones_are_read(kind: str) -> None:
    if kind == "HEIF":
        pytest.importorskip("pillow_heif", reason="needs pillow-heif")
    elif not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    assert {"AVIF": ".avif", "HEIF": ".heic"}[kind] in extensions()
    image = photograph(0, size=96)
    content = encoded(image, kind)
    decoded = decode(content, Decoding(96, 96, fit="squash"))
    assert np.abs(decoded.astype(int) - np.asarray(image)).mean() < 12  # lossy


def test_numbers_of_things_agree_with_them() -> None:
    assert [count_of(1, "image"), count_of(2, "class"), count_of(1200, "file")] == [
        "1 image",
        "2 classes",
        "1,200 files",
    ]


def test_a_pillow_image_is_turned_upright_like_its_file(tmp_path: Path) -> None:
    image = Image.fromarray(np.arange(12 * 8 * 3, dtype=np.uint8).reshape(12, 8, 3))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    image.save(tmp_path / "a.png", exif=exif)
    from_file, from_pillow = (
        decode(pictures([given])[0].read(), Decoding(16, 16))
        for given in (tmp_path / "a.png", Image.open(tmp_path / "a.png"))
    )
    np.testing.assert_array_equal(from_pillow, from_file)


def test_a_row_without_a_label_is_refused_and_spaces_around_labels_do_not_matter(folder: Path) -> None:
    first, second = sorted(folder.rglob("*.png"))[:2]
    table = folder / "labels.csv"
    table.write_text(f"path,label\n{first}, cat\n{second},cat\n")
    assert labelled_pictures(table, None).labels.tolist() == ["cat", "cat"]
    table.write_text(f"path,label\n{first},cat\n{second},\n")
    with pytest.raises(DataError, match=second.name):
        labelled_pictures(table, None)


def test_a_folder_in_a_list_is_reported_like_any_bad_image(folder: Path) -> None:
    images = [folder, *sorted(folder.rglob("*.png"))]
    clf = FewShotClassifier(cache=False).fit(folder)
    with pytest.raises(UnreadableImagesError, match="is a folder") as caught:
        clf.predict(images)
    assert list(caught.value.reasons) == [0]


def test_a_name_too_long_for_any_file_is_reported_when_its_image_is_read(folder: Path) -> None:
    name = "x" * 300
    (folder / "labels.csv").write_text(f"path,label\n{name},bar\n")
    for found in (pictures(name), pictures([name]), labelled_pictures(folder / "labels.csv", None).pictures):
        with pytest.raises(DataError, match="too long"):
            found[0].read()
    for path in (name, f"{name}.csv"):
        with pytest.raises(DataError, match="There is no folder"):
            labelled_pictures(path, None)


def test_an_empty_path_is_not_the_current_folder() -> None:
    for act in (lambda: pictures(""), lambda: listed_pictures(["", "a.png"])):
        with pytest.raises(InvalidOptionError, match=r"is empty.*not set"):
            act()


def test_the_images_of_files_and_folders_are_listed_in_one_walk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bar" / "notes.txt").write_text("not an image")
    walked: list[Path] = []
    walk = inputs.folder_files
    monkeypatch.setattr(inputs, "folder_files", lambda root: walked.append(root) or walk(root))
    found = listed_pictures([folder, "a.png"])
    assert [picture.name for picture in found.pictures] == [*map(str, sorted(folder.rglob("*.png"))), "a.png"]
    assert found.skipped == {".txt is not an image format": [folder / "bar" / "notes.txt"]}
    assert walked == [folder]


@pytest.mark.parametrize(
    "bad",
    [
        Image.fromarray(np.array([[np.nan, 0.5]], np.float32)),
        Image.new("L", (0, 5)),
        Image.new("RGBA", (0, 0)),
        np.zeros((0, 5)),
        np.zeros((5, 0, 3), np.uint8),
    ],
)
def test_a_bad_image_in_memory_is_named_by_its_position(bad: object) -> None:
    with pytest.raises(HandfulError, match=r"^Image number 1 (is empty|holds NaN)"):
        pictures([Image.new("L", (4, 4)), bad])
