"""`handful data` as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from handful.cli.data import bytes_of
from handful.cli.main import main
from handful.errors import InvalidOptionError
from tests.cli.cases import Handful
from tests.data.pictures import class_folders, png, write_files


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_files(tmp_path / "photos", {**class_folders(), "kind00/notes.txt": b"x"})


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path / "root"))
    return tmp_path / "root"


def test_a_folder_is_added_listed_checked_shown_and_removed(
    photos: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "add", "kinds", "--from", str(photos), "--split", "5/2/3", "--size", "20"]) == 0
    told = capsys.readouterr().out
    assert "skipped 1 files that are not images" in told
    assert "kinds is packed: 10 classes, 40 images of 20 x 20 colour" in told
    assert "split 5/2/3 5/2/3" in told
    assert main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert "kinds            there: 10 classes, 40 images" in listed
    assert main(["data", "check", "kinds"]) == 0
    assert "kinds is intact" in capsys.readouterr().out
    assert main(["data", "show", "kinds", "--out", str(tmp_path / "sheet.png"), "--part", "val"]) == 0
    assert Image.open(tmp_path / "sheet.png").size[1] == 2 * 62
    assert main(["data", "remove", "kinds"]) == 0
    assert not list(root.glob("*.pack"))


def test_the_list_names_every_source_with_licence_and_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    told = capsys.readouterr().out
    for words in (
        "glyphs",
        "omniglot",
        "omniglot-nearest",
        "cifar-fs",
        "mini-imagenet",
        "licence: MIT",
        "handful data add omniglot",
    ):
        assert words in told


def test_another_folder_can_be_named(photos: Path, root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    assert main(["data", "add", "kinds", "--from", str(photos), "--data", str(other)]) == 0
    assert not root.exists()
    assert [path.name for path in other.glob("*.pack")] == ["kinds.pack"]


def test_a_damaged_store_is_listed_as_damaged_and_fails_its_check(
    photos: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["data", "add", "kinds", "--from", str(photos)])
    store = root / "kinds.pack"
    store.write_bytes(store.read_bytes()[:-1])
    capsys.readouterr()
    assert main(["data", "list"]) == 0
    assert "kinds            damaged" in capsys.readouterr().out
    assert main(["data", "check", "kinds"]) == 2


@pytest.mark.parametrize(
    "words",
    [
        ["add", "nothing"],
        ["add", "mini-imagenet"],
        ["add", "kinds", "--from", "/nowhere"],
        ["add", "omniglot", "--from", "PHOTOS"],
        ["add", "cifar-fs", "--from", "PHOTOS"],
        ["add", "kinds", "--from", "PHOTOS", "--split", "1/1/1"],
        ["add", "kinds", "--from", "PHOTOS", "--min-images", "50"],
        ["add", "kinds", "--from", "PHOTOS", "--data", "/dev/null/x"],
        ["add", "cifar-fs", "--mirror", "http://127.0.0.1:9", "--timeout", "-1"],
        ["check", "kinds"],
        ["show", "kinds"],
        ["show", "glyphs", "--split", "lake"],
        ["remove", "kinds"],
        ["remove", "../kinds"],
    ],
)
def test_every_error_is_one_clear_line(
    words: list[str], photos: Path, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", *(str(photos) if word == "PHOTOS" else word for word in words)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("handful: ")
    assert said.count("\n") == 1
    assert not list(root.glob("*.pack"))


def test_a_truncated_image_is_one_clear_line(photos: Path, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_files(photos, {"kind05/broken.png": png()[:-50]})
    assert main(["data", "add", "kinds", "--from", str(photos)]) == 2
    assert "kind05/broken.png cannot be read as an image" in capsys.readouterr().err
    assert not list(root.glob("*.pack"))


def test_the_cache_is_shown_bounded_and_cleared(handful: Handful, folder: Path, tmp_path: Path) -> None:
    handful("fit", folder, "-o", tmp_path / "a.handful")
    assert "16 images: 16 features, 16 thumbnails" in handful("cache")[1]
    assert "at most 2,000 MB" in handful("cache", "--limit", "2GB")[1]
    handful("forget", tmp_path / "a.handful", "--label", "bar")
    assert "12 images: 12 features, 12 thumbnails" in handful("cache")[1]
    assert "0 images: 0 features" in handful("cache", "--clear")[1]
    assert bytes_of("1.5 kb") == 1500
    with pytest.raises(InvalidOptionError, match="500MB or 2GB"):
        bytes_of("much")
    for size in ("9" * 400, "9" * 20 + "TB"):
        with pytest.raises(InvalidOptionError, match=r"9999.* disk"):
            bytes_of(size)
