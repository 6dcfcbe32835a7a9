"""Folders and archives as trees of files, which are read in place; malicious archives are refused.

Nothing is unpacked to disk, except that a compressed tar is first decompressed, within limits, into one scratch file.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from handful._io import open_regular, read_bytes, write_errors
from handful.errors import DataError

GIGABYTE = 1 << 30
BLOCK = 1 << 20
MAX_MEMBER = GIGABYTE // 2
MAX_IMAGE = GIGABYTE // 4
MAX_MEMBERS = 2_000_000
MAX_DICTIONARY = GIGABYTE // 4
"""The most memory that decompression may use; xz -9 needs 65 MB."""
DAMAGE = (
    zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, struct.error, EOFError, OSError, ValueError,
    LookupError, OverflowError, NotImplementedError, RuntimeError,
)  # fmt: skip
"""What the standard library raises when an archive is damaged."""
COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz"}
MAX_RATIO = 100
"""An archive may unpack to a gigabyte, or to this many times its own size, whichever is more."""


@dataclass(frozen=True)
class Blob:
    """Where the bytes of one file are: a whole file, a range of one, or a member of a zip archive."""

    path: str
    member: str | None = None
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """The bytes of the file."""
        if self.member is not None:
            return open_zip(self.path).read(self.member)
        if self.size is None:
            return read_bytes(self.path, MAX_IMAGE)
        with open_regular(self.path) as file:
            file.seek(self.offset)
            return file.read(self.size)

    def read_as(self, name: str) -> bytes:
        """The bytes of a file that is not an image; errors call it `name`."""
        try:
            return self.read()
        except (*DAMAGE, DataError) as error:
            raise DataError(f"{name} cannot be read: {str(error).rstrip('.')}.") from error


@dataclass(frozen=True)
class Tree:
    """The files of a folder or archive, sorted by relative name."""

    path: Path
    files: dict[str, Blob] = field(repr=False)

    @property
    def visible(self) -> dict[str, Blob]:
        """The files that are not hidden, and so none of those that macOS adds to every zip (__MACOSX/._NAME)."""
        return {
            name: blob
            for name, blob in self.files.items()
            if not any(part.startswith(".") for part in PurePosixPath(name).parts)
        }


def open_zip(path: str) -> zipfile.ZipFile:
    """An open zip archive; its directory is parsed once per process, and again if the file has changed."""
    now = os.stat(path)
    return _open_zip(path, now.st_mtime_ns, now.st_size)


@lru_cache(maxsize=4)
def _open_zip(path: str, changed: int, size: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(path)


def open_tree(path: Path, scratch: Path) -> Tree:
    """The tree of a folder, or of a zip or tar archive; `scratch` is a folder for decompressing a tar."""
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    if path.is_dir():
        return Tree(path, dict(sorted(folder_files(path))))
    try:
        if path.is_file() and zipfile.is_zipfile(path):
            return Tree(path, by_name(zip_files(path), path))
        if path.is_file() and is_plain_tar(plain := inflate(path, scratch)):
            return Tree(path, by_name(tar_files(path, plain), path))
    except DAMAGE as error:
        raise DataError(f"The archive {path} is damaged: {str(error).rstrip('.')}.") from error
    raise DataError(f"{path} is neither a folder nor a zip or tar archive.")


def is_plain_tar(path: Path) -> bool:
    """Whether it is an uncompressed tar archive; `tarfile.is_tarfile` would decompress anything, without limits."""
    try:
        with tarfile.open(path, "r:"):
            return True
    except tarfile.TarError:
        return False


def by_name(members: Iterable[tuple[str, Blob]], path: Path) -> dict[str, Blob]:
    """The members sorted by name; raises if two have the same name."""
    files: dict[str, Blob] = {}
    for name, blob in members:
        if name in files:
            raise DataError(f"The archive {path} holds two members called '{name}', and is refused.")
        files[name] = blob
    return dict(sorted(files.items()))


def folder_files(root: Path) -> Iterator[tuple[str, Blob]]:
    """All files in a folder and its subfolders; linked folders are visited once, and unreadable ones raise an error."""
    seen: set[str] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        if real in seen:
            subfolders.clear()
            continue
        seen.add(real)
        subfolders.sort()
        relative = Path(folder).relative_to(root).as_posix()
        for name in names:
            yield (name if relative == "." else f"{relative}/{name}"), Blob(os.path.join(folder, name))


def refuse(error: OSError) -> None:
    """Raise for an unreadable folder, instead of silently leaving its images out."""
    raise DataError(
        f"The folder {error.filename} cannot be read: {error.strerror}. Make it readable, or move it away."
    ) from error


def zip_files(path: Path) -> Iterator[tuple[str, Blob]]:
    """The members of a zip archive, after checking all names and sizes."""
    members = [info for info in open_zip(str(path)).infolist() if not info.is_dir()]
    check_count(len(members), path)
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


def tar_files(path: Path, plain: Path) -> Iterator[tuple[str, Blob]]:
    """The members of a tar archive as ranges of `plain`, the archive itself or its decompressed copy."""
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
            check_count(len(found), path)
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep all of them, at a kilobyte each
        end = archive.offset
    with plain.open("rb") as file:  # tarfile takes a truncated or damaged header for the end of the archive
        file.seek(end)
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise DataError(f"The archive {path} is truncated or damaged after {len(found)} files.")
    yield from found


def inflate(path: Path, scratch: Path) -> Path:
    """The uncompressed tar archive: the file itself, or a copy in `scratch` within the size limits."""
    with path.open("rb") as file:
        start = file.read(6)
    kind = next((kind for magic, kind in COMPRESSIONS.items() if start.startswith(magic)), None)
    if kind is None:
        return path
    with (
        open_regular(path) as source,
        write_errors(scratch),
        tempfile.NamedTemporaryFile(dir=scratch, prefix=f"{path.name}.", delete=False) as target,
    ):
        done = 0
        for block in inflated(source, kind):
            done += target.write(block)
            check_total(done, path)
    return Path(target.name)


def inflated(source: BinaryIO, kind: str) -> Iterator[bytes]:
    """The decompressed bytes of a file, block by block; it may hold several compressed streams in a row."""
    if kind != "xz":
        with gzip.open(source) if kind == "gzip" else bz2.open(source) as opened:
            yield from iter(lambda: opened.read(BLOCK), b"")
        return
    rest = b""
    while rest := (rest or source.read(BLOCK)).lstrip(b"\0"):
        decoder = lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)
        while not decoder.eof:
            given = b"" if not decoder.needs_input else (rest or source.read(BLOCK))
            if decoder.needs_input and not given:
                raise EOFError("it ends in the middle of its compressed data")
            rest = b""
            yield decoder.decompress(given, BLOCK)
        rest = decoder.unused_data


def check_name(name: str, path: Path) -> None:
    """Raise if a member's name leads outside the archive."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0].startswith("/") or ".." in parts or ":" in parts[0] or "\0" in name:
        raise DataError(f"The archive {path} is refused: the name '{name}' leads outside it.")


def check_size(name: str, size: int, path: Path) -> None:
    """Raise if a member is larger than any image or batch of images."""
    if size > MAX_MEMBER:
        raise DataError(
            f"The archive {path} is refused: its member '{name}' would unpack to {size / 1e6:.0f} MB, "
            f"more than the {MAX_MEMBER / 1e6:.0f} MB allowed."
        )


def check_count(count: int, path: Path) -> None:
    """Raise if an archive has more files than any data set."""
    if count > MAX_MEMBERS:
        raise DataError(f"The archive {path} is refused: it has more than {MAX_MEMBERS:,} members.")


def check_total(total: int, path: Path) -> None:
    """Raise if an archive unpacks to far more than its own size."""
    allowed = max(GIGABYTE, MAX_RATIO * path.stat().st_size)
    if total > allowed:
        raise DataError(
            f"The archive {path} is refused: it would unpack to more than {allowed / 1e6:.0f} MB, "
            f"over {MAX_RATIO} times its own size."
        )
