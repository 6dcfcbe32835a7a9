"""Uploads become pictures here: every one is a stranger's, so its name and its size are checked before its pixels."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from handful.classifier.inputs import Picture, pixels_of
from handful.data.decode import Decoding, upright
from handful.embeddings.preprocessing import Preprocessing
from handful.errors import DataError
from handful.serve.guard import Limits

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF")
"""What browsers and cameras make. Pillow reads many more, mostly with old and rarely used code."""
LONGEST_NAME = 120
SMALL = Decoding(192, 192, channels=3, fit="crop")
LARGE = 1200
"""Longest side, in pixels, of an image that is opened."""


class TooLargeError(DataError):
    """An upload is larger, or has more images, than the service accepts."""


def checked(uploads: Sequence[tuple[str, bytes]], limits: Limits) -> list[Picture]:
    """Uploaded files by name and content as pictures, once their headers show that they are small enough to decode."""
    if len(uploads) > limits.images:
        raise TooLargeError(f"A request may have at most {limits.images} images.")
    found = [Picture(plain_name(name) or f"number {i}", content) for i, (name, content) in enumerate(uploads)]
    if sum(_claimed_pixels(each, limits) for each in found) > limits.pixels_in_all:
        raise TooLargeError(f"The images of a request may have at most {limits.pixels_in_all} pixels together.")
    return found


def pixels_for(picture: Picture, preprocessing: Preprocessing) -> NDArray[np.uint8]:
    """The pixels (h, w, c) of a picture that `checked` let pass, as an embedding wants them."""
    return preprocessing.oriented(pixels_of(picture, picture.read(), preprocessing.decoding))


def small_picture(name: str, content: bytes) -> bytes:
    """A small JPEG of an image file; what cannot be read as an image is refused by name."""
    return _jpeg(Image.fromarray(pixels_of(Picture(name), content, SMALL)))


def large_picture(content: bytes) -> bytes:
    """An image for looking at, decoded and encoded again: the browser never sees the bytes that were given."""
    image = upright(content, Decoding(LARGE // 2, LARGE // 2))
    image.thumbnail((LARGE, LARGE))
    return _jpeg(image)


def blank_picture() -> bytes:
    """A small picture for an image that has none."""
    return _jpeg(Image.new("RGB", (32, 32), (160, 160, 160)))


def _jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()


def from_base64(text: str) -> bytes:
    """The bytes of base64 text, with or without a `data:...;base64,` in front."""
    try:
        return base64.b64decode(text.partition(";base64,")[2] or text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise DataError(f"An image is not base64: {error}.") from error


def plain_name(name: str) -> str:
    """A file name to show: without folders and characters that do not print. It is never used as a path."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(each for each in last if each.isprintable()).strip()[:LONGEST_NAME]


def _claimed_pixels(picture: Picture, limits: Limits) -> int:
    content = picture.read()
    if len(content) > limits.image:
        raise TooLargeError(f"The image {picture.name} has {len(content)} bytes; at most {limits.image} are accepted.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                width, height = image.size
    except Image.DecompressionBombError as error:
        raise TooLargeError(f"The image {picture.name} claims too many pixels.") from error
    except Exception as error:  # a damaged file makes Pillow raise almost anything
        raise DataError(
            f"The image {picture.name} cannot be read: it is damaged or none of {', '.join(FORMATS)}."
        ) from error
    if width * height > limits.pixels:
        raise TooLargeError(
            f"The image {picture.name} claims {width} x {height} pixels; at most {limits.pixels} are accepted."
        )
    return width * height
