"""CIFAR-FS (Bertinetto et al., 2019): the 100 classes of CIFAR-100 with their 600 images, 32 x 32 in colour.

Within a class the images are sorted by a hash of their pixels, so that every layout gives the same store, byte by byte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import numpy as np

from handful.data.archives import Tree
from handful.data.cifar_100 import from_pickles, from_records
from handful.data.decode import Decoding
from handful.data.download import Remote
from handful.data.packing import Item
from handful.data.sources.source import Contents, Pixels, Source, decoded, expect_counts, joined
from handful.data.splits import PARTS, entries, ranges

PNG = re.compile(r"(?:^|/)(\w+)/[^/]+\.png$")
DECODING = Decoding(32, 32)
PER_CLASS = 600
TITLE = "CIFAR-FS"


def read(trees: Sequence[Tree]) -> Contents:
    """CIFAR-FS from the authors' zip or folder, or from CIFAR-100's python or binary archive or folder."""
    where = joined(trees)
    files = {PurePosixPath(name).name: blob for tree in trees for name, blob in tree.files.items()}
    if {"train", "test", "meta"} <= files.keys():
        return packed(from_pickles(files, where), where)
    if {"train.bin", "test.bin", "fine_label_names.txt"} <= files.keys():
        return packed(from_records(files, where), where)
    known = set(class_names())
    found: dict[str, list[Item]] = {name: [] for name in known}
    for tree in trees:
        for name, blob in tree.files.items():
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
    """The same images, each class in an order that depends on nothing but the images."""

    def chunks() -> Iterator[np.ndarray]:
        kept = np.empty((0, *DECODING.shape), dtype=np.uint8)
        for chunk in pixels():
            kept = np.concatenate((kept, chunk))
            while len(kept) >= PER_CLASS:
                ours, kept = kept[:PER_CLASS], kept[PER_CLASS:]
                yield ours[np.argsort([hashlib.sha256(image.tobytes()).hexdigest() for image in ours])]

    return chunks


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
