"""Every value of a named recipe with the place that it comes from: a text, released code, or a choice of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handful.meta.config import Option, Recipe
from handful.paper.recipes.settings import NamedRecipe

OFF = {
    "split": "the data set's own",
    "augment": "none",
    "norm_start": "PyTorch's own",
    "val_fresh": "our choice: the same episodes each time are the sharper comparison",
    "plan.momentum": "not used by Adam",
    "plan.weight_decay": "none",
    "plan.label_smoothing": "none",
    "plan.classify": "none",
    "plan.average": "none",
    "plan.average_decay": "not used without an average",
    "plan.average_from": "not used without an average",
    "plan.clip": "none",
    "plan.clip_value": "none",
}
"""Fields that are off, or PyTorch's own, unless a recipe says otherwise; said where a recipe names no source."""
SEED = "our choice: --seeds trains others"
DEFAULT = "our default"


@dataclass(frozen=True)
class Value:
    """One value of a recipe."""

    field: str
    value: Any
    source: str


def values_of(entry: NamedRecipe, defaults: Mapping[str, Option]) -> list[Value]:
    """All values of a recipe in the order of its fields, the learner's options after its name.

    `defaults` are the options of the learner that the recipe leaves as they are.
    """
    plain = flattened(entry.recipe, defaults)
    return [Value(name, value, source_of(entry, name, value)) for name, value in plain.items()]


def flattened(recipe: Recipe, defaults: Mapping[str, Option] | None = None) -> dict[str, Any]:
    """The recipe's values by dotted name: `way`, `options.lam`, `plan.rate`."""
    found: dict[str, Any] = {}
    for name, value in recipe.as_json().items():
        if name == "options":
            found |= {f"options.{key}": each for key, each in {**(defaults or {}), **value}.items()}
        elif name == "plan":
            found |= {f"plan.{key}": each for key, each in value.items()}
        else:
            found[name] = value
    return found


def source_of(entry: NamedRecipe, name: str, value: Any) -> str:
    """Where a value comes from: what the recipe says, else that it is off, else that it is our default."""
    if name in entry.sources:
        return entry.sources[name]
    if name == "seed":
        return SEED
    if name in OFF and value == flattened(Recipe()).get(name):
        return OFF[name]
    return DEFAULT
