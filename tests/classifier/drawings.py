"""Drawings to learn from: a few shapes, black on white, shaken so that no two are the same."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("bar", "circle", "cross", "hook")


def drawing(shape: str, seed: int, size: int = 60) -> Image.Image:
    """One drawing of a shape."""
    rng = np.random.default_rng([SHAPES.index(shape), seed])
    image = Image.new("L", (size, size), 255)
    pen = ImageDraw.Draw(image)
    x, y = rng.uniform(0.2, 0.3, 2) * size
    w, h = rng.uniform(0.45, 0.55, 2) * size
    width = int(rng.integers(3, 6))
    if shape == "bar":
        pen.line([(x, y + h / 2), (x + w, y + h / 2 + rng.uniform(-4, 4))], fill=0, width=width)
    elif shape == "circle":
        pen.ellipse([x, y, x + w, y + h], outline=0, width=width)
    elif shape == "cross":
        pen.line([(x, y), (x + w, y + h)], fill=0, width=width)
        pen.line([(x + w, y), (x, y + h)], fill=0, width=width)
    else:
        pen.line([(x, y), (x, y + h), (x + w, y + h)], fill=0, width=width)
    return image


def write_folder(folder: Path, counts: dict[str, int], first: int = 0) -> Path:
    """A folder of class folders with the given number of drawings in each."""
    for shape, n in counts.items():
        (folder / shape).mkdir(parents=True)
        for seed in range(first, first + n):
            drawing(shape, seed).save(folder / shape / f"{seed}.png")
    return folder


def photograph(seed: int, hue: tuple[int, int, int] = (200, 120, 60), size: int = 48) -> Image.Image:
    """Coloured noise around a hue: many tones, so nobody takes it for a drawing."""
    rng = np.random.default_rng(seed)
    blotches = rng.normal(size=(6, 6, 3)).repeat(size // 6, 0).repeat(size // 6, 1)
    return Image.fromarray(np.clip(np.array(hue) + 40 * blotches, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    """The bytes of an image file."""
    target = io.BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()
