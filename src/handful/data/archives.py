"""Folders and archives alike as a tree of files that are read in place; archives that try to escape are refused.

Nothing is unpacked to disk, except that a compressed tar is first inflated, within limits, into one scratch file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import IO, cast

from handful._io import write_errors
from handful.errors import DataError

GIGABYTE = 1 << 30
MAX_MEMBER = GIGABYTE // 2
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
MAX_RATIO = 100
"""An archive may unpack to a gigabyte, or to this many times its own size if that is more."""


@dataclass(frozen=True)
class Blob:
    """Where the bytes of one file are: a whole file, a range of one, or a member of a zip archive."""

    path: str
    member: str | None = None
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """The bytes."""
        if self.member is not None:
            return open_zip(self.path).read(self.member)
        with open(self.path, "rb") as file:
            if self.size is None:
                if os.fstat(file.fileno()).st_size > MAX_MEMBER:
                    raise DataError(f"is larger than the {MAX_MEMBER >> 20} MB that one file may have")
                return file.read()
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True)
class Tree:
    """The files of a folder or an archive by their relative names, sorted."""

    path: Path
    files: dict[str, Blob] = field(repr=False)


@lru_cache(maxsize=4)
def open_zip(path: str) -> zipfile.ZipFile:
    """An open zip archive; its directory is parsed once per process."""
    return zipfile.ZipFile(path)


def open_tree(path: Path, scratch: Path) -> Tree:
    """The tree below a folder, or inside a zip or tar archive; `scratch` is a folder for inflating a compressed tar."""
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    if path.is_dir():
        return Tree(path, dict(sorted(folder_files(path))))
    try:
        if zipfile.is_zipfile(path):
            return Tree(path, dict(sorted(zip_files(path))))
        if tarfile.is_tarfile(path):
            return Tree(path, dict(sorted(tar_files(path, scratch))))
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError, NotImplementedError) as error:
        raise DataError(f"The archive {path} is damaged: {error}.") from error
    raise DataError(f"{path} is neither a folder nor a zip or tar archive.")


def folder_files(root: Path) -> Iterator[tuple[str, Blob]]:
    """All regular files below a folder; folders reached by links are entered once."""
    seen: set[str] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            subfolders.clear()
            continue
        seen.add(real)
        subfolders.sort()
        relative = Path(folder).relative_to(root).as_posix()
        for name in names:
            path = os.path.join(folder, name)
            if os.path.isfile(path):  # no pipes, no dangling links
                yield (name if relative == "." else f"{relative}/{name}"), Blob(path)


def zip_files(path: Path) -> Iterator[tuple[str, Blob]]:
    """The members of a zip archive, once all names and sizes have been checked."""
    members = [info for info in open_zip(str(path)).infolist() if not info.is_dir()]
    for info in members:
        check_name(info.filename, path)
        if stat.S_ISLNK(info.external_attr >> 16):
            raise DataError(f"The archive {path} contains a link, '{info.filename}', and is refused.")
        if info.flag_bits & 1:
            raise DataError(f"The archive {path} is encrypted. Unpack it yourself and give the folder.")
        check_size(info.filename, info.file_size, path)
    check_total(sum(info.file_size for info in members), path)
    for info in members:
        yield info.filename, Blob(str(path), member=info.filename, size=info.file_size)


def tar_files(path: Path, scratch: Path) -> Iterator[tuple[str, Blob]]:
    """The members of a tar archive as ranges of the archive, or of its inflated copy in `scratch`."""
    plain = inflate(path, scratch)
    found: list[tuple[str, Blob]] = []
    with tarfile.open(plain, "r:") as archive:
        for info in archive:
            if info.isdir():
                continue
            check_name(info.name, path)
            if not info.isreg() or info.issparse():
                raise DataError(f"The archive {path} contains a link or device, '{info.name}', and is refused.")
            check_size(info.name, info.size, path)
            name = str(PurePosixPath(info.name))
            found.append((name, Blob(str(plain), offset=info.offset_data, size=info.size)))
    yield from found


def inflate(path: Path, scratch: Path) -> Path:
    """The tar archive without its compression: itself, or a copy in `scratch` that may not grow beyond the bounds."""
    with path.open("rb") as file:
        start = file.read(6)
    kind = next((kind for magic, kind in COMPRESSIONS.items() if start.startswith(magic)), None)
    if kind is None:
        return path
    plain = scratch / f"{path.name}.inflated"
    with open_compressed(path, kind) as source, write_errors(plain), plain.open("wb") as target:
        for done in copied(source, target):
            check_total(done, path)
    return plain


def open_compressed(path: Path, kind: str) -> IO[bytes]:
    """The decompressed bytes of a file."""
    if kind == "gzip":
        return cast(IO[bytes], gzip.open(path))
    return bz2.open(path) if kind == "bzip2" else lzma.open(path)


def copied(source: IO[bytes], target: IO[bytes]) -> Iterator[int]:
    """Copy block by block; yields how many bytes there are so far."""
    done = 0
    while block := source.read(1 << 20):
        target.write(block)
        done += len(block)
        yield done


def check_name(name: str, path: Path) -> None:
    """Refuse a member's name that would leave the folder it is unpacked into."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0].startswith("/") or ".." in parts or ":" in parts[0] or "\0" in name:
        raise DataError(f"The archive {path} contains the name '{name}', which leads out of it, and is refused.")


def check_size(name: str, size: int, path: Path) -> None:
    """Refuse a member that is larger than any image or batch of images."""
    if size > MAX_MEMBER:
        raise DataError(
            f"The archive {path} is refused: its member '{name}' would unpack to {size / 1e6:.0f} MB, "
            f"more than the {MAX_MEMBER / 1e6:.0f} MB allowed."
        )


def check_total(total: int, path: Path) -> None:
    """Refuse an archive that unpacks to far more than its own size."""
    allowed = max(GIGABYTE, MAX_RATIO * path.stat().st_size)
    if total > allowed:
        raise DataError(
            f"The archive {path} is refused: it would unpack to more than {allowed / 1e6:.0f} MB, "
            f"over {MAX_RATIO} times its own size."
        )
