"""Small images, folders and archives for the tests of this folder."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def noise(height: int = 10, width: int = 10, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(pixels.squeeze(-1) if pixels.ndim == 3 and pixels.shape[-1] == 1 else pixels)
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png(seed: int = 0, size: int = 10, channels: int = 3) -> bytes:
    return encoded(noise(size, size, channels, seed))


def write_files(root: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def class_folders(classes: int = 10, images: int = 4, size: int = 10) -> dict[str, bytes]:
    """Files of a folder with `classes` classes that differ in every pixel."""
    return {f"kind{c:02d}/{i}.png": png(100 * c + i, size) for c in range(classes) for i in range(images)}
