"""Images grouped by class: `load` returns a benchmark by name, or your own folder, ready for episodes.

Names are imported on first use, because the workers that decode images and the command line's help do not need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handful.data.augment import Compose, Crop, Flip, Jitter, Transform
    from handful.data.loading import load
    from handful.data.table import Benchmark, ClassDataset, ImageTable

_NAMES = {
    "Benchmark": "handful.data.table",
    "ClassDataset": "handful.data.table",
    "Compose": "handful.data.augment",
    "Crop": "handful.data.augment",
    "Flip": "handful.data.augment",
    "ImageTable": "handful.data.table",
    "Jitter": "handful.data.augment",
    "Transform": "handful.data.augment",
    "load": "handful.data.loading",
}

__all__ = ["Benchmark", "ClassDataset", "Compose", "Crop", "Flip", "ImageTable", "Jitter", "Transform", "load"]


def __getattr__(name: str) -> object:
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'handful.data' has no attribute '{name}'")


def __dir__() -> list[str]:
    return list(__all__)
