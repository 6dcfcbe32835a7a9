"""CIFAR-FS (Bertinetto et al., 2019): the 100 classes of CIFAR-100 with their 600 images, 32 x 32 in colour.

Within a class the images are sorted by a hash of their pixels, so that every layout gives the same store, byte for
byte. CIFAR-100 itself is read from its author's archives: the Python one, without running any pickle, or the binary
one.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from handful._io import digest
from handful.data._packing import Item
from handful.data.archives import Blob, Tree
from handful.data.decode import Decoding
from handful.data.download import Remote
from handful.data.sources.source import Contents, Pixels, Source, decoded, expect_counts, joined
from handful.data.splits import PARTS, entries, ranges
from handful.errors import DataError

PNG = re.compile(r"(?:^|/)(\w+)/[^/]+\.png$")
DECODING = Decoding(32, 32)
PER_CLASS = 600
TITLE = "CIFAR-FS"
PIXELS = 3 * 32 * 32
RECORD = 2 + PIXELS
"""A coarse label, a fine label, then the red, green and blue plane."""


def read(trees: Sequence[Tree]) -> Contents:
    """CIFAR-FS from the authors' zip or folder, or from CIFAR-100's python or binary archive or folder."""
    where = joined(trees)
    files = {PurePosixPath(name).name: blob for tree in trees for name, blob in tree.visible.items()}
    if {"train", "test", "meta"} <= files.keys():
        return packed(from_pickles(files, where), where)
    if {"train.bin", "test.bin", "fine_label_names.txt"} <= files.keys():
        return packed(from_records(files, where), where)
    known = set(class_names())
    found: dict[str, list[Item]] = {name: [] for name in known}
    for tree in trees:
        for name, blob in tree.visible.items():
            if (match := PNG.search(name)) and match[1] in known:
                found[match[1]].append(Item(blob, name))
    expect_counts({name: len(items) for name, items in found.items()}, wanted(), where, TITLE)
    items = [item for name in class_names() for item in found[name]]
    return contents(sorted_by_hash(decoded(items, DECODING)))


def packed(images: dict[str, np.ndarray], where: str) -> Contents:
    """CIFAR-FS from arrays, one for each class."""
    expect_counts({name: len(pixels) for name, pixels in images.items()}, wanted(), where, TITLE)
    return contents(sorted_by_hash(lambda: (images[name] for name in class_names())))


def contents(pixels: Pixels) -> Contents:
    """CIFAR-FS with its one split."""
    names = tuple(class_names())
    parts = {part: [entry.name for entry in entries("cifar-fs-bertinetto") if entry.part == part] for part in PARTS}
    splits = {"bertinetto": ranges(parts, names)}
    return Contents(names, (PER_CLASS,) * len(names), DECODING.shape, splits, pixels)


def class_names() -> list[str]:
    """The classes in the order of the store: those of train, then of val, then of test."""
    return [entry.name for entry in entries("cifar-fs-bertinetto")]


def wanted() -> dict[str, int]:
    """How many images each class should have."""
    return dict.fromkeys(class_names(), PER_CLASS)


def sorted_by_hash(pixels: Pixels) -> Pixels:
    """The same images, with each class in an order that depends only on the images."""

    def chunks() -> Iterator[np.ndarray]:
        kept = np.empty((0, *DECODING.shape), dtype=np.uint8)
        for chunk in pixels():
            kept = np.concatenate((kept, chunk))
            while len(kept) >= PER_CLASS:
                ours, kept = kept[:PER_CLASS], kept[PER_CLASS:]
                yield ours[np.argsort([digest(image.tobytes()) for image in ours])]

    return chunks


class PickledDtype:
    """Stands in for numpy.dtype while unpickling: keeps the type's code and ignores the rest."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code.decode("latin-1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Ignore the state: byte order and so on do not matter for single bytes."""


class PickledArray:
    """Stands in for numpy.ndarray while unpickling: accepts only unsigned bytes."""

    pixels: np.ndarray

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, PickledDtype) or dtype.code not in ("u1", "|u1") or not isinstance(raw, bytes):
            raise pickle.UnpicklingError("an array that does not hold unsigned bytes")
        self.pixels = np.frombuffer(raw, dtype=np.uint8).reshape(shape, order="F" if fortran else "C")


