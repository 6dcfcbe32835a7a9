from __future__ import annotations

import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from handful.data import archives
from handful.data.archives import open_tree
from handful.data.sources.folder import list_classes
from handful.errors import DataError
from tests.data.pictures import write_files, write_zip

FILES = {"top/a/1.txt": b"one", "top/b/2.txt": b"two" * 1000, "readme": b""}


def write_tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "folder": lambda root: write_files(root / "folder", FILES),
    "zip": lambda root: write_zip(root / "x.zip", FILES),
    "tar": lambda root: write_tar(root / "x.tar", FILES),
    "tar.gz": lambda root: write_tar(root / "x.tar.gz", FILES, "w:gz"),
    "tar.bz2": lambda root: write_tar(root / "x.tar.bz2", FILES, "w:bz2"),
    "tar.xz": lambda root: write_tar(root / "x.tar.xz", FILES, "w:xz"),
}


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_files(layout: str, tmp_path: Path, scratch: Path) -> None:
    tree = open_tree(LAYOUTS[layout](tmp_path), scratch)
    assert {name: blob.read() for name, blob in tree.files.items()} == FILES
    assert list(tree.files) == sorted(FILES)


@pytest.mark.parametrize("layout", ["zip", "tar"])
def test_reading_an_archive_writes_nothing(layout: str, tmp_path: Path, scratch: Path) -> None:
    path = LAYOUTS[layout](tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for blob in open_tree(path, scratch).files.values():
        blob.read()
    assert sorted(tmp_path.rglob("*")) == before


ESCAPES = ["../x", "a/../../x", "/etc/x", "..", "C:/x", "C:\\x", "..\\x", "\\\\host\\x"]


@pytest.mark.parametrize("name", ESCAPES)
def test_a_zip_that_leads_out_is_refused(name: str, tmp_path: Path, scratch: Path) -> None:
    path = write_zip(tmp_path / "in" / "x.zip", {"good.txt": b"good", name: b"bad"})
    with pytest.raises(DataError, match="leads outside it"):
        open_tree(path, scratch)
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["in", "scratch", "x.zip"]


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_tar_that_leads_out_is_refused(name: str, mode: str, tmp_path: Path, scratch: Path) -> None:
    path = write_tar(tmp_path / "x.tar", {"good.txt": b"good", name: b"bad"}, mode)
    with pytest.raises(DataError, match="leads outside it"):
        open_tree(path, scratch)


def test_a_link_in_a_zip_is_refused(tmp_path: Path, scratch: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="link, 'link'"):
        open_tree(tmp_path / "x.zip", scratch)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_or_device_in_a_tar_is_refused(kind: bytes, tmp_path: Path, scratch: Path) -> None:
    info = tarfile.TarInfo("link")
    info.type, info.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        archive.addfile(info)
    with pytest.raises(DataError, match="device, 'link'"):
        open_tree(tmp_path / "x.tar", scratch)


def zip_bomb(path: Path, members: int, size: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            with archive.open(f"{number}.png", "w") as file:
                for _ in range(size >> 20):
                    file.write(bytes(1 << 20))
    return path


def test_a_zip_with_one_huge_member_is_refused(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBER", 10 << 20)
    bomb = zip_bomb(tmp_path / "bomb.zip", 1, 16 << 20)
    assert bomb.stat().st_size < 20_000
    with pytest.raises(DataError, match=r"'0\.png' .*17 MB.*10 MB"):
        open_tree(bomb, scratch)


def test_a_zip_that_holds_far_more_than_it_weighs_is_refused(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "GIGABYTE", 10 << 20)
    with pytest.raises(DataError, match=r"10 MB.*100 times"):
        open_tree(zip_bomb(tmp_path / "bomb.zip", 4, 4 << 20), scratch)


def test_a_zip_whose_directory_lies_about_a_size_gives_no_more_than_it_says(tmp_path: Path, scratch: Path) -> None:
    path = zip_bomb(tmp_path / "lie.zip", 1, 8 << 20)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    blob = open_tree(path, scratch).files["0.png"]
    with pytest.raises(zipfile.BadZipFile):  # the checksum of a thousand bytes is not that of all
        blob.read()


def test_a_compressed_tar_stops_inflating_at_the_limit(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "GIGABYTE", 10 << 20)
    bomb = write_tar(tmp_path / "bomb.tar.gz", {"0.png": bytes(64 << 20)}, "w:gz")
    with pytest.raises(DataError, match=r"10 MB.*100 times"):
        open_tree(bomb, scratch)
    assert sum(file.stat().st_size for file in scratch.iterdir()) < 16 << 20


def test_a_tar_with_a_huge_member_is_refused(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBER", 1000)
    with pytest.raises(DataError, match="would unpack"):
        open_tree(write_tar(tmp_path / "x.tar", {"0.png": bytes(2000)}), scratch)


def test_an_encrypted_zip_is_refused(tmp_path: Path, scratch: Path) -> None:
    path = write_zip(tmp_path / "x.zip", {"a": b"secret"})
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="encrypted"):
        open_tree(path, scratch)


@pytest.mark.parametrize("layout", ["zip", "tar.gz", "tar.xz"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_truncated_archive_is_refused(layout: str, share: float, tmp_path: Path, scratch: Path) -> None:
    path = LAYOUTS[layout](tmp_path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DataError, match=r"damaged|neither a folder nor"):
        open_tree(path, scratch)


def test_what_is_no_archive_is_not_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("decompressed")

    content = lzma.compress(bytes(1000), lzma.FORMAT_ALONE)  # which begins with no sign of being compressed
    for module, name in ((lzma, "LZMAFile"), (lzma, "open"), (gzip, "GzipFile")):
        monkeypatch.setattr(module, name, forbidden)
    for number, each in enumerate((content, bytes(1 << 20), b"image" * 1000)):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(each)
        with pytest.raises(DataError) if each.strip(b"\0") else nullcontext():
            open_tree(path, tmp_path)


def test_what_is_no_archive_is_refused(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "page.zip").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"page\.zip .*zip or tar"):
        open_tree(tmp_path / "page.zip", scratch)
    with pytest.raises(DataError, match="/nothing "):
        open_tree(tmp_path / "nothing", scratch)


def test_a_folder_that_links_to_itself_is_walked_once(tmp_path: Path, scratch: Path) -> None:
    root = write_files(tmp_path / "photos", {"a/1.txt": b"one"})
    os.symlink(root, root / "a" / "loop")
    assert list(open_tree(root, scratch).files) == ["a/1.txt"]


def test_pipes_and_dangling_links_are_counted_and_not_read(tmp_path: Path, scratch: Path) -> None:
    root = write_files(tmp_path / "photos", {"a/1.png": b"one"})
    os.mkfifo(root / "a" / "pipe.png")
    os.symlink(root / "nowhere", root / "a" / "gone.png")
    files = open_tree(root, scratch).files
    assert list_classes({PurePosixPath(name): blob for name, blob in files.items()}).notes == (
        "skipped 2 pipes, devices or broken links",
    )
    with pytest.raises(DataError, match="is not a regular file"):
        files["a/pipe.png"].read()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_a_tar_that_ends_between_two_members_is_damaged(mode: str, tmp_path: Path, scratch: Path) -> None:
    whole = write_tar(tmp_path / "whole.tar", FILES).read_bytes()
    for end in (1024, 1024 + 512, 1024 + 100):  # before, in and in the middle of the second header
        opened = {"w": open, "w:gz": gzip.open, "w:xz": lzma.open}[mode]
        with opened(tmp_path / "x", "wb") as file:  # type: ignore[operator]
            file.write(whole[:end])
        with pytest.raises(DataError, match=r"truncated|is damaged"):
            open_tree(tmp_path / "x", scratch)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_of_too_many_files_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"a/{number}.png": b"?" for number in range(5)}
    write_files(tmp_path / "files", files)
    path = Path(shutil.make_archive(str(tmp_path / "archive"), kind, tmp_path / "files"))
    assert set(open_tree(path, tmp_path).files) == set(files)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 4)
    with pytest.raises(DataError, match="more than 4 members"):
        open_tree(path, tmp_path)


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_two_members_of_one_name_are_refused(kind: str, tmp_path: Path, scratch: Path) -> None:
    path = tmp_path / f"x.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a/1.png", b"one")
            with pytest.warns(UserWarning, match="Duplicate"):
                archive.writestr("a/1.png", b"two")
    else:
        with tarfile.open(path, "w") as tar:
            for name in ("a/1.png", "a//1.png"):
                tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(DataError, match=r"two .*'a/1\.png'"):
        open_tree(path, scratch)


def test_a_damaged_or_greedy_xz_is_refused(tmp_path: Path, scratch: Path) -> None:
    path = write_tar(tmp_path / "x.tar.xz", FILES, "w:xz")
    whole = bytearray(path.read_bytes())
    whole[40] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(DataError, match="is damaged"):
        open_tree(path, scratch)


def test_an_xz_that_wants_more_memory_than_allowed_is_refused(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tar(tmp_path / "x.tar.xz", FILES, "w:xz")
    monkeypatch.setattr(archives, "MAX_DICTIONARY", 1 << 19)
    with pytest.raises(DataError, match=r"[Mm]emory"):
        open_tree(path, scratch)


def test_an_unreadable_class_folder_is_an_error(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_files(tmp_path / "photos", {"a/1.png": b"one", "b/1.png": b"two"})
    scandir = os.scandir

    def forbidding(path: Any) -> Any:  # the tests may run as root, whom no mode keeps out
        if os.fspath(path).endswith("/b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidding)
    with pytest.raises(DataError, match=r"photos/b .*Permission denied"):
        open_tree(root, scratch)


def test_a_class_folder_whose_name_is_not_utf8_is_spelled_out(tmp_path: Path, scratch: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/photos/caf\xe9"
    os.makedirs(folder)
    with open(folder + b"/1.png", "wb") as file:
        file.write(b"one")
    files = open_tree(tmp_path / "photos", scratch).files
    classes = list_classes({PurePosixPath(name): blob for name, blob in files.items()}).parts[None]
    assert list(classes) == ["caf\\xe9"]
    assert classes["caf\\xe9"][0].blob.read() == b"one"


def test_a_linked_class_folder_is_followed(tmp_path: Path, scratch: Path) -> None:
    elsewhere = write_files(tmp_path / "elsewhere", {"1.txt": b"one"})
    root = write_files(tmp_path / "photos", {"a/1.txt": b"one"})
    os.symlink(elsewhere, root / "b")
    assert list(open_tree(root, scratch).files) == ["a/1.txt", "b/1.txt"]


def test_compressed_archives_of_the_same_name_in_two_folders_are_kept_apart(tmp_path: Path, scratch: Path) -> None:
    trees = []
    for content in (b"one", b"two"):
        (tmp_path / content.decode()).mkdir()
        path = write_tar(tmp_path / content.decode() / "x.tar.gz", {"a.txt": content}, "w:gz")
        trees.append(open_tree(path, scratch))
    assert [tree.files["a.txt"].read() for tree in trees] == [b"one", b"two"]


def test_a_zip_that_was_replaced_is_read_again(tmp_path: Path, scratch: Path) -> None:
    for content in (b"one", b"three"):
        tree = open_tree(write_zip(tmp_path / "x.zip", {"a.txt": content}), scratch)
        assert tree.files["a.txt"].read() == content


def damaged_zip(path: Path, name: str, content: bytes) -> Path:
    """A zip whose directory is whole, but the content of whose only member does not match its checksum."""
    data = write_zip(path, {name: content}).read_bytes()
    assert data.count(content) == 1
    path.write_bytes(data.replace(content, content[:-1] + bytes([content[-1] ^ 1])))
    return path


def test_a_damaged_member_is_reported_under_the_name_that_the_caller_gives(tmp_path: Path, scratch: Path) -> None:
    tree = open_tree(damaged_zip(tmp_path / "x.zip", "lists/train.csv", b"filename,label"), scratch)
    with pytest.raises(DataError, match=r"^The list lists/train\.csv cannot be read: Bad CRC.*'lists/train\.csv'\.$"):
        tree.files["lists/train.csv"].read_as("The list lists/train.csv")
