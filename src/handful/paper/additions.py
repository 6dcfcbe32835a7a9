"""What a recipe that goes beyond the paper adds to the authors' of the same row, read off their values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from handful.meta.config import Recipe
from handful.paper.recipes import NAMED

_SILENT = {"seed", "episodes", "validate_every", "patience", "val_way", "val_shots", "val_query", "val_episodes"}
"""How long and how often: said elsewhere in a report."""
_PART_OF = {
    "momentum": "optimiser",
    "decay": "schedule",
    "decay_every": "schedule",
    "average_decay": "average",
    "average_from": "average",
}
"""Values that mean something only together with another, which is named."""


def additions(name: str, recipe: Recipe) -> tuple[str, ...]:
    """In words, every value in which the recipe of this name differs from the authors' of the same row.

    Where the authors have none, the library's defaults stand in for it.
    """
    stem = name.rpartition("/")[0]
    plain = NAMED[f"{stem}/authors"].recipe if f"{stem}/authors" in NAMED else Recipe()
    return (*_fields(asdict(recipe), asdict(plain)), *_fields(asdict(recipe.plan), asdict(plain.plan)))


def _fields(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    changed = {key: value for key, value in ours.items() if value != theirs[key] and key not in _SILENT}
    return [
        _told(key, value, theirs[key])
        for key, value in changed.items()
        if key != "plan" and _PART_OF.get(key) not in changed and _is_used(key, ours)
    ]


def _is_used(key: str, values: dict[str, Any]) -> bool:
    """Whether a value has any effect: the steps of a schedule have none on a cosine."""
    return _PART_OF.get(key) != "schedule" or values["schedule"] == "step"


def _told(key: str, value: Any, before: Any) -> str:
    """One difference in words; a field that has none of its own is named."""
    if key == "options":
        names = [name for name in {**before, **value} if value.get(name) != before.get(name)]
        return ", ".join(f"{name} = {value.get(name, 'default')}" for name in names)
    said = {
        "augment": f"augmentation ({', '.join(value)})" if key == "augment" else "",
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
