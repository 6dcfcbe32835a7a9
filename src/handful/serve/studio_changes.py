"""The changes that a user can make to a project, each as the facts that it sets and as one step to undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handful.errors import InvalidOptionError
from handful.serve.studio_model import REJECTIONS
from handful.serve.studio_store import LONGEST_NAME, Facts, Project, class_name

MOST_IMAGES = 5000


@dataclass(frozen=True)
class Step:
    """A change to make: its title, and the facts that it sets, with None for those that it deletes."""

    title: str
    facts: Facts
    batch: str = ""
    """Consecutive steps with the same batch are undone together."""


def add(project: Project, item: str, name: str, label: str | None, batch: str = "") -> Step:
    """Add an image to a class or, without one, to the pile; a known image is only relabelled."""
    items, facts = project.items(), _class_facts(project, label)
    known = items.get(item)
    if known is None:
        if len(items) >= MOST_IMAGES:
            raise InvalidOptionError(f"A project has at most {MOST_IMAGES} images.")
        number = 1 + max((each["n"] for each in items.values()), default=0)
        known = {"name": name[-LONGEST_NAME * 2 :], "n": number}
    facts[f"item/{item}"] = {**known, "label": label}
    return Step(f"Add {'images' if batch else 'an image'} to {_place(label)}", facts, batch)


def label(project: Project, items: Sequence[str], label: str | None) -> Step:
    """Move images to a class, which is created if necessary, or to the pile."""
    known, facts = _known(project, items), _class_facts(project, label)
    for item, value in known.items():
        facts[f"item/{item}"] = {"name": value["name"], "label": label, "n": value["n"]}
    what = "1 image" if len(known) == 1 else f"{len(known)} images"
    return Step(f"Move {what} to {_place(label)}", facts)


def confirm(project: Project, items: Sequence[str]) -> Step:
    """Confirm that labels are right, so that they are not called doubtful again."""
    facts = {f"item/{item}": {**value, "sure": True} for item, value in _known(project, items).items()}
    return Step("Confirm a label", facts)


def delete(project: Project, items: Sequence[str]) -> Step:
    """Delete images."""
    known = _known(project, items)
    what = "an image" if len(known) == 1 else f"{len(known)} images"
    return Step(f"Delete {what}", dict.fromkeys((f"item/{item}" for item in known), None))


def add_class(project: Project, name: str) -> Step:
    """A new, empty class."""
    return Step(f"Add the class “{class_name(name)}”", _class_facts(project, name))


def rename_class(project: Project, old: str, new: str) -> Step:
    """Rename a class; if the name is that of another class, the two are merged."""
    name, value = class_name(new), _class(project, old)
    facts: Facts = {f"class/{old}": None, f"class/{name}": project.facts.get(f"class/{name}", value)}
    for item, each in project.items().items():
        if each["label"] == old:
            facts[f"item/{item}"] = {**each, "label": name}
    return Step(f"Rename “{old}” to “{name}”", facts if name != old else {})


def delete_class(project: Project, name: str) -> Step:
    """Delete a class with its images."""
    _class(project, name)
    facts: Facts = {f"class/{name}": None}
    facts |= {f"item/{item}": None for item, each in project.items().items() if each["label"] == name}
    return Step(f"Delete the class “{name}”", facts)


def rename(project: Project, name: str) -> Step:
    """Rename the project."""
    return Step(f"Rename the project to “{class_name(name)}”", {"name": class_name(name)})


def reject(project: Project, share: float) -> Step:
    """The share of known images that may be called unknown."""
    if share not in REJECTIONS:
        raise InvalidOptionError(f"The share to reject must be one of {', '.join(map(str, REJECTIONS))}.")
    return Step("Change when an image is none of these", {"reject": share}, "reject")


def _place(label: str | None) -> str:
    return f"“{label}”" if label is not None else "the pile"


def _class_facts(project: Project, label: str | None) -> Facts:
    """The facts that ensure that a class exists."""
    if label is None or f"class/{class_name(label)}" in project.facts:
        return {}
    order = [value["n"] for key, value in project.facts.items() if key.startswith("class/")]
    return {f"class/{class_name(label)}": {"n": 1 + max(order, default=0)}}


def _class(project: Project, name: str) -> Any:
    value = project.facts.get(f"class/{name}")
    if value is None:
        raise InvalidOptionError(f"There is no class “{name}”.")
    return value


def _known(project: Project, items: Sequence[str]) -> dict[str, Any]:
    here = project.items()
    if not items or any(item not in here for item in items):
        raise InvalidOptionError("That image is no longer in the project.")
    return {item: here[item] for item in items}
