"""Every value of a named recipe with its source (text, released code, our choice), and what it adds to its base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from handful.meta.config import Option, Recipe
from handful.paper.recipes import NAMED
from handful.paper.recipes.own import NamedRecipe

OFF = {
    "split": "the data set's own",
    "augment": "none",
    "turned": "none",
    "mixed": "none",
    "norm_start": "PyTorch's own",
    "val_fresh": "our choice: the same episodes each time are the sharper comparison",
    "plan.momentum": "not used by Adam",
    "plan.weight_decay": "none",
    "plan.label_smoothing": "none",
    "plan.classify": "none",
    "plan.average": "none",
    "plan.average_decay": "not used without an average",
    "plan.average_from": "not used without an average",
    "plan.statistics": "not used with one episode per update",
    "plan.clip": "none",
    "plan.clip_value": "none",
}
"""Sources of fields that are off or PyTorch's default, for recipes that do not name a source."""
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

    `defaults` are the default options of the learner.
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
    """The source of a value: the recipe's own, or the remark that it is off, or that it is our default."""
    if name in entry.sources:
        return entry.sources[name]
    if name == "seed":
        return SEED
    if name in OFF and value == flattened(Recipe()).get(name):
        return OFF[name]
    return DEFAULT


_SILENT = {"seed", "episodes", "validate_every", "patience"}
"""Fields about length and frequency, which a report states elsewhere."""
_PART_OF = {
    "momentum": "optimiser",
    "decay": "schedule",
    "decay_every": "schedule",
    "average_decay": "average",
    "average_from": "average",
}
"""Values that only matter together with another one, which is named instead."""


def additions(name: str, recipe: Recipe) -> tuple[str, ...]:
    """A description of every value in which this recipe differs from the one that it is built on.

    This is the named recipe's base, or the authors' recipe of the same row, or the library's defaults.
    """
    base = NAMED[name].base if name in NAMED else ""
    known = NAMED.get(base or f"{name.rpartition('/')[0]}/authors")
    plain = known.recipe if known else Recipe()
    return (*_changes(asdict(recipe), asdict(plain)), *_changes(asdict(recipe.plan), asdict(plain.plan)))


def _changes(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    changed = {
        key: value
        for key, value in ours.items()
        if value != theirs[key] and key not in _SILENT and not key.startswith("val_")
    }
    return [
        _said(key, value, theirs[key])
        for key, value in changed.items()
        if key != "plan" and _PART_OF.get(key) not in changed and _is_used(key, ours)
    ]


def _is_used(key: str, values: dict[str, Any]) -> bool:
    """Whether a value has any effect; for example, `decay` has none on a cosine schedule."""
    return _PART_OF.get(key) != "schedule" or values["schedule"] == "step"


def _said(key: str, value: Any, before: Any) -> str:
    """A description of one difference, by default with the name of the field."""
    if key == "options":
        names = [name for name in {**before, **value} if value.get(name) != before.get(name)]
        return ", ".join(f"{name} = {value.get(name, 'default')}" for name in names)
    said = {
        "augment": f"augmentation ({', '.join(value)})" if key == "augment" else "",
        "turned": f"quarter turns as classes (share {value} of the episodes)",
        "mixed": f"CutMix of queries (share {value} of the episodes)",
        "classify": f"a second loss over all training classes (weight {value})",
        "average": f"averaged weights ({value})",
        "optimiser": f"{value} in place of {before}",
        "schedule": f"{value} in place of {before} schedule",
        "episodes_per_step": f"{value} episodes per update",
        "rate": f"learning rate {value} in place of {before}",
    }
    if value and key in said:
        return said[key]
    words = key.replace("_", " ")
    return f"{words} {value}" if before in (0, 0.0) else f"{words} {value} in place of {before}"
