"""All kinds of image inputs, converted to one type: a name and the bytes of an image file."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from handful._io import MEGABYTE, read_bytes
from handful.data.archives import Blob, folder_files
from handful.data.decode import Decoding, decode, eight_bit, extensions
from handful.errors import DataError, InvalidOptionError, NotFiniteError, ShapeError

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]

THUMBNAIL = Decoding(96, 96, channels=3, fit="crop")


@dataclass(frozen=True)
class Picture:
    """One image: a file on disk, read when it is needed, or bytes in memory."""

    name: str
    content: bytes | None = None

    def read(self) -> bytes:
        """The bytes of the image file."""
        if self.content is not None:
            return self.content
        try:
            mode = os.stat(self.name).st_mode
            if stat.S_ISDIR(mode):
                raise DataError("is a folder. Give only the folder, or its images")
            if not stat.S_ISREG(mode):  # a pipe would block, and a device has no end
                raise DataError("is not a regular file")
            return Blob(self.name).read()
        except ValueError as error:
            raise DataError(f"{self.name!r} is not a valid path: {error}.") from error
        except OSError as error:
            raise DataError(f"The image {self.name} cannot be read: {error.strerror or error}.") from error
        except DataError as error:
            raise DataError(f"The image {self.name} {str(error).rstrip('.')}.") from error


class UnreadableImagesError(DataError):
    """Some of the given images cannot be read; `reasons` are by position."""

    def __init__(self, reasons: Mapping[int, str], total: int) -> None:
        self.reasons = dict(reasons)
        some = list(self.reasons.values())
        more = f" (and {len(some) - 1} more of {total} images)" if len(some) > 1 else ""
        super().__init__(f"{some[0].rstrip('.')}{more}.")


def pixels_of(picture: Picture, content: bytes, decoding: Decoding) -> NDArray[np.uint8]:
    """Decode the content of a picture to uint8 (height, width, channels); errors name the picture."""
    try:
        return decode(content, decoding)
    except DataError as error:
        raise DataError(f"The image {picture.name} {str(error).rstrip('.')}.") from error


def thumbnail(picture: Picture, content: bytes) -> bytes:
    """A small JPEG of a picture."""
    small = io.BytesIO()
    Image.fromarray(pixels_of(picture, content, THUMBNAIL)).save(small, "JPEG", quality=80)
    return small.getvalue()


def are_pictures(X: Any) -> bool:
    """Whether this is one or several images in any form that `pictures` accepts, rather than features."""
    X = as_list(X)
    if isinstance(X, str | Path | Image.Image):
        return True
    if isinstance(X, torch.Tensor | np.ndarray):
        return X.ndim in (3, 4) or (isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "UO" and _all(X))
    return isinstance(X, list | tuple) and len(X) > 0 and _all(X)


def is_nothing(X: Any) -> bool:
    """Whether this is empty: no images and no features."""
    X = as_list(X)
    return (isinstance(X, list | tuple) and not X) or (isinstance(X, np.ndarray) and X.shape == (0,))


def as_list(X: Any) -> Any:
    """A column of a data frame (pandas, polars) as a list; anything else unchanged."""
    return X.to_list() if hasattr(X, "to_list") and getattr(X, "ndim", 1) == 1 else X


def _all(items: Any) -> bool:
    arrays = np.ndarray, torch.Tensor
    return len(items) > 0 and all(
        isinstance(item, str | Path | bytes | Image.Image | Picture)
        or (isinstance(item, arrays) and item.ndim in (2, 3))
        for item in items
    )


def pictures(X: Any) -> list[Picture]:
    """The images of a file, a folder, or a list of paths, bytes, Pillow images, arrays or tensors."""
    X = as_list(X)
    if isinstance(X, str | Path):
        return listed_pictures([X]).pictures
    if isinstance(X, Image.Image):
        X = [X]
    if isinstance(X, torch.Tensor | np.ndarray) and X.ndim in (3, 4):
        X = _separate(np.asarray(X.detach().cpu() if isinstance(X, torch.Tensor) else X))
    return [_picture(item, number) for number, item in enumerate(X)]


def listed_pictures(given: Iterable[str | Path]) -> Labelled:
    """The unlabelled images of files and folders, and the files that were skipped in folders."""
    found: list[Picture] = []
    skipped: dict[str, list[Path]] = {}
    for each in given:
        if not str(each):  # Path("") is the current folder, which nobody meant
            raise InvalidOptionError(
                "The path of an image or folder is empty. Give one, or '.' for the current folder; in a script, check "
                "for a variable that is not set."
            )
        files, left_out = _files(Path(each)) if os.path.isdir(each) else ([Path(each)], {})
        if not files:
            raise DataError(f"There is no image in the folder {each}.{_because(left_out)}")
        found += [Picture(str(file)) for file in files]
        for reason, some in left_out.items():
            skipped.setdefault(reason, []).extend(some)
    return Labelled(found, None, skipped)


def image_items(X: Any) -> list[Any] | None:
    """The original images: the paths of a folder or the items of a list; None for an array or features."""
    X = as_list(X)
    if not are_pictures(X) or (isinstance(X, torch.Tensor | np.ndarray) and X.ndim > 1):
        return None
    if isinstance(X, str | Path):
        return [type(X)(picture.name) for picture in pictures(X)]
    return [X] if isinstance(X, Image.Image) else list(X)


Part = Literal["train", "test"]
_PARTS: dict[str, Part] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("test", "testing", "val", "valid", "validation"), "test"),
}
"""Names of folders that hold the class folders of one part of a data set."""


@dataclass(frozen=True)
class Labelled:
    """Pictures with their labels, the files that were left out, and the folder of the pictures."""

    pictures: list[Picture]
    labels: Any
    skipped: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    """Files that were not used, by reason."""
    folder: Path | None = None
    """The folder of the class folders: the given one, or its train or test folder."""

    @property
    def remarks(self) -> list[str]:
        """One line per reason for skipping files, with their number and an example."""
        return [
            f"{count_of(len(files), 'file')} skipped: {reason}, for example {files[0]}"
            for reason, files in self.skipped.items()
        ]


def labelled_pictures(X: Any, y: Any, part: Part = "train") -> Labelled:
    """Pictures with their labels, which are given or come from the names of class folders or the rows of a table."""
    if y is not None:
        return Labelled(pictures(X), y)
    if isinstance(X, str | Path):
        path = Path(X)
        return _table(path) if path.suffix.lower() == ".csv" and os.path.isfile(path) else class_folders(path, part)
    raise InvalidOptionError(
        "Images need labels: fit(images, labels). Only a folder of class folders, or a CSV file, has its own."
    )


def class_folders(folder: Path, part: Part = "train") -> Labelled:
    """The images of a folder with one subfolder per class, or of the part if it has train and test folders."""
    if not os.path.isdir(folder):  # unlike Path.is_dir, never an error, however long the name is
        if not os.path.exists(folder):
            raise DataError(f"There is no folder {folder}.")
        raise DataError(f"{folder} is not a folder. Anything other than a folder of class folders needs labels.")
    folder = _part_of(folder, part)
    classes = _subfolders(folder)
    listed = {each.name: _files(each) for each in classes}
    skipped: dict[str, list[Path]] = {}
    for _, left_out in listed.values():
        for reason, files in left_out.items():
            skipped.setdefault(reason, []).extend(files)
    beside = {path: _reason(path, folder, extensions()) for path in sorted(folder.iterdir()) if not path.is_dir()}
    loose = [path for path, reason in beside.items() if not reason]
    if not listed:
        hint = (
            f"It has {count_of(len(loose), 'image')} outside of class folders." if loose else "It has no folder in it."
        )
        raise DataError(f"No classes in {folder}: expected one folder per class, with its images. {hint}")
    empty = [name for name, (files, _) in listed.items() if not files]
    if empty:
        raise DataError(
            f"{len(empty)} of the {len(listed)} class folders in {folder} hold no image, for example '{empty[0]}'."
            f"{_because(listed[empty[0]][1])} Add images to it or remove it."
        )
    for path, reason in beside.items():
        skipped.setdefault(reason or "beside the class folders, not in one", []).append(path)
    labels = np.array([name for name, (files, _) in listed.items() for _ in files])
    found = [Picture(str(file)) for files, _ in listed.values() for file in files]
    return Labelled(found, labels, skipped, folder)


def _part_of(folder: Path, part: Part) -> Path:
    """The subfolder for a part, if all subfolders are such parts and hold class folders."""
    parts: dict[Part, list[Path]] = {"train": [], "test": []}
    for each in _subfolders(folder):
        kind = _PARTS.get(each.name.lower())
        if kind is None or not _subfolders(each):
            return folder
        parts[kind].append(each)
    # test before validation
    return (
        min(parts[part], key=lambda each: (not each.name.lower().startswith("t"), each.name)) if parts[part] else folder
    )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


PATHS, LABELS = ("path", "image", "file", "filename", "filepath"), ("label", "class", "category", "target")
"""Accepted names for the columns of a table."""
MOST_TABLE = 64 * MEGABYTE


def _table(path: Path) -> Labelled:
    """A CSV file of paths and labels; relative paths are looked up next to the file, then in the current folder."""
    try:
        text = read_bytes(path, MOST_TABLE).decode("utf-8-sig", errors="surrogateescape")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except DataError as error:
        raise DataError(f"The table {path} {error}.") from error
    except (OSError, csv.Error) as error:
        raise DataError(f"The table {path} cannot be read: {error}.") from error
    head = [cell.strip().lower() for cell in rows[0]] if rows else []
    columns = [next((i for i, cell in enumerate(head) if cell in names), -1) for names in (PATHS, LABELS)]
    if -1 not in columns:
        rows = rows[1:]
    elif len(head) == 2:
        columns = [0, 1]
    if -1 in columns or not rows or any(len(row) <= max(columns) for row in rows):
        raise DataError(f"The table {path} needs two columns, path and label, in every row; its first line is {head}.")
    paths = [row[columns[0]] for row in rows]
    beside = [str(path.parent / each) for each in paths]
    found = [Picture(near if os.path.exists(near) else each) for near, each in zip(beside, paths, strict=True)]
    labels = [row[columns[1]].strip() for row in rows]
    if "" in labels:
        raise DataError(
            f"The table {path} has no label for {found[labels.index('')].name}. Label it, or leave out its row."
        )
    return Labelled(found, np.array(labels))


def images_below(folder: Path) -> list[Path]:
    """The images in a folder and its subfolders, in order."""
    return _files(folder)[0]


def _files(folder: Path) -> tuple[list[Path], dict[str, list[Path]]]:
    """The images in a folder and its subfolders, and the other files by reason."""
    readable = extensions()
    found: list[Path] = []
    skipped: dict[str, list[Path]] = {}
    for path in sorted(Path(blob.path) for _, blob in folder_files(folder)):
        reason = _reason(path, folder, readable)
        if reason:
            skipped.setdefault(reason, []).append(path)
        else:
            found.append(path)
    return found, skipped


def _reason(path: Path, folder: Path, readable: frozenset[str]) -> str:
    """Why a file is not an image; empty if it is one."""
    suffix = path.suffix.lower()
    if any(part.startswith(".") for part in path.relative_to(folder).parts):
        return "hidden"
    if not path.is_file():
        return "a broken link, a pipe or a device"
    if suffix in readable:
        return ""
    if suffix in (".heic", ".heif", ".hif"):
        return "HEIC needs pip install pillow-heif"
    return f"{suffix} is not an image format" if suffix else "no extension"


def _because(skipped: Mapping[str, Sequence[Path]]) -> str:
    told = "; ".join(f"{count_of(len(files), 'file')}: {reason}" for reason, files in skipped.items())
    return f" Skipped {told}." if told else ""


def count_of(number: int, thing: str) -> str:
    """A count with its noun: "1 image", "2 images", "3 classes"."""
    plural = f"{thing}es" if thing.endswith("s") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else plural}"


def _picture(item: Any, number: int) -> Picture:
    if isinstance(item, Picture):
        return item
    if isinstance(item, str | Path):
        return Picture(str(item))
    if isinstance(item, bytes):
        return Picture(f"number {number}", item)
    if isinstance(item, Image.Image):
        return Picture(f"number {number}", _encoded(_from_pillow(item, number)))
    if isinstance(item, np.ndarray | torch.Tensor) and item.ndim in (2, 3):
        return Picture(f"number {number}", _encoded(_from_array(np.asarray(item), number)))
    raise ShapeError(f"Image number {number} is a {type(item).__name__}, not a path, a Pillow image or an array.")


def _separate(batch: NDArray[Any]) -> Sequence[NDArray[Any]]:
    if batch.ndim == 3 and batch.shape[-1] in (3, 4):
        raise ShapeError(
            f"An array of shape {batch.shape} could be one colour image or several grey ones. "
            f"Put one image in a list: [image]; give several a last dimension: images[..., None]."
        )
    return list(batch)


def _from_pillow(image: Image.Image, number: int) -> Image.Image:
    if not (image.width and image.height):
        raise ShapeError(f"Image number {number} is empty: it has {image.width} x {image.height} pixels.")
    image = ImageOps.exif_transpose(image)  # as for files: the camera's rotation is undone
    try:
        return eight_bit(image, "L" if image.mode in ("1", "L") else "RGB")
    except DataError as error:
        raise DataError(f"Image number {number} {error}.") from error


def _from_array(image: NDArray[Any], number: int) -> Image.Image:
    if not image.size:
        raise ShapeError(f"Image number {number} is empty: its shape is {image.shape}.")
    if image.ndim == 3 and image.shape[-1] not in (1, 3, 4) and image.shape[0] in (1, 3, 4):
        image = np.moveaxis(image, 0, -1)
    if image.ndim == 3 and image.shape[-1] not in (1, 3, 4):
        raise ShapeError(f"Image number {number} has shape {image.shape}; expected (h, w), (h, w, c) or (c, h, w).")
    if image.dtype.kind == "f":
        if not np.isfinite(image).all():
            raise NotFiniteError(f"Image number {number} holds NaN or infinite pixels.")
        if image.min() < 0 or image.max() > 1:
            raise ShapeError(
                f"Image number {number} has pixels from {image.min():g} to {image.max():g}. "
                f"Pixels must be floats in [0, 1] or uint8."
            )
        image = np.round(255 * image)
    elif image.dtype not in (np.uint8, np.bool_):
        raise ShapeError(f"Image number {number} has pixels of type {image.dtype}; expected uint8 or floats in [0, 1].")
    plain = (255 * image if image.dtype == np.bool_ else image).astype(np.uint8)
    plain = plain[..., 0] if plain.ndim == 3 and plain.shape[-1] == 1 else plain
    mode: Literal["L", "RGB"] = "L" if plain.ndim == 2 else "RGB"
    return eight_bit(Image.fromarray(plain), mode)


def _encoded(image: Image.Image) -> bytes:
    """The image as a plain pixel map, the cheapest format that every decoder can read."""
    encoded = io.BytesIO()
    image.save(encoded, "PPM")
    return encoded.getvalue()
