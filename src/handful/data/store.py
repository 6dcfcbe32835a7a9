"""The packed store: one memory-mapped file with a small header and all images of a data set as raw pixels.

The file begins with a fixed prefix (magic bytes, the header's length and checksum), then the header as JSON, then, at
the next multiple of 4096 bytes, the pixels: uint8 (n, height, width, channels), grouped by class.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from tqdm import tqdm

from handful._io import from_json, open_regular, parse_json, replacing, write_errors
from handful.data.splits import PARTS
from handful.errors import DataError

if TYPE_CHECKING:
    from handful.data.table import Benchmark, ImageTable

SUFFIX = ".pack"
FORMAT = 1
PREFIX = struct.Struct("<16sII")
MAGIC = b"handful images\r\n"
ALIGNMENT = 4096
BLOCK = 1 << 22
UNHASHED = "0" * 64
MOST_HEADER = 1 << 27
LARGEST = 1024

Ranges = tuple[tuple[int, int], ...]
"""Runs of class numbers: (first, count)."""
Scheme = Mapping[str, Ranges]
"""The classes of 'train', 'val' and 'test'."""


@dataclass(frozen=True)
class Header:
    """What a store holds. `content` is the SHA-256 of everything that affects episodes: classes, splits and pixels."""

    name: str
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    shape: tuple[int, int, int]
    splits: Mapping[str, Scheme]
    groups: tuple[str, ...] | None = None
    source: str = ""
    content: str = UNHASHED
    format: int = FORMAT

    @property
    def n_images(self) -> int:
        """The total number of images."""
        return sum(self.counts)

    @property
    def image_bytes(self) -> int:
        """Bytes of one image: height x width x channels."""
        return prod(self.shape)

    def check(self) -> None:
        """Raise if the header is inconsistent, before any number in it is used as a size."""
        if not (len(self.classes) == len(self.counts) == len(set(self.classes)) > 0 and min(self.counts) > 0):
            raise ValueError("its classes and counts do not match")
        if not all(1 <= size <= LARGEST for size in self.shape) or self.shape[2] not in (1, 3):
            raise ValueError(f"its images have the shape {self.shape}")
        if self.groups is not None and len(self.groups) != len(self.classes):
            raise ValueError("its groups and classes differ in number")
        if not self.splits or not all(scheme.keys() == set(PARTS) for scheme in self.splits.values()):
            raise ValueError("its class splits are not into train, val and test")
        for scheme in self.splits.values():
            ranges = [each for part in scheme.values() for each in part]
            if not all(first >= 0 and n >= 0 and first + n <= len(self.classes) for first, n in ranges):
                raise ValueError("its class splits name classes that it does not have")
            if sum(n for _, n in ranges) > len(self.classes):
                raise ValueError("its class splits name a class twice")

    def hasher(self) -> Any:
        """A SHA-256 over the header except its origin, to be updated with the pixels."""
        seen = asdict(replace(self, content=UNHASHED, source="", name=""))
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode())

    def encoded(self) -> bytes:
        """Prefix, JSON and padding: all bytes before the pixels."""
        body = json.dumps(asdict(self)).encode()
        prefix = PREFIX.pack(MAGIC, len(body), zlib.crc32(body))
        return prefix + body + b"\0" * (-(len(prefix) + len(body)) % ALIGNMENT)


def store_path(root: Path, name: str) -> Path:
    """The file of the data set `name` in `root`."""
    return root / f"{name}{SUFFIX}"


def write_store(path: Path, header: Header, chunks: Iterable[np.ndarray], progress: bool = False) -> Header:
    """Write chunks (k, height, width, channels) in the header's order, completely or not at all."""
    hasher, written = header.hasher(), 0
    with (
        write_errors(path),
        replacing(path) as temporary,
        temporary.open("wb") as file,
        tqdm(total=header.n_images, unit=" images", desc=f"packing {header.name}", disable=not progress) as bar,
    ):
        file.write(header.encoded())
        for chunk in chunks:
            if chunk.dtype != np.uint8 or chunk.shape[1:] != tuple(header.shape):
                raise DataError(
                    f"The store expects uint8 images {header.shape}, but got {chunk.dtype} {chunk.shape[1:]}."
                )
            pixels = np.ascontiguousarray(chunk).data
            hasher.update(pixels)
            file.write(pixels)
            written += len(chunk)
            bar.update(len(chunk))
        if written != header.n_images:
            raise DataError(f"'{header.name}' should have {header.n_images} images, but got {written}.")
        complete = replace(header, content=hasher.hexdigest())
        file.seek(0)
        file.write(complete.encoded())
    return complete


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, Header, int]]:
    """An open store, its header and the offset of its pixels; raises if its size or checksum shows damage.

    Reading everything from the one open file gives a consistent version, even if the file is replaced meanwhile.
    """
    try:
        with open_regular(path) as file:
            header, offset = parse_header(file, path)
            size, expected = file.seek(0, 2), offset + header.n_images * header.image_bytes
            if size != expected:
                raise DataError(
                    f"The data set {path} is damaged: it should have {expected} bytes but has {size}. {remedy(path)}"
                )
            yield file, header, offset
    except OSError as error:
        raise DataError(f"Cannot read the data set {path}: {error.strerror or error}.") from error


