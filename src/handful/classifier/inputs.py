"""What people call images, as one thing: a name and the bytes of an image file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from handful.data.archives import Blob
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
            return Blob(self.name).read()
        except OSError as error:
            raise DataError(f"The image {self.name} cannot be read: {error.strerror or error}.") from error
        except DataError as error:
            raise DataError(f"The image {self.name} {str(error).rstrip('.')}.") from error


def pixels_of(picture: Picture, content: bytes, decoding: Decoding) -> NDArray[np.uint8]:
    """Decode the content of a picture, uint8 (height, width, channels); a failure names the picture."""
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
    """Whether this is one or several images in any form that `pictures` takes, rather than features."""
    if isinstance(X, str | Path | Image.Image):
        return True
    if isinstance(X, torch.Tensor | np.ndarray):
        return X.ndim in (3, 4) or (isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype.kind in "UO" and _all(X))
    return isinstance(X, list | tuple) and len(X) > 0 and _all(X)


def _all(items: Any) -> bool:
    arrays = np.ndarray, torch.Tensor
    return len(items) > 0 and all(
        isinstance(item, str | Path | bytes | Image.Image) or (isinstance(item, arrays) and item.ndim in (2, 3))
        for item in items
    )


def pictures(X: Any) -> list[Picture]:
    """The images: of a file, of a folder, or of a list of paths, files' bytes, Pillow images, arrays or tensors."""
    if isinstance(X, str | Path):
        path = Path(X)
        files = _files(path) if path.is_dir() else [path]
        if not files:
            raise DataError(f"There is no image in the folder {path}.")
        return [Picture(str(file)) for file in files]
    if isinstance(X, Image.Image):
        X = [X]
    if isinstance(X, torch.Tensor | np.ndarray) and X.ndim in (3, 4):
        X = _separate(np.asarray(X.detach().cpu() if isinstance(X, torch.Tensor) else X))
    return [_picture(item, number) for number, item in enumerate(X)]


def labelled_pictures(X: Any, y: Any) -> tuple[list[Picture], Any]:
    """Pictures with their labels: those given, or the names of the class folders."""
    if y is not None:
        return pictures(X), y
    if isinstance(X, str | Path):
        return class_folders(Path(X))
    raise InvalidOptionError("Images need labels: fit(images, labels). Only a folder of class folders has its own.")


def class_folders(folder: Path) -> tuple[list[Picture], NDArray[np.str_]]:
    """The images of a folder with one subfolder per class, and their labels."""
    if not folder.is_dir():
        if not folder.exists():
            raise DataError(f"There is no folder {folder}.")
        raise DataError(f"{folder} is not a folder. Labels are needed with anything but a folder of class folders.")
    classes = sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    found = {each.name: _files(each) for each in classes}
    if not found:
        loose = len(_files(folder))
        hint = f"It has {loose} images, but in no class folder." if loose else "It has no folder in it."
        raise DataError(f"No classes in {folder}: expected one folder for each class, with its images. {hint}")
    empty = [name for name, files in found.items() if not files]
    if empty:
        raise DataError(
            f"{len(empty)} of the {len(found)} class folders in {folder} hold no image, for example '{empty[0]}'. "
            f"Add images to it or remove it."
        )
    labels = np.array([name for name, files in found.items() for _ in files])
    return [Picture(str(file)) for files in found.values() for file in files], labels


def _files(folder: Path) -> list[Path]:
    readable = extensions()
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in readable and path.is_file() and not _hidden(path, folder)
    )


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _picture(item: Any, number: int) -> Picture:
    if isinstance(item, str | Path):
        if Path(item).is_dir():
            raise DataError(f"{item} is a folder, but an image was expected. Give the folder alone, or its images.")
        return Picture(str(item))
    if isinstance(item, bytes):
        return Picture(f"number {number}", item)
    if isinstance(item, Image.Image):
        return Picture(f"number {number}", _encoded(eight_bit(item, "L" if item.mode in ("1", "L") else "RGB")))
    if isinstance(item, np.ndarray | torch.Tensor) and item.ndim in (2, 3):
        return Picture(f"number {number}", _encoded(_from_array(np.asarray(item), number)))
    raise ShapeError(f"Image number {number} is a {type(item).__name__}, not a path, a Pillow image or an array.")


def _separate(batch: NDArray[Any]) -> Sequence[NDArray[Any]]:
    if batch.ndim == 3 and batch.shape[-1] in (3, 4):
        raise ShapeError(
            f"An array of shape {batch.shape} may be one colour image or several grey ones. "
            f"Put one image in a list: [image]; give several a last dimension: images[..., None]."
        )
    return list(batch)


def _from_array(image: NDArray[Any], number: int) -> Image.Image:
    if image.ndim == 3 and image.shape[-1] not in (1, 3, 4) and image.shape[0] in (1, 3, 4):
        image = np.moveaxis(image, 0, -1)
    if image.ndim == 3 and image.shape[-1] not in (1, 3, 4):
        raise ShapeError(f"Image number {number} has shape {image.shape}; expected (h, w), (h, w, c) or (c, h, w).")
    if image.dtype.kind == "f":
        if not np.isfinite(image).all():
            raise NotFiniteError(f"Image number {number} holds NaN or infinite pixels.")
        if image.min(initial=0) < 0 or image.max(initial=0) > 1:
            raise ShapeError(
                f"Image number {number} has pixels from {image.min():g} to {image.max():g}. "
                f"Pixels are floating-point numbers in [0, 1], or uint8."
            )
        image = np.round(255 * image)
    elif image.dtype not in (np.uint8, np.bool_):
        raise ShapeError(f"Image number {number} has pixels of type {image.dtype}; expected uint8 or floats in [0, 1].")
    plain = (255 * image if image.dtype == np.bool_ else image).astype(np.uint8)
    plain = plain[..., 0] if plain.ndim == 3 and plain.shape[-1] == 1 else plain
    mode: Literal["L", "RGB"] = "L" if plain.ndim == 2 else "RGB"
    return eight_bit(Image.fromarray(plain), mode)


def _encoded(image: Image.Image) -> bytes:
    """As a plain pixel map: the cheapest format that every decoder reads."""
    encoded = io.BytesIO()
    image.save(encoded, "PPM")
    return encoded.getvalue()
