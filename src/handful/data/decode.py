"""Decode image files of any format, mode and orientation to pixels of a given size."""

from __future__ import annotations

import io
import math
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from handful.errors import DataError

MAX_PIXELS = 100_000_000
"""Images with more pixels than this are refused, because a file of a few hundred bytes can claim gigabytes."""

COMMON = (
    "PNG",
    "JPEG",
    "MPO",
    "WEBP",
    "GIF",
    "BMP",
    "DIB",
    "TIFF",
    "PPM",
    "AVIF",
    "HEIF",
    "JPEG2000",
    "TGA",
    "ICO",
    "PCX",
)
"""The formats that are read if Pillow or a plug-in supports them. Pillow's rarer decoders have most of its bugs."""


@dataclass(frozen=True)
class Decoding:
    """The target size and number of channels of every image, and how to get there.

    `fit` is "crop" (scale until the shorter side fits, then crop the centre) or "squash" (resize both sides, ignoring
    the aspect ratio). `invert` turns dark ink on white paper into bright ink on black.
    """

    height: int
    width: int
    channels: Literal[1, 3] = 3
    fit: Literal["crop", "squash"] = "crop"
    filter: Literal["bilinear", "lanczos", "nearest"] = "bilinear"
    invert: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        return self.height, self.width, self.channels


def formats() -> list[str]:
    """The names of the image formats that are read, common ones first because Pillow tries them in order."""
    Image.init()
    with suppress(ImportError):  # iPhone photographs, if the decoder is installed
        from pillow_heif import register_heif_opener

        register_heif_opener()
    return [name for name in COMMON if name in Image.OPEN]


def extensions() -> frozenset[str]:
    """The file extensions, in lower case and with their dot, of the image formats that are read."""
    readable = set(formats())
    return frozenset(extension for extension, name in Image.registered_extensions().items() if name in readable)


def decode(data: bytes, decoding: Decoding, quarter_turns: int = 0) -> np.ndarray:
    """One image file as uint8 (height, width, channels), rotated counter-clockwise before it is resized."""
    return shaped(upright(data, decoding), decoding, quarter_turns)


def upright(data: bytes, decoding: Decoding) -> Image.Image:
    """The image in 8 bits per channel, in about its own size, with the camera's rotation undone."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's warnings about metadata do not matter here
            with Image.open(io.BytesIO(data), formats=_formats) as image:
                check_size(image)
                if decoding.fit == "crop":
                    # JPEG can be decoded at 1/2, 1/4 or 1/8 of its size; the resize filter needs twice the target size
                    image.draft(None, (2 * decoding.width, 2 * decoding.height))
                ImageOps.exif_transpose(image, in_place=True)
                return eight_bit(image, "L" if decoding.channels == 1 else "RGB")
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError("cannot be read as an image: its format is unknown or it is damaged") from error
    except Exception as error:  # for a damaged file Pillow raises almost anything: OSError, SyntaxError, struct.error
        raise DataError(f"cannot be read as an image: {' '.join(str(error).split())}") from error


_formats = formats()


def check_size(image: Image.Image) -> None:
    """Raise if an image claims more pixels than photographs have, before anything is decoded."""
    most = MAX_PIXELS // 4 if image.format == "JPEG2000" else MAX_PIXELS  # its decoder needs four bytes per channel
    if image.width * image.height > most:
        raise DataError(f"claims {image.width} x {image.height} pixels, more than the {most / 1e6:.0f} million allowed")


def shaped(image: Image.Image, decoding: Decoding, quarter_turns: int = 0) -> np.ndarray:
    """An upright image as uint8 (height, width, channels): rotated, then resized, then inverted."""
    if quarter_turns % 4:
        image = image.transpose(_TURNS[quarter_turns % 4])
    size, resample = (decoding.width, decoding.height), Image.Resampling[decoding.filter.upper()]
    if image.size != size:
        image = image.resize(size, resample) if decoding.fit == "squash" else ImageOps.fit(image, size, resample)
    pixels = np.asarray(image, dtype=np.uint8).reshape(decoding.shape)
    return 255 - pixels if decoding.invert else pixels


_TURNS = {1: Image.Transpose.ROTATE_90, 2: Image.Transpose.ROTATE_180, 3: Image.Transpose.ROTATE_270}


BAND = 1 << 22
"""Pixels that are processed at once where processing takes several times the memory of the image."""


def eight_bit(image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """The image in 8 bits per channel, scaled by the range of its pixels; transparency becomes white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_narrowed(np.asarray(image)))
    if image.has_transparency_data:
        return _on_white(image, mode)
    return image.copy() if image.mode == mode else image.convert(mode)


def _on_white(image: Image.Image, mode: Literal["L", "RGB"]) -> Image.Image:
    """A transparent image on a white background, processed a few rows at a time."""
    result, rows = Image.new(mode, image.size), max(1, BAND // image.width)
    for top in range(0, image.height, rows):
        colours = image.crop((0, top, image.width, min(top + rows, image.height))).convert("RGBA")
        paper = Image.new("RGBA", colours.size, "white")
        result.paste(Image.alpha_composite(paper, colours).convert(mode), (0, top))
    return result


RANGES = (255, 4095, 65535)
"""The largest values of 8, 12 and 16 bits."""
OVERSHOOT, DARKEST = 1.05, 16
"""Pixels up to OVERSHOOT are taken to be in [0, 1], which resampling may exceed a little; from DARKEST on, 8 bits."""


def _narrowed(wide: np.ndarray) -> np.ndarray:
    """Grey values of more than 8 bits as uint8, divided by the first of 1, 255, 4095 and 65535 that none exceeds."""
    low, high = float(wide.min(initial=0)), float(wide.max(initial=0))
    if not math.isfinite(high - low):  # with a NaN, both are NaN
        raise DataError("holds NaN or infinite pixels")
    unit = wide.dtype.kind == "f" and high <= OVERSHOOT
    top = 1 if unit else next((each for each in RANGES if high <= each), None)
    vague = wide.dtype.kind == "f" and not unit and high < DARKEST
    if top is None or vague or low < (top * (1 - OVERSHOOT) if unit else 0):
        raise DataError(f"has pixels from {low:g} to {high:g}, which are neither in [0, 1] nor of 8, 12 or 16 bits")
    narrow, rows = np.empty(wide.shape, dtype=np.uint8), max(1, BAND // max(1, wide.shape[1]))
    for start in range(0, len(wide), rows):
        some = wide[start : start + rows]
        if wide.dtype.kind == "f":
            narrow[start : start + rows] = (some.astype(np.float64).clip(0, top) * (255 / top)).round()
        else:
            narrow[start : start + rows] = some.astype(np.int64) >> (top.bit_length() - 8)
    return narrow
