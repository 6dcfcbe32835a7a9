from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from handful.data import decode as decoding
from handful.data.decode import MAX_PIXELS, Decoding, decode, extensions, formats
from handful.errors import DataError
from tests.data.pictures import encoded, noise

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def test_an_image_of_the_wanted_size_keeps_every_pixel() -> None:
    pixels = noise(32, 32)
    assert np.array_equal(decode(encoded(pixels), Decoding(32, 32)), pixels)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM", "TGA", "WEBP"])
def test_lossless_formats_give_the_same_pixels(kind: str) -> None:
    pixels = noise(16, 16)
    options = {"lossless": True} if kind == "WEBP" else {}
    assert np.array_equal(decode(encoded(pixels, kind, **options), Decoding(16, 16)), pixels)


@pytest.mark.parametrize("kind", ["JPEG", "GIF"])
def test_lossy_formats_are_read(kind: str) -> None:
    flat = np.full((20, 20, 3), 120, dtype=np.uint8)
    assert np.abs(decode(encoded(flat, kind), Decoding(10, 10)).astype(int) - 120).max() <= 2  # JPEG's rounding


def test_a_crop_takes_the_centre_of_the_longer_side() -> None:
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, :10], wide[:, 10:20], wide[:, 20:] = RED, GREEN, BLUE
    assert (decode(encoded(wide), Decoding(10, 10)) == GREEN).all()
    assert (decode(encoded(wide.transpose(1, 0, 2)), Decoding(10, 10)) == GREEN).all()


def test_a_squash_keeps_all_of_the_image() -> None:
    wide = np.zeros((10, 30, 3), dtype=np.uint8)
    wide[:, :15], wide[:, 15:] = RED, BLUE
    squashed = decode(encoded(wide), Decoding(10, 10, fit="squash"))
    assert (squashed[:, :4] == RED).all()
    assert (squashed[:, 6:] == BLUE).all()


def test_small_images_are_enlarged() -> None:
    assert decode(encoded(noise(3, 5)), Decoding(20, 24)).shape == (20, 24, 3)


def test_a_turn_comes_before_the_resize_and_the_inversion_last() -> None:
    pixels = np.full((20, 20, 1), 255, dtype=np.uint8)
    pixels[:10, :10] = 0
    upright = decode(encoded(pixels), Decoding(2, 2, channels=1, fit="squash", invert=True))[..., 0]
    assert upright.argmax() == 0  # ink, bright after the inversion, is at the top left
    turned = decode(encoded(pixels), Decoding(2, 2, channels=1, fit="squash", invert=True), quarter_turns=1)[..., 0]
    assert np.array_equal(turned, np.rot90(upright))


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turns_are_exact_quarter_turns(turns: int) -> None:
    pixels = noise(12, 12)
    assert np.array_equal(decode(encoded(pixels), Decoding(12, 12), turns), np.rot90(pixels, turns))


def test_sixteen_bit_greys_keep_their_upper_byte() -> None:
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    for kind in ("PNG", "TIFF"):
        assert np.array_equal(decode(encoded(deep, kind), Decoding(8, 8, channels=1))[..., 0], deep >> 8)


def test_float_images_are_scaled_from_their_range() -> None:
    unit = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    expected = (unit * 255).round()
    for image in (unit, unit * 255):
        assert np.array_equal(decode(encoded(image, "TIFF"), Decoding(8, 8, channels=1))[..., 0], expected)


def test_one_bit_and_grey_images_become_three_equal_channels() -> None:
    grey = noise(8, 8, 1)
    assert np.array_equal(decode(encoded(grey), Decoding(8, 8)), grey.repeat(3, axis=2))
    bits = Image.fromarray(grey[..., 0]).convert("1")
    assert np.array_equal(decode(saved(bits), Decoding(8, 8))[..., 0], np.asarray(bits) * 255)


def test_palettes_show_their_colours() -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, *GREEN])
    assert (decode(saved(image), Decoding(8, 8)) == GREEN).all()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_pixels_show_white(mode: str) -> None:
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 0)).convert(mode)
    options = {"transparency": image.getpixel((0, 0))} if mode == "P" else {}
    assert (decode(saved(image, **options), Decoding(8, 8)) == 255).all()


def test_half_transparent_pixels_are_mixed_with_white() -> None:
    image = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    assert np.abs(decode(saved(image), Decoding(8, 8)).astype(int) - 127).max() <= 1


def test_cmyk_is_turned_into_colours() -> None:
    cyan = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    pixel = decode(saved(cyan, "JPEG", quality=95), Decoding(8, 8))[4, 4]
    assert pixel[0] < 30
    assert pixel[2] > 200


def test_exif_orientation_is_obeyed() -> None:
    image = Image.new("RGB", (16, 16), RED)
    image.paste(BLUE, (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    turned = decode(saved(image, "JPEG", exif=exif, quality=95), Decoding(16, 16))
    assert turned[2, 8, 0] > 200
    assert turned[13, 8, 2] > 200


def test_large_jpegs_are_decoded_at_a_fraction_of_their_size() -> None:
    flat = np.zeros((1600, 1600, 3), dtype=np.uint8)
    flat[:, 800:] = 255
    small = decode(encoded(flat, "JPEG"), Decoding(50, 50))
    assert small[:, :23].max() < 10
    assert small[:, 27:].min() > 245


def test_the_same_bytes_give_the_same_pixels() -> None:
    data = encoded(noise(37, 53), "JPEG")
    assert np.array_equal(decode(data, Decoding(20, 20)), decode(data, Decoding(20, 20)))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_truncated_images_are_refused(kind: str, share: float) -> None:
    data = encoded(noise(64, 64), kind)
    with pytest.raises(DataError, match="read as an image"):
        decode(data[: int(len(data) * share)], Decoding(32, 32))


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", bytes(1000)])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="read as an image"):
        decode(data, Decoding(8, 8))


def png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(10_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_001, 50_000, 2_000_000_000])
def test_an_image_bomb_is_refused_before_it_is_decoded(side: int) -> None:
    assert side * side > MAX_PIXELS
    bomb = png_claiming(side, side)
    assert len(bomb) < 20_000
    with pytest.raises(DataError, match=r"pixels"):
        decode(bomb, Decoding(8, 8))


def test_formats_that_run_other_programs_or_that_nobody_uses_are_not_read() -> None:
    assert not {"EPS", "FITS", "MCIDAS", "FLI", "PSD", "SUN", "XPM"} & set(formats())
    assert not {".eps", ".ps", ".h5", ".mpg", ".fits", ".psd"} & extensions()
    fits = "".join(
        line.ljust(80) for line in ("SIMPLE  = T", "BITPIX  = 8", "NAXIS   = 2", "NAXIS1  = 8", "NAXIS2  = 8")
    )
    content = f"{fits}{'END':80}".ljust(2880).encode() + bytes(2880)
    assert Image.open(io.BytesIO(content)).format == "FITS"  # Pillow would read it
    with pytest.raises(DataError, match="its format is unknown"):
        decode(content, Decoding(8, 8))
    assert {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"} <= extensions()


def test_jpeg_2000_may_have_a_quarter_of_the_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its decoder takes four bytes for each channel of a pixel."""
    if "JPEG2000" not in formats():
        pytest.skip("this Pillow has no JPEG 2000")
    monkeypatch.setattr(decoding, "MAX_PIXELS", 400)
    image = Image.new("L", (11, 10))
    assert decode(saved(image), Decoding(8, 8)).shape == (8, 8, 3)
    with pytest.raises(DataError, match="11 x 10 pixels"):
        decode(saved(image, "JPEG2000"), Decoding(8, 8))
