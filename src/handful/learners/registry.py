"""Learners by name, for recipes and the command line: from a name and options to an embedding and a learner."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping

import torch
from torch import nn

from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner
from handful.learners.lrd2 import LRD2
from handful.learners.prototype import ProtoNet
from handful.learners.r2d2 import R2D2

Option = bool | int | float | str
Built = tuple[nn.Module, BaseLearner]
Builder = Callable[[nn.Module, tuple[int, int, int], Mapping[str, Option]], Built]


def build_learner(
    name: str, embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]
) -> Built:
    """The embedding and the learner of a model; learners that own the network get it and leave an identity behind."""
    if name not in BUILDERS:
        raise InvalidOptionError(f"There is no learner '{name}'. Choose one of {', '.join(sorted(BUILDERS))}.")
    return BUILDERS[name](embedding, image_shape, options)


def embedding_size(embedding: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """The number of features that an embedding gives for images of this shape."""
    training = embedding.training
    with torch.no_grad():
        features = embedding.eval()(torch.zeros(1, *image_shape))
    embedding.train(training)
    return int(features.numel())


def check_options(name: str, cls: type[BaseLearner], options: Mapping[str, Option]) -> None:
    """Refuse an option that the learner does not have, or one of another type than its default's."""
    parameters = inspect.signature(cls).parameters
    for key, value in options.items():
        if key not in parameters:
            raise InvalidOptionError(f"Learner {name} has no option '{key}'. It has: {', '.join(parameters)}.")
        default = parameters[key].default
        wanted = type(default) if isinstance(default, Option) else None
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            continue
        if wanted is not None and type(value) is not wanted:
            raise InvalidOptionError(
                f"Option '{key}' of learner {name} takes a {wanted.__name__} like {default!r}, but got {value!r}."
            )


def _on_features(name: str, cls: type[BaseLearner]) -> Builder:
    def build(embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]) -> Built:
        check_options(name, cls, options)
        sized = {"features": embedding_size(embedding, image_shape)} if options.get("prior") == "diagonal" else {}
        return embedding, cls(**{**sized, **options})

    return build


BUILDERS: dict[str, Builder] = {
    "r2d2": _on_features("r2d2", R2D2),
    "lrd2": _on_features("lrd2", LRD2),
    "protonet": _on_features("protonet", ProtoNet),
}
