"""Few-shot learning with differentiable closed-form solvers: learn new classes from a handful of images.

Public names are imported on first use, so that `import handful` and the command line's help do not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handful import data, embeddings, episodes, learners, solvers
    from handful.classifier import FewShotClassifier, ImageEmbedding
    from handful.meta.config import Plan
    from handful.meta.engine import keep_freed_memory
    from handful.meta.evaluate import Evaluation, evaluate
    from handful.meta.model import FewShotModel
    from handful.meta.run import load_model
    from handful.meta.train import train

__version__ = "0.2.0"

_MODULES = ("data", "embeddings", "episodes", "learners", "solvers")
_NAMES = {
    "Evaluation": "handful.meta.evaluate",
    "FewShotClassifier": "handful.classifier",
    "FewShotModel": "handful.meta.model",
    "ImageEmbedding": "handful.classifier",
    "Plan": "handful.meta.config",
    "evaluate": "handful.meta.evaluate",
    "keep_freed_memory": "handful.meta.engine",
    "load_model": "handful.meta.run",
    "train": "handful.meta.train",
}

__all__ = [
    "Evaluation",
    "FewShotClassifier",
    "FewShotModel",
    "ImageEmbedding",
    "Plan",
    "data",
    "embeddings",
    "episodes",
    "evaluate",
    "keep_freed_memory",
    "learners",
    "load_model",
    "solvers",
    "train",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"handful.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'handful' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
