"""What the studio learns and shows: updates that equal a fresh fit, guesses for the pile, and only what changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from handful.serve.studio_model import Page, answered, learnt, needs_of, sorted_pile


def test_an_update_touches_only_what_changed() -> None:
    """Fifty classes of twenty: what is known of the others is kept, and the numbers are those of a fresh start."""
    generator = np.random.default_rng(0)
    rows = {f"{number:064x}": generator.normal(size=40) for number in range(1000)}
    labels = {item: f"class {number // 20:02d}" for number, item in enumerate(rows)}
    first = learnt(None, labels, rows, labels.__getitem__)
    assert first is not None
    item, *others = rows
    expected = first.held_out_scores
    moved = learnt(first, {**labels, item: "class 07"}, rows, labels.__getitem__)
    shrunk = learnt(first, {each: labels[each] for each in others}, rows, labels.__getitem__)
    assert moved is not None
    assert shrunk is not None
    assert moved.factor is first.factor
    assert "residuals" in moved.ridge.__dict__
    assert {"slack", "residuals"} <= {*shrunk.factor.__dict__, *shrunk.ridge.__dict__}
    grown = learnt(shrunk, {**labels, item: "class 07"}, rows, labels.__getitem__)
    assert grown is not None
    last_is_first = np.roll(np.arange(len(rows)), 1)
    assert grown.held_out_scores[last_is_first] == pytest.approx(moved.held_out_scores, abs=1e-9)
    assert learnt(first, labels, rows, labels.__getitem__) is first
    back = learnt(moved, labels, rows, labels.__getitem__)
    assert back is not None
    assert back.held_out_scores == pytest.approx(expected, abs=1e-9)


def state() -> Any:
    rng = np.random.default_rng(0)
    rows = {f"{i:064x}": rng.normal(size=6) + 4 * np.eye(3, 6)[i % 3] for i in range(12)}
    return learnt(None, {item: "abc"[i % 3] for i, item in enumerate(rows)}, rows, lambda item: f"{item}.png")


def test_one_class_is_nothing_to_learn() -> None:
    assert learnt(None, {"a": "x"}, {"a": np.zeros(3)}, str) is None


def test_an_answer_ranks_all_classes_and_names_the_nearest_examples() -> None:
    found = answered(state(), 4 * np.eye(3, 6)[1])
    assert found["answers"][0]["label"] == "b"
    chances = [each["probability"] for each in found["answers"]]
    assert chances == sorted(chances, reverse=True)
    assert sum(chances) == pytest.approx(1.0)
    assert {each["label"] for each in found["nearest"][:3]} == {"b"}


def test_the_pile_has_a_guess_for_each_image_and_none_before_there_is_a_state() -> None:
    pile = {"p": 4 * np.eye(3, 6)[0], "q": 4 * np.eye(3, 6)[2]}
    assert sorted_pile(None, pile) == [{"id": "p"}, {"id": "q"}]
    assert {each["id"]: each["guess"] for each in sorted_pile(state(), pile)} == {"p": "a", "q": "c"}
    assert sorted_pile(state(), {}) == []


def test_classes_say_what_they_lack() -> None:
    assert needs_of({}, "a", 0, 5) != needs_of({}, "a", 1, 5) != ""
    assert needs_of({"a": "often mistaken"}, "a", 3, 5) == "often mistaken"
    assert needs_of({}, "a", 3, 5).startswith("2 ")
    assert needs_of({}, "a", 5, 5) == ""


def test_a_page_is_sent_what_changed_since_a_revision_and_what_is_gone() -> None:
    page = Page()
    page.turn(1, {"a": {"id": "a"}, "b": {"id": "b"}})
    page.turn(2, {"a": {"id": "a", "label": "x"}, "c": {"id": "c"}})
    assert page.since(None) == {"items": [{"id": "a", "label": "x"}, {"id": "c"}]}
    assert page.since(1) == {"since": 1, "items": [{"id": "a", "label": "x"}, {"id": "c"}], "gone": ["b"]}
    assert page.since(2) == {"since": 2, "items": [], "gone": []}
    page.turn(3, {"a": {"id": "a", "label": "x"}, "b": {"id": "b"}})
    assert page.since(2) == {"since": 2, "items": [{"id": "b"}], "gone": ["c"]}
