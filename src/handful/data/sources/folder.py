"""Your own folder with one subfolder per class: any images that Pillow can read, resized and centre-cropped."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from handful.data._packing import Item
from handful.data.archives import Blob, Tree
from handful.data.decode import Decoding, extensions
from handful.data.sources.source import Contents, decoded, joined
from handful.data.splits import DEFAULT, PARTS, cut, ranges
from handful.errors import DataError, InvalidOptionError, NotEnoughImagesError

PART_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
}

Classes = dict[str, list[Item]]


@dataclass(frozen=True)
class FolderOptions:
    """How a folder becomes a data set.

    `split` gives counts or fractions of classes for train/val/test, which `seed` assigns at random. Without it,
    subfolders called train, val and test are the split if they exist; otherwise it is 64%, 16% and 20% of the classes.
    """

    size: int = 84
    grey: bool = False
    split: str | None = None
    seed: int = 0
    min_images: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.size <= 1024:
            raise InvalidOptionError(f"size must be 1 to 1024 pixels per side, but got {self.size}.")
        if self.min_images < 1:
            raise InvalidOptionError(f"min_images must be at least 1, but got {self.min_images}.")


@dataclass(frozen=True)
class Listing:
    """The image files of a folder by class; `parts` has the keys train, val, test or, without such folders, None."""

    parts: Mapping[str | None, Classes]
    notes: tuple[str, ...]


def read_folder(trees: Sequence[Tree], options: FolderOptions) -> Contents:
    """The classes of a folder or archive, in the order train, val, test."""
    where = joined(trees)
    listing = list_classes(_together(trees))
    classes = merged(listing, options, where)
    check_counts(classes, options, where)
    by_folder = options.split is None and None not in listing.parts
    split = "folders" if by_folder else options.split or DEFAULT
    if by_folder:
        parts = {part: sorted(listing.parts.get(part, {})) for part in PARTS}
    else:
        parts = cut(sorted(classes), split, options.seed)
    names = tuple(name for part in PARTS for name in parts[part])
    decoding = Decoding(options.size, options.size, channels=1 if options.grey else 3)
    return Contents(
        classes=names,
        counts=tuple(len(classes[name]) for name in names),
        shape=decoding.shape,
        splits={split: ranges(parts, names)},
        groups=tuple(name.split("/")[0] for name in names) if all("/" in name for name in names) else None,
        pixels=decoded([item for name in names for item in classes[name]], decoding),
        notes=listing.notes,
    )


def _together(trees: Sequence[Tree]) -> dict[PurePosixPath, Blob]:
    """The files of all folders and archives by relative name; raises if two images have the same one."""
    files: dict[PurePosixPath, Blob] = {}
    for tree in trees:
        for name, blob in tree.files.items():
            path = PurePosixPath(name)
            hidden = any(part.startswith(".") for part in path.parts)
            if path in files and not hidden and path.suffix.lower() in extensions():
                raise DataError(f"{joined(trees)} hold several images called {name}. Rename all but one of them.")
            files[path] = blob
    return files


def list_classes(files: Mapping[PurePosixPath, Blob]) -> Listing:
    """Sort files into classes by folder; a single folder around everything is skipped."""
    readable = extensions()
    visible = {path: blob for path, blob in files.items() if not any(part.startswith(".") for part in path.parts)}
    named = {path: blob for path, blob in visible.items() if path.suffix.lower() in readable}
    images = {path: blob for path, blob in named.items() if blob.size is not None or os.path.isfile(blob.path)}
    depth = wrapper_depth(list(images))
    filed = {path: blob for path, blob in images.items() if len(path.parts) > depth + 1}
    by_part = bool(filed) and {path.parts[depth].lower() for path in filed} <= PART_FOLDERS.keys()
    by_part = by_part and all(len(path.parts) > depth + 2 for path in filed)
    parts: dict[str | None, Classes] = {}
    for path, blob in filed.items():
        part = PART_FOLDERS[path.parts[depth].lower()] if by_part else None
        name = readable_name("/".join(path.parts[depth + by_part : -1]))
        parts.setdefault(part, {}).setdefault(name, []).append(Item(blob, str(path)))
    skipped = {
        "hidden files": len(files) - len(visible),
        "files that are not images": len(visible) - len(named),
        "pipes, devices or broken links": len(named) - len(images),
        "images outside any class folder": len(images) - len(filed),
    }
    return Listing(parts, tuple(f"skipped {n} {what}" for what, n in skipped.items() if n))


def readable_name(name: str) -> str:
    """The name of a class as text: bytes that are not UTF-8 are escaped, as in caf\\xe9."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def wrapper_depth(images: Sequence[PurePosixPath]) -> int:
    """How many nested folders merely enclose all class folders."""
    depth = 0
    while images and all(len(path.parts) > depth + 2 for path in images):
        around = {path.parts[depth] for path in images}
        if len(around) > 1 or around.pop().lower() in PART_FOLDERS:
            break
        depth += 1
    return depth


def merged(listing: Listing, options: FolderOptions, where: str) -> Classes:
    """All classes; a class in two parts is merged if the classes are split again, and otherwise an error."""
    classes: Classes = {}
    home: dict[str, str | None] = {}
    for part, found in listing.parts.items():
        for name, items in found.items():
            if name in classes and options.split is None:
                raise DataError(
                    f"Class '{name}' in {where} is in both {home[name]} and {part}, but few-shot splits must not share "
                    f"classes. Add --split to merge such classes and split them again."
                )
            classes.setdefault(name, []).extend(items)
            home[name] = part
    return classes


def check_counts(classes: Classes, options: FolderOptions, where: str) -> None:
    """Raise if a folder has no classes, or classes with too few images."""
    if not classes:
        raise DataError(f"No class folders with images in {where}. Expected one folder per class, with its images.")
    small = {name: len(items) for name, items in sorted(classes.items()) if len(items) < options.min_images}
    if small:
        some = ", ".join(f"'{name}' ({n})" for name, n in list(small.items())[:5])
        raise NotEnoughImagesError(
            f"{len(small)} of {len(classes)} classes in {where} have fewer than {options.min_images} images: {some}"
            f"{', ...' if len(small) > 5 else ''}. Add images, move these folders away, or lower --min-images."
        )
