"""Uploads of strangers: bombs, scraps and names that would be paths."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import replace

import pytest
from PIL import Image

from handful.embeddings.preprocessing import Preprocessing
from handful.errors import DataError
from handful.serve.decode import TooLargeError, checked, from_base64, pixels_for, plain_name
from handful.serve.guard import Limits
from tests.classifier.drawings import encoded, photograph

GOOD = encoded(photograph(0))


def png_that_claims(width: int, height: int) -> bytes:
    """A valid PNG header of any size, with hardly any pixels behind it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def test_good_uploads_become_pixels_of_the_embedding() -> None:
    (picture,) = checked([("a.png", GOOD)], Limits())
    assert pixels_for(picture, Preprocessing(28, 28, 1)).shape == (28, 28, 1)


@pytest.mark.parametrize("size", [(60_000, 60_000), (7072, 7072), (50_000_001, 1)])
def test_a_bomb_is_refused_by_its_header(size: tuple[int, int]) -> None:
    with pytest.raises(TooLargeError, match=r"claims.*pixels"):
        checked([("bomb.png", png_that_claims(*size))], Limits())


def test_pixels_bytes_and_counts_are_bounded_in_all() -> None:
    limits = Limits(images=2, image=len(GOOD), pixels_in_all=3 * 48 * 48)
    assert len(checked([("a", GOOD)] * 2, limits)) == 2
    with pytest.raises(TooLargeError, match="at most 2 images"):
        checked([("a", GOOD)] * 3, limits)
    with pytest.raises(TooLargeError, match="pixels in total"):
        checked([("a", GOOD)] * 4, replace(limits, images=9))
    with pytest.raises(TooLargeError, match="bytes"):
        checked([("a", GOOD + b"x")], limits)


@pytest.mark.parametrize(
    "content", [b"", b"<svg/>", b"%PDF-1.4", GOOD[:20], encoded(Image.new("RGB", (4, 4)), "PPM"), b"\0" * 1000]
)
def test_what_is_no_image_or_in_an_unusual_format_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"The image a\.png cannot be read"):
        checked([("a.png", content)], Limits())


def test_a_truncated_image_fails_when_it_is_decoded() -> None:
    (picture,) = checked([("a.png", GOOD[: len(GOOD) // 2])], Limits())
    with pytest.raises(DataError, match=r"The image a\.png"):
        pixels_for(picture, Preprocessing(28, 28, 1))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\pictures\\cat.png", "cat.png"),
        ("a\r\nSet-Cookie: x\0.png", "aSet-Cookie: x.png"),
        ("x" * 500, "x" * 120),
        ("/", ""),
    ],
)
def test_a_name_is_only_for_showing(name: str, shown: str) -> None:
    assert plain_name(name) == shown


def test_base64_comes_with_or_without_the_start_of_a_data_address() -> None:
    text = base64.b64encode(GOOD).decode()
    assert from_base64(text) == from_base64(f"data:image/png;base64,{text}") == GOOD
    with pytest.raises(DataError, match="not base64"):
        from_base64("dear server, here is my cat")
