"""miniImageNet in the split of Ravi and Larochelle (2017): 100 classes of ImageNet with 600 images, 84 x 84 in colour.

It may not be redistributed, so users provide it: as a folder of class folders, as a folder of images with csv lists, or
as ImageNet itself, from which the images are selected. Other sizes are squashed to 84 x 84, as the split's authors did.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from handful.data._packing import Item
from handful.data.archives import Blob, Tree
from handful.data.decode import Decoding, extensions
from handful.data.sources.source import Contents, Source, decoded, expect_counts, joined
from handful.data.splits import PARTS, entries, ranges
from handful.errors import DataError

LIST = "mini-imagenet-ravi"
CSV = re.compile(r"(?:^|[/_])(train|val|test)\.csv$")
CLASS_FOLDER = re.compile(r"(?:^|/)(n\d{8})/[^/]+$")
NUMBER = re.compile(r"(\d+)\.\w+$")
DECODING = Decoding(84, 84, fit="squash", filter="lanczos")
PER_CLASS = 600
TITLE = "miniImageNet"


def read(trees: Sequence[Tree]) -> Contents:
    """miniImageNet from any of its three layouts."""
    files = {name: blob for tree in trees for name, blob in tree.visible.items()}
    readable = extensions()
    images = {name: blob for name, blob in files.items() if PurePosixPath(name).suffix.lower() in readable}
    listed = csv_lists(files) or official_lists()
    found = listed_images(images, listed)
    if found is None:
        found = pick(class_folders(images, joined(trees)), listed, joined(trees))
    expect_counts({name: len(items) for name, items in found.items()}, wanted(), joined(trees), TITLE)
    names = tuple(class_names())
    parts = {part: [entry.name for entry in entries(LIST) if entry.part == part] for part in PARTS}
    return Contents(
        classes=names,
        counts=(PER_CLASS,) * len(names),
        shape=DECODING.shape,
        splits={"ravi": ranges(parts, names)},
        pixels=decoded([item for name in names for item in found[name]], DECODING),
    )


def class_names() -> list[str]:
    """The classes' WordNet numbers in the order of the store: those of train, then of val, then of test."""
    return [entry.name for entry in entries(LIST)]


def wanted() -> dict[str, int]:
    """How many images each class should have."""
    return dict.fromkeys(class_names(), PER_CLASS)


def official_lists() -> dict[str, list[str]]:
    """The images of each class by their names in the official lists."""
    return {entry.name: [f"{entry.name}{number:08d}.jpg" for number in entry.bits] for entry in entries(LIST)}


def csv_lists(files: dict[str, Blob]) -> dict[str, list[str]]:
    """The images of each class according to csv lists (filename, label) in `files`; empty if there are none."""
    listed: dict[str, list[str]] = {}
    for name, blob in files.items():
        if not CSV.search(name):
            continue
        for row in csv_rows(name, blob):
            if len(row) != 2:
                raise DataError(f"The list {name} should have lines 'filename,label', but has '{','.join(row)[:80]}'.")
            if row != ["filename", "label"]:
                listed.setdefault(row[1], []).append(row[0])
    return listed


def csv_rows(name: str, blob: Blob) -> list[list[str]]:
    """The rows of a csv list with any kind of line ends."""
    text = blob.read_as(f"The list {name}").decode("utf-8", "replace")
    try:
        return list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        raise DataError(f"The list {name} should have lines 'filename,label', but cannot be read: {error}.") from error


def listed_images(images: dict[str, Blob], listed: dict[str, list[str]]) -> dict[str, list[Item]] | None:
    """The listed images, if files with exactly these names exist; None if most do not, so the layout is another one."""
    by_name = {PurePosixPath(name).name: (name, blob) for name, blob in images.items()}
    found = {
        label: [Item(by_name[name][1], by_name[name][0]) for name in sorted(names) if name in by_name]
        for label, names in listed.items()
    }
    complete = sum(len(items) == PER_CLASS for items in found.values())
    return found if complete > len(listed) // 2 else None


def class_folders(images: dict[str, Blob], where: str) -> dict[str, list[Item]]:
    """The images in folders named after WordNet numbers, ordered by the number in their file names."""
    found: dict[str, list[Item]] = {name: [] for name in class_names()}
    for name, blob in images.items():
        if (match := CLASS_FOLDER.search(name)) and match[1] in found:
            found[match[1]].append(Item(blob, name))
    if not any(found.values()):
        raise DataError(
            f"No images of {TITLE} in {where}. Expected a folder for each class (n01532829/*.jpg), a folder of images "
            f"named as in the csv lists (n0153282900000005.jpg), or ImageNet's training images "
            f"(n01532829/n01532829_*.JPEG)."
        )
    return {name: sorted(items, key=number_of) for name, items in found.items()}


def number_of(item: Item) -> tuple[int, str]:
    """The number at the end of an image's name, which orders ImageNet's images; the name itself if there is none."""
    match = NUMBER.search(item.name)
    return int(match[1]) if match else -1, item.name


def pick(folders: dict[str, list[Item]], listed: dict[str, list[str]], where: str) -> dict[str, list[Item]]:
    """The 600 images of each class: the whole folder if it has no more, else those at the listed positions."""
    picked: dict[str, list[Item]] = {}
    for name, items in folders.items():
        if len(items) <= PER_CLASS:
            picked[name] = items
            continue
        places = [int(match[1][-8:]) for file in listed.get(name, []) if (match := NUMBER.search(file))]
        if not places or max(places) > len(items):
            raise DataError(
                f"Class {name} in {where} has {len(items)} images: neither the {PER_CLASS} of {TITLE} nor the "
                f"{max(places, default=0)} or more of ImageNet's training set, from which the lists pick."
            )
        picked[name] = [items[place - 1] for place in places]
    return picked


SOURCE = Source(
    name="mini-imagenet",
    title="miniImageNet: 100 classes x 600 images, 84 x 84 colour",
    licence="ImageNet's terms: non-commercial research only, no redistribution",
    how="handful data add mini-imagenet --from PATH (your copy of it, or of ImageNet's training images)",
    read=read,
    archives=("mini-imagenet.zip", "miniImagenet.zip", "images.zip"),
)
