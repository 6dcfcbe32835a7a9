"""Few-shot learning with differentiable closed-form solvers: learn new classes from a handful of images.

The public names below are imported when they are first used, so that `import handful` and the command line's help
cost nothing until torch is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handful import data, embeddings, episodes, learners, solvers
    from handful.allocator import keep_freed_memory
    from handful.classifier import FewShotClassifier, ImageEmbedding
    from handful.evaluation import Evaluation, evaluate
    from handful.model import FewShotModel
    from handful.plan import Plan
    from handful.runs import load
    from handful.training import train

__version__ = "0.1.0"

_MODULES = ("data", "embeddings", "episodes", "learners", "solvers")
_NAMES = {
    "Evaluation": "handful.evaluation",
    "FewShotClassifier": "handful.classifier",
    "FewShotModel": "handful.model",
    "ImageEmbedding": "handful.classifier",
    "Plan": "handful.plan",
    "evaluate": "handful.evaluation",
    "keep_freed_memory": "handful.allocator",
    "load": "handful.runs",
    "train": "handful.training",
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
    "load",
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
