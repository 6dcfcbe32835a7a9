"""The registry of learners, for recipes and the command line: from a name and options to an embedding and a learner."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from handful.embeddings.registry import Reduced
from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner
from handful.learners.frn import FRN
from handful.learners.gnn import GNN
from handful.learners.lrd2 import LRD2
from handful.learners.maml import MAML
from handful.learners.matching import MatchingNet
from handful.learners.meta_lstm import MetaLSTM
from handful.learners.prototype import ProtoNet
from handful.learners.r2d2 import R2D2
from handful.learners.relation import RelationNet
from handful.learners.siamese import Siamese
from handful.learners.snail import SNAIL
from handful.learners.softmax import SoftmaxRegression
from handful.learners.svm import SVM
from handful.learners.transfer import Transfer

Option = bool | int | float | str
Built = tuple[nn.Module, BaseLearner]
SIZE = 64
"""Default of the option `size`, the number of features that the embedding is reduced to."""


def build_learner(
    name: str, embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]
) -> Built:
    """The embedding and the learner of a model; if the learner owns the network, the embedding becomes an identity."""
    if name not in LEARNERS:
        raise InvalidOptionError(f"There is no learner '{name}'. Choose one of {', '.join(sorted(LEARNERS))}.")
    entry = LEARNERS[name]
    if entry.reduces:
        embedding = _reduced(embedding, image_shape, options.get("size", SIZE))
        options = {key: value for key, value in options.items() if key != "size"}
    remaining, given = entry.give(embedding, image_shape, options)
    check_options(name, entry.cls, options, given)
    return remaining, entry.cls(**given, **options)


def feature_shape(embedding: nn.Module, image_shape: tuple[int, int, int]) -> tuple[int, ...]:
    """The shape of an embedding's output for one image of this shape."""
    modes = {module: module.training for module in embedding.modules()}
    like = next(embedding.parameters(), torch.empty(0))
    with torch.no_grad():
        features = embedding.eval()(like.new_zeros(1, *image_shape))
    for module, training in modes.items():  # parts of it may be frozen
        module.training = training
    return tuple(features.shape[1:])


def embedding_size(embedding: nn.Module, image_shape: tuple[int, int, int]) -> int:
    """The number of features that an embedding has for images of this shape."""
    return math.prod(feature_shape(embedding, image_shape))


def check_options(
    name: str, cls: type[BaseLearner], options: Mapping[str, Option], given: Collection[str] = ()
) -> None:
    """Raise if an option is unknown, missing, or not of the type of its default.

    `given` names the constructor's arguments that come from the embedding and are not options.
    """
    parameters = {key: each for key, each in inspect.signature(cls).parameters.items() if key not in given}
    for key, value in options.items():
        if key not in parameters:
            raise InvalidOptionError(f"Learner {name} has no option '{key}'. It has: {', '.join(parameters)}.")
        default = parameters[key].default
        wanted = type(default) if isinstance(default, Option) else None
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            continue
        if wanted is not None and type(value) is not wanted:
            raise InvalidOptionError(
                f"Option '{key}' of learner {name} must be a {wanted.__name__} like {default!r}, but got {value!r}."
            )
    missing = [key for key, each in parameters.items() if each.default is inspect.Parameter.empty]
    if missing_here := [key for key in missing if key not in options]:
        raise InvalidOptionError(f"Learner {name} needs the option '{missing_here[0]}'.")


Given = tuple[nn.Module, dict[str, Any]]
"""The embedding in front of the learner, and the constructor arguments that come from it."""
Give = Callable[[nn.Module, tuple[int, int, int], Mapping[str, Option]], Given]


@dataclass(frozen=True)
class Entry:
    """A learner's class, its arguments that come from the embedding, and whether it has the option `size`."""

    cls: type[BaseLearner]
    give: Give
    reduces: bool = False
    """Whether a linear layer to `size` features follows the embedding, unless `size` is 0."""


def default_options(name: str) -> dict[str, Option]:
    """The options of a learner and their defaults, without arguments that come from the embedding."""
    entry = LEARNERS[name]
    parameters = inspect.signature(entry.cls).parameters
    defaults = {key: each.default for key, each in parameters.items() if isinstance(each.default, Option)}
    return {**defaults, "size": SIZE} if entry.reduces else defaults


def _reduced(embedding: nn.Module, image_shape: tuple[int, int, int], size: Option) -> nn.Module:
    if not isinstance(size, int) or size < 0:
        raise InvalidOptionError(f"size must be a whole number of at least 0, but got {size!r}.")
    return Reduced(embedding, embedding_size(embedding, image_shape), size) if size else embedding


def _nothing(embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]) -> Given:
    return embedding, {}


def _size(embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]) -> Given:
    return embedding, {"features": embedding_size(embedding, image_shape)}


def _size_for(key: str, value: Option) -> Give:
    """Pass on the embedding's size, but only if this option is set."""
    return lambda embedding, image_shape, options: (
        _size(embedding, image_shape, options) if options.get(key) == value else (embedding, {})
    )


def _head(embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]) -> Given:
    """A linear layer on the embedding, for the learner to adapt."""
    return embedding, {"network": nn.Linear(embedding_size(embedding, image_shape), _way(options))}


def _network(embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]) -> Given:
    """The embedding and a linear layer, for the learner to adapt as a whole; it gets the images themselves."""
    head = nn.Linear(embedding_size(embedding, image_shape), _way(options))
    return nn.Identity(), {"network": nn.Sequential(embedding, head)}


def _maps(embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]) -> Given:
    """An embedding that returns feature maps, either directly or with its method `feature_maps`."""
    maps: nn.Module = getattr(embedding, "feature_maps", lambda: embedding)()
    shape = feature_shape(maps, image_shape)
    if len(shape) != 3:
        raise InvalidOptionError(
            f"This learner compares feature maps (channels, height, width), but the embedding returns features of "
            f"shape {shape}. Use an embedding that does not flatten them, or that has a method `feature_maps`."
        )
    return maps, {"shape": shape}


def _maps_or_network(embedding: nn.Module, image_shape: tuple[int, int, int], options: Mapping[str, Option]) -> Given:
    """Feature maps; if their batch norm depends on the episode, the learner owns the network and gets images."""
    maps, given = _maps(embedding, image_shape, options)
    if options.get("statistics") != "batch":
        return maps, {**given, "network": None}
    return nn.Identity(), {**given, "network": maps}


def _way(options: Mapping[str, Option]) -> int:
    way = options.get("way", 5)
    if not isinstance(way, int) or way < 2:
        raise InvalidOptionError(f"way must be a whole number of at least 2, but got {way!r}.")
    return way


LEARNERS: dict[str, Entry] = {
    "r2d2": Entry(R2D2, _size_for("prior", "diagonal")),
    "lrd2": Entry(LRD2, _nothing),
    "softmax": Entry(SoftmaxRegression, _nothing),
    "svm": Entry(SVM, _nothing),
    "protonet": Entry(ProtoNet, _nothing),
    "matching": Entry(MatchingNet, _size_for("context", True)),
    "siamese": Entry(Siamese, _size),
    "relation": Entry(RelationNet, _maps_or_network),
    "frn": Entry(FRN, _maps),
    "gnn": Entry(GNN, _size, reduces=True),
    "snail": Entry(SNAIL, _size, reduces=True),
    "maml": Entry(MAML, _network),
    "anil": Entry(MAML, _head),
    "meta-lstm": Entry(MetaLSTM, _network),
    "transfer": Entry(Transfer, _size),
}
"""All learners by name."""
