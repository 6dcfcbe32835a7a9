"""Turn uploads into pictures. They are untrusted, so names and sizes are checked before pixels are decoded."""

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
"""The formats of browsers and cameras. Pillow reads many more, mostly with old and rarely used code."""
LONGEST_NAME = 120
SMALL = Decoding(192, 192, channels=3, fit="crop")
LARGE = 1200
"""Longest side, in pixels, of an image that is opened large."""


class TooLargeError(DataError):
    """An upload is larger, or has more images, than the service accepts."""


def checked(uploads: Sequence[tuple[str, bytes]], limits: Limits) -> list[Picture]:
    """Uploaded files (name and content) as pictures, after checking that their headers claim acceptable sizes."""
    if len(uploads) > limits.images:
        raise TooLargeError(f"A request may have at most {limits.images} images.")
    found = [Picture(plain_name(name) or f"number {i}", content) for i, (name, content) in enumerate(uploads)]
    if sum(_claimed_pixels(each, limits) for each in found) > limits.pixels_in_all:
        raise TooLargeError(f"The images of a request may have at most {limits.pixels_in_all} pixels in total.")
    return found


def pixels_for(picture: Picture, preprocessing: Preprocessing) -> NDArray[np.uint8]:
    """The pixels (h, w, c) of a picture from `checked`, prepared for an embedding."""
    return preprocessing.oriented(pixels_of(picture, picture.read(), preprocessing.decoding))


def small_picture(name: str, content: bytes) -> bytes:
    """A thumbnail of an image file as JPEG; the error for an unreadable image names it."""
    return _jpeg(Image.fromarray(pixels_of(Picture(name), content, SMALL)))


def large_picture(content: bytes) -> bytes:
    """An image for viewing, decoded and encoded again, so that the browser never sees the original bytes."""
    image = upright(content, Decoding(LARGE // 2, LARGE // 2))
    image.thumbnail((LARGE, LARGE))
    return _jpeg(image)


def blank_picture() -> bytes:
    """A placeholder thumbnail for an image that has none."""
    return _jpeg(Image.new("RGB", (32, 32), (160, 160, 160)))


def _jpeg(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()


def from_base64(text: str) -> bytes:
    """The bytes of base64 text, with or without a `data:...;base64,` prefix."""
    try:
        return base64.b64decode(text.partition(";base64,")[2] or text, validate=True)
    except (ValueError, binascii.Error) as error:
        raise DataError(f"An image is not base64: {error}.") from error


def plain_name(name: str) -> str:
    """A file name for display, without folders and unprintable characters. It is never used as a path."""
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
    except Exception as error:  # for a damaged file Pillow raises almost anything
        raise DataError(
            f"The image {picture.name} cannot be read: it is damaged, or its format is not one of {', '.join(FORMATS)}."
        ) from error
    if width * height > limits.pixels:
        raise TooLargeError(
            f"The image {picture.name} claims {width} x {height} pixels; at most {limits.pixels} are accepted."
        )
    return width * height