def _reconstruct(*_: Any) -> PickledArray:
    return PickledArray()


class PlainUnpickler(pickle.Unpickler):
    """Reads containers, numbers, strings and byte arrays; it imports nothing and refuses everything else."""

    allowed = {  # noqa: RUF012 (never modified)
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): PickledArray,
        ("numpy", "dtype"): PickledDtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        """A stand-in for the few names that CIFAR-100 needs."""
        if (module, name) not in self.allowed:
            raise pickle.UnpicklingError(f"the name {module}.{name}, which CIFAR-100 does not need")
        return self.allowed[module, name]

    def persistent_load(self, pid: Any) -> Any:
        """Refuse references to anything outside the pickle."""
        raise pickle.UnpicklingError("a reference to something outside")


def unpickle(data: bytes, where: str) -> dict[bytes, Any]:
    """The dictionary in one of CIFAR-100's pickles."""
    try:
        content = PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # for a damaged pickle the unpickler raises almost anything
        raise DataError(f"{where} is refused: its pickle holds {error}.") from error
    if not isinstance(content, dict):
        raise DataError(f"{where} is not CIFAR-100: its pickle holds no dictionary.")
    return {key.encode() if isinstance(key, str) else key: value for key, value in content.items()}


def from_pickles(files: dict[str, Blob], where: str) -> dict[str, np.ndarray]:
    """The images (n, 32, 32, 3) of each class from `train`, `test` and `meta` of the python archive."""
    try:
        parts = {f"{where}: {part}": files[part] for part in ("meta", "train", "test")}
        meta, *batches = [unpickle(blob.read_as(name), name) for name, blob in parts.items()]
        names = [name.decode() for name in meta[b"fine_label_names"]]
        planes = np.concatenate([batch[b"data"].pixels for batch in batches])
        labels = np.concatenate([np.array(batch[b"fine_labels"], dtype=np.int64) for batch in batches])
    except (KeyError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{where} is not CIFAR-100's python archive: {error!r}.") from error
    return by_class(names, labels, planes, where)


def from_records(files: dict[str, Blob], where: str) -> dict[str, np.ndarray]:
    """The images (n, 32, 32, 3) of each class from the binary archive."""
    listed, *data = [
        files[part].read_as(f"{where}: {part}") for part in ("fine_label_names.txt", "train.bin", "test.bin")
    ]
    names = listed.decode("utf-8", "replace").split()
    if any(len(part) % RECORD for part in data):
        raise DataError(f"{where} is damaged: a file size is not a multiple of {RECORD} bytes, one record.")
    records = np.concatenate([np.frombuffer(part, dtype=np.uint8).reshape(-1, RECORD) for part in data])
    return by_class(names, records[:, 1].astype(np.int64), records[:, 2:], where)


def by_class(names: list[str], labels: np.ndarray, planes: np.ndarray, where: str) -> dict[str, np.ndarray]:
    """Colour planes (n, 3072) as images (n, 32, 32, 3), one array per class."""
    if planes.ndim != 2 or planes.shape[1] != PIXELS or len(labels) != len(planes):
        raise DataError(f"{where} is damaged: pixels of shape {planes.shape} and {len(labels)} labels do not match.")
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(names):
        raise DataError(f"{where} is damaged: labels {labels.min()}..{labels.max()} for {len(names)} class names.")
    images = planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return {name: images[labels == label] for label, name in enumerate(names)}


SOURCE = Source(
    name="cifar-fs",
    title="CIFAR-FS: 100 classes x 600 images, 32 x 32 colour",
    licence="not stated by CIFAR-100's authors; cite Krizhevsky (2009)",
    how="handful data add cifar-fs (169 MB)",
    read=read,
    remotes=(
        Remote(
            "cifar-100-python.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                "https://www.cs.utoronto.ca/~kriz/cifar-100-python.tar.gz",
            ),
            "eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
    archives=("cifar-fs.zip", "cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
)