def read_header(path: Path) -> tuple[Header, int]:
    """The header of a store and the offset of its pixels."""
    with opened(path) as (_, header, offset):
        return header, offset


def parse_header(file: BinaryIO, path: Path) -> tuple[Header, int]:
    """Prefix and JSON of an open store."""
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size or not prefix.startswith(MAGIC):
        raise DataError(f"{path} is not a data set packed by handful. {remedy(path)}")
    _, length, checksum = PREFIX.unpack(prefix)
    body = file.read(min(length, MOST_HEADER))
    if len(body) != length or zlib.crc32(body) != checksum:
        raise DataError(f"The header of the data set {path} is damaged. {remedy(path)}")
    try:
        fields = parse_json(body)
        if fields["format"] != FORMAT:
            raise ValueError(f"it has format {fields['format']}, but this version of handful reads format {FORMAT}")
        header: Header = from_json(Header, fields, "header")
        header.check()
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"The data set {path} cannot be used: {str(error).rstrip('.')}. {remedy(path)}") from error
    return header, -(-(PREFIX.size + length) // ALIGNMENT) * ALIGNMENT


def remedy(path: Path) -> str:
    """How to recreate a damaged store."""
    name = path.name.removesuffix(SUFFIX)
    return f"Remove it with `handful data remove {name}` and add it again with `handful data add {name}`."


def check_store(path: Path, progress: bool = False) -> Header:
    """Read every byte and compare with the header's hash."""
    with opened(path) as (file, header, offset):
        hasher, left = header.hasher(), header.n_images * header.image_bytes
        with tqdm(total=left, unit="B", unit_scale=True, desc=f"checking {header.name!r}", disable=not progress) as bar:
            file.seek(offset)
            while block := file.read(BLOCK):
                hasher.update(block)
                bar.update(len(block))
    if hasher.hexdigest() != header.content:
        raise DataError(f"The pixels of the data set {path} are damaged: their hash does not match. {remedy(path)}")
    return header


def open_table(path: Path) -> tuple[Header, ImageTable]:
    """The store as an image table that views the memory map; no pixels are read."""
    import torch

    from handful.data.table import ImageTable

    with opened(path) as (file, header, offset):
        # copy-on-write, because torch needs writable memory; the file itself never changes
        mapped = np.memmap(file, dtype=np.uint8, mode="c", offset=offset, shape=(header.n_images, *header.shape))
    images = torch.from_numpy(mapped).permute(0, 3, 1, 2)
    return header, ImageTable(images, header.classes, header.counts, header.groups)


def open_benchmark(path: Path, split: str | None = None) -> Benchmark:
    """The store divided by one of its class splits, the first by default."""
    from handful.data.table import Benchmark, ClassDataset

    header, table = open_table(path)
    scheme = split or next(iter(header.splits))
    if scheme not in header.splits:
        raise DataError(f"'{header.name}' has no class split '{scheme}', only: {', '.join(header.splits)}.")
    parts = {
        part: ClassDataset(part, table, tuple(number for first, n in ranges for number in range(first, first + n)))
        for part, ranges in header.splits[scheme].items()
    }
    is_default = scheme == next(iter(header.splits))
    return Benchmark(header.name if is_default else f"{header.name}/{scheme}", **parts)
