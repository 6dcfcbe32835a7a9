"""The built-in data set `glyphs`: characters of invented alphabets that look handwritten, drawn by code from a seed."""

from __future__ import annotations

from contextlib import suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from handful._io import digest, replacing
from handful.data.sources.glyphs._alphabets import invent, select, write
from handful.data.sources.glyphs._fixed_point import SIDE, Dice
from handful.data.table import Benchmark, ImageTable

ALPHABETS = {"train": 32, "val": 6, "test": 12}
"""Number of alphabets in each split; splits share none."""

HANDS = 20
"""Drawings per character, one by each hand."""

SHA256 = "2cfe8a453f8e04c3009db75b55bfbc026beda0bd388ecf1814c3264b78e9fb24"
"""Hash of the pixels of seed 0, to check whether a cached file is what this version draws."""

_CANDIDATES = 80
_FEWEST, _MOST = 20, 36


def load_glyphs(cache: Path | None = None) -> Benchmark:
    """The benchmark, split by alphabet; if `cache` is given, it is stored in that folder as one memory-mapped file.

    A file that is damaged or from another version is drawn again; a folder that is not writable is not an error.
    """
    sizes = _alphabet_sizes(0)
    table = draw() if cache is None else _table(_cached(cache / "glyphs.npy", HANDS * sum(sizes)), sizes)
    ends = np.cumsum([0, *sizes])[np.cumsum([0, *ALPHABETS.values()])]
    train, val, test = (
        table.split(name, table.classes[first:end])
        for name, first, end in zip(ALPHABETS, ends[:-1], ends[1:], strict=True)
    )
    return Benchmark("glyphs", train, val, test)


def draw(seed: int = 0) -> ImageTable:
    """All images of a seed, with the same bits on every run and every machine.

    Classes are called "alphabet07/character12" and grouped by alphabet; ink is 255 on 0.
    """
    return _table(_draw(seed), _alphabet_sizes(seed))


def _alphabet_sizes(seed: int) -> list[int]:
    """How many characters each alphabet has."""
    sizes = Dice(seed).between("alphabet size", _FEWEST, _MOST, (sum(ALPHABETS.values()),))
    return [int(size) for size in sizes]


def _draw(seed: int) -> NDArray[np.uint8]:
    """The pixels (n, 1, SIDE, SIDE), alphabet by alphabet, character by character, hand by hand."""
    dice, sizes = Dice(seed), _alphabet_sizes(seed)
    alphabets = invent(dice, len(sizes), _CANDIDATES)
    pages = []
    for alphabet, size in enumerate(sizes):
        keep = select(alphabets.pick(alphabet), size)
        pages.append(write(dice.child(f"alphabet {alphabet}"), alphabets.pick(alphabet).pick(keep), HANDS))
    return np.concatenate(pages).reshape(-1, 1, SIDE, SIDE)


def _table(pixels: NDArray[np.uint8], sizes: list[int]) -> ImageTable:
    names = [(f"alphabet{a:02d}", f"character{c:02d}") for a, size in enumerate(sizes) for c in range(size)]
    classes = tuple("/".join(name) for name in names)
    return ImageTable(torch.from_numpy(pixels), classes, (HANDS,) * len(names), tuple(group for group, _ in names))


def _cached(path: Path, n_images: int) -> NDArray[np.uint8]:
    """The pixels of seed 0, mapped from the file at `path` if it holds them; else drawn, and stored if possible."""
    stored = _mapped(path, n_images)
    if stored is not None:
        return stored
    pixels = _draw(0)
    with suppress(OSError):
        _store(path, pixels)
    return pixels


def _mapped(path: Path, n_images: int) -> NDArray[np.uint8] | None:
    """The pixels in the file, or None if it is missing or not what this version draws."""
    shape = (n_images, 1, SIDE, SIDE)
    header = _header(shape)
    try:
        with path.open("rb") as file:
            known = file.read(len(header)) == header
        if not known or path.stat().st_size != len(header) + n_images * SIDE * SIDE:
            return None
        # copy on write, because torch needs writable memory
        pixels = np.memmap(path, dtype=np.uint8, mode="c", offset=len(header), shape=shape)
    except OSError:
        return None
    return np.asarray(pixels) if digest(pixels.data) == SHA256 else None


def _header(shape: tuple[int, ...]) -> bytes:
    """The beginning of a .npy file of uint8 in this shape; it is compared, not parsed, so untrusted files are safe."""
    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _store(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write a .npy file, completely or not at all."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(_header(pixels.shape))
        file.write(pixels.tobytes())
