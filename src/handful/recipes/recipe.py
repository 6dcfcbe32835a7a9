"""A recipe: every choice of a training run in one typed value that goes to JSON and back. Plain values, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal

from tyro.conf import Suppress

from handful.errors import CheckpointError, InvalidOptionError
from handful.plan import Plan

Option = bool | int | float | str


@dataclass(frozen=True)
class Recipe:
    """What to train on, with which network and learner, on which episodes, for how long, from which seed."""

    data: str = "glyphs"
    """A data set's name, or the path of a folder of class folders."""
    split: str = ""
    """Which of the data set's splits by class; empty for its default."""
    width: Literal["32C", "64C", "wide", "resnet12"] = "64C"
    """Filters of the four convolutions: 32 each, 64 each, or the paper's 96, 192, 384, 512; or a ResNet-12."""
    norm: Literal["batch", "group", "group-unbiased"] = "batch"
    """Normalisation after each convolution; group-unbiased divides by the unbiased variance, as the authors' code."""
    norm_start: Literal["ones", "uniform"] = "ones"
    """Where batch norm's gamma starts: at 1, or uniform in (0, 1) as in PyTorch before 1.2, which older code pins."""
    dropout: float = 0.0
    """Dropout after blocks 3 and 4."""
    concatenate: bool = True
    """Use the features of blocks 3 and 4 (the paper) or of block 4 alone."""
    shrink: bool = True
    """Pool block 3's output once more before it is concatenated, as the paper's feature sizes require."""
    together: bool = True
    """In training, pass support and query through the network in one batch, so that they share batch statistics."""
    learner: str = "r2d2"
    """The base learner's name."""
    options: Annotated[Mapping[str, Option], Suppress] = field(default_factory=dict)
    """The learner's options, by the names of its constructor."""
    way: int = 20
    """Classes of a training episode."""
    images_per_class: int = 12
    """K + Q: images of each class in a training episode."""
    min_shot: int = 1
    """Fewest shots of a training episode."""
    max_shot: int = 9
    """Most shots of a training episode; each episode draws its number uniformly."""
    augment: tuple[Literal["crop", "flip", "jitter"], ...] = ()
    """Training transforms, in this order."""
    plan: Plan = field(default_factory=Plan)
    """Length, learning rate and validation."""
    val_ways: tuple[int, ...] = (5,)
    """Classes of a validation episode; several give several scores."""
    val_shots: tuple[int, ...] = (1, 5)
    """A validation score for each of these shots."""
    val_query: int = 10
    """Queries per class of a validation episode; 0 to make it as large as a training episode, if a class has enough."""
    val_episodes: int = 200
    """Episodes of each validation score."""
    val_fresh: bool = False
    """Draw new validation episodes each time, instead of the same ones."""
    seed: int = 0
    """Seeds the weights, the episodes and dropout."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file."""
        return asdict(self)


def recipe_from_json(values: Mapping[str, Any]) -> Recipe:
    """The recipe that `as_json` gave; unknown names are refused."""
    values = _migrated(values)
    known = {each.name for each in fields(Recipe)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise CheckpointError(
            f"The recipe has fields that this version of handful does not know: {', '.join(unknown)}."
        )
    try:
        plain: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in values.items()
        }
        plain["plan"] = Plan(**values.get("plan", {}))
        return Recipe(**plain)
    except TypeError as error:
        raise CheckpointError(f"The recipe cannot be read: {error}.") from error


def _migrated(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A recipe that an older version wrote, in today's words."""
    if "val_way" not in values:
        return values
    return {**{key: value for key, value in values.items() if key != "val_way"}, "val_ways": [values["val_way"]]}


def parse_options(pairs: tuple[str, ...]) -> dict[str, Option]:
    """Learner options from words like `lam=10` or `learn_lam=true`."""
    return dict(_parse_option(pair) for pair in pairs)


def _parse_option(pair: str) -> tuple[str, Option]:
    key, found, value = pair.partition("=")
    if not found or not key or not value:
        raise InvalidOptionError(f"A learner option is written name=value, for example lam=10, but got '{pair}'.")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, value
