"""Changes of a project: the facts that each sets, which one step undoes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handful.errors import InvalidOptionError
from handful.serve import studio_changes as changes
from handful.serve.studio_changes import Step
from handful.serve.studio_shelf import Shelf
from handful.serve.studio_store import Project


@pytest.fixture
def project(shelf: Shelf) -> Project:
    """A cat and a dog with an image each, and one image in the pile."""
    found = shelf.open(shelf.create("Signs"))
    for item, label in (("a", "cat"), ("b", "dog"), ("c", None)):
        do(found, changes.add(found, item, f"{item}.png", label))
    return found


def do(project: Project, step: Step) -> None:
    project.change(step.title, step.facts, step.batch)


def labels(project: Project) -> dict[str, Any]:
    return {item: value["label"] for item, value in project.items().items()}


@pytest.mark.parametrize(
    ("change", "wanted", "classes"),
    [
        (lambda p: changes.add(p, "d", "d.png", "owl"), {"a": "cat", "b": "dog", "c": None, "d": "owl"}, "cat dog owl"),
        (lambda p: changes.add(p, "a", "a.png", "dog"), {"a": "dog", "b": "dog", "c": None}, "cat dog"),
        (lambda p: changes.label(p, ["a", "c"], "dog"), {"a": "dog", "b": "dog", "c": "dog"}, "cat dog"),
        (lambda p: changes.label(p, ["a"], None), {"a": None, "b": "dog", "c": None}, "cat dog"),
        (lambda p: changes.delete(p, ["a", "b"]), {"c": None}, "cat dog"),
        (lambda p: changes.add_class(p, "owl"), {"a": "cat", "b": "dog", "c": None}, "cat dog owl"),
        (lambda p: changes.rename_class(p, "cat", "owl"), {"a": "owl", "b": "dog", "c": None}, "owl dog"),
        (lambda p: changes.rename_class(p, "cat", "dog"), {"a": "dog", "b": "dog", "c": None}, "dog"),
        (lambda p: changes.delete_class(p, "cat"), {"b": "dog", "c": None}, "dog"),
    ],
)
def test_a_change_does_what_it_says_and_undo_takes_it_back(
    project: Project, change: Callable[[Project], Step], wanted: dict[str, Any], classes: str
) -> None:
    before = labels(project), project.classes()
    do(project, change(project))
    assert labels(project) == wanted
    assert project.classes() == classes.split()
    project.undo()
    assert (labels(project), project.classes()) == before


def test_images_keep_their_order_and_new_ones_come_last(project: Project) -> None:
    order = [value["n"] for value in project.items().values()]
    do(project, changes.add(project, "d", "d.png", "cat"))
    assert project.items()["d"]["n"] > max(order)
    do(project, changes.label(project, ["a"], "dog"))
    assert project.items()["a"]["n"] == order[0]


def test_a_confirmed_label_is_sure_until_it_changes(project: Project) -> None:
    do(project, changes.confirm(project, ["a"]))
    assert project.items()["a"]["sure"] is True
    do(project, changes.label(project, ["a"], "dog"))
    assert "sure" not in project.items()["a"]


def test_renaming_to_the_same_name_changes_nothing(project: Project) -> None:
    assert changes.rename_class(project, "cat", "cat").facts == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda p: changes.label(p, [], "cat"),
        lambda p: changes.label(p, ["a", "x"], "cat"),
        lambda p: changes.delete(p, ["x"]),
        lambda p: changes.delete_class(p, "owl"),
        lambda p: changes.rename_class(p, "owl", "cat"),
        lambda p: changes.add_class(p, " "),
        lambda p: changes.reject(p, 0.5),
    ],
)
def test_what_cannot_be_done_is_refused(project: Project, change: Callable[[Project], Step]) -> None:
    with pytest.raises(InvalidOptionError):
        change(project)


def test_a_project_has_a_most_number_of_images(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_IMAGES", 3)
    with pytest.raises(InvalidOptionError, match=r"\b3 images"):
        changes.add(project, "d", "d.png", None)
    changes.add(project, "a", "a.png", "dog")  # known, so no image more
