"""A session: undo and redo to the same numbers, background work that can be cancelled, and what a page is sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handful import FewShotClassifier
from handful._io import digest
from handful.serve import studio_changes as changes
from handful.serve import studio_embedding
from handful.serve.studio_session import Session
from handful.serve.studio_shelf import Shelf
from tests.serve.browser import KINDS, drawing
from tests.serve.sessions import PATIENCE, numbers, settled, taught, until


def test_undoing_any_change_gives_back_the_same_numbers(session: Session) -> None:
    taught(session)
    ring, cross = digest(drawing("ring", 0)), digest(drawing("cross", 0))
    steps: list[Callable[[], object]] = [
        lambda: session.do(changes.label, [ring, cross], "zigzag"),
        lambda: session.do(changes.label, [ring], None),
        lambda: session.do(changes.delete, [cross]),
        lambda: session.do(changes.rename_class, "ring", "circle"),
        lambda: session.do(changes.rename_class, "ring", "cross"),
        lambda: session.do(changes.delete_class, "zigzag"),
        lambda: session.do(changes.confirm, [ring]),
        lambda: session.do(changes.rename, "Other signs"),
        lambda: session.do(changes.reject, 0.2),
        lambda: session.do(changes.add_class, "empty"),
    ]
    before = session.state()
    for change in steps:
        change()
        after = session.state()
        session.undo()
        undone = session.state()
        counted = dict.fromkeys(("revision", "learnt", "estimate", "rejection", "redo", "embedding"))
        assert {**undone, **counted} == {**before, **counted}
        assert numbers(undone) == pytest.approx(numbers(before), abs=1e-9)  # the factor was updated twice, in float64
        session.redo()
        assert session.state()["items"] == after["items"]
        session.undo()


def test_a_page_that_has_seen_a_state_gets_only_what_changed(session: Session) -> None:
    first = taught(session)
    ring, cross = digest(drawing("ring", 0)), digest(drawing("cross", 0))
    seen = {item["id"]: item for item in first["items"]}
    revision = first["revision"]

    def follow() -> Any:
        nonlocal revision
        part = session.state(first["session"], revision)
        assert part["since"] == revision
        for item in part["gone"]:
            del seen[item]
        seen.update({item["id"]: item for item in part["items"]})
        whole = session.state()
        assert "since" not in whole
        assert seen == {item["id"]: item for item in whole["items"]}
        assert {key: part[key] for key in part.keys() - {"since", "items", "gone"}} == {
            key: whole[key] for key in whole.keys() - {"items"}
        }
        revision = part["revision"]
        return part

    assert follow()["items"] == []
    session.do(changes.rename, "Other signs")
    assert follow()["items"] == []
    session.do(changes.label, [ring], "cross")
    assert ring in {item["id"] for item in follow()["items"]}
    session.do(changes.delete, [cross])
    assert follow()["gone"] == [cross]
    session.undo()
    session.undo()
    assert follow()["gone"] == []
    assert seen == {item["id"]: item for item in first["items"]}
    assert "since" not in session.state("another session", revision)


def test_a_session_equals_a_classifier_fitted_to_the_same_images(session: Session, tmp_path: Path) -> None:
    taught(session)
    session.do(changes.label, [digest(drawing("ring", 0))], "cross")
    session.do(changes.delete, [digest(drawing("zigzag", 1))])
    session.undo()
    session.undo()
    images = [drawing(kind, number) for kind in KINDS for number in range(3)]
    fresh = FewShotClassifier("characters", cache=False).fit(images, [kind for kind in KINDS for _ in range(3)])
    query = drawing("cross", 9)
    answer = session.answer(query)
    found = {each["label"]: each["probability"] for each in answer["answers"]}
    expected = dict(zip(fresh.classes_, fresh.predict_proba([query])[0], strict=True))
    assert found == pytest.approx(expected, abs=1e-6)
    assert answer["unknown"] == pytest.approx(float(fresh.unknown_score([query])[0]), abs=1e-6)
    session.save(tmp_path / "taken.handful")
    taken = FewShotClassifier.load(tmp_path / "taken.handful")
    assert taken.predict_proba([query]) == pytest.approx(fresh.predict_proba([query]), abs=1e-6)
    assert taken.has_thumbnails_


def test_the_taken_page_starts_with_the_share_to_reject_of_the_tray(session: Session, tmp_path: Path) -> None:
    taught(session)
    session.save(tmp_path / "usual.html")
    assert '"share": 0.05}' in (tmp_path / "usual.html").read_text(encoding="utf-8")
    session.do(changes.reject, 0.2)
    session.save(tmp_path / "chosen.html")
    assert '"share": 0.2}' in (tmp_path / "chosen.html").read_text(encoding="utf-8")


def test_an_image_is_kept_once_and_a_second_drop_relabels_it(session: Session) -> None:
    taught(session)
    image = drawing("ring", 0)
    assert session.add_image(image, "again.png", "ring")["known"] == "ring"
    assert len(session.state()["items"]) == 9
    session.add_image(image, "again.png", "cross")
    assert [each["count"] for each in session.state()["classes"]] == [2, 4, 3]
    assert session.add_image(image, "again.png", None)["known"] == "cross"


def test_the_pile_is_sorted_and_guessed(session: Session) -> None:
    taught(session)
    for kind in KINDS:
        session.add_image(drawing(kind, 20), f"{kind}.png", None, "pile")
    pile = settled(session)["pile"]
    assert len(pile) == 3
    assert all(each["guess"] in KINDS and 0 < each["probability"] <= 1 for each in pile)


def test_cancelling_removes_what_was_not_embedded_and_undo_goes_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    taught(session)
    gate, real = threading.Event(), studio_embedding.embed

    def slow(*arguments: Any, **options: Any) -> Any:
        gate.wait(PATIENCE)
        return real(*arguments, **options)

    monkeypatch.setattr(studio_embedding, "embed", slow)
    for number in range(20, 30):
        session.add_image(drawing("ring", number), f"{number}.png", "ring", "many")
    until(lambda: session.progress()["total"] > 0)
    session.cancel()
    assert len(session.state()["items"]) == 9
    gate.set()
    assert len(settled(session)["items"]) == 9
    session.undo()
    assert len(settled(session)["items"]) == 19


def test_a_stopping_studio_does_not_wait_for_a_batch_that_the_next_one_embeds_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity, gate, begun, real = shelf.create("Signs"), threading.Event(), threading.Event(), studio_embedding.embed

    def slow(*arguments: Any, **options: Any) -> Any:
        begun.set()
        gate.wait(PATIENCE)
        return real(*arguments, **options)

    monkeypatch.setattr(studio_embedding, "embed", slow)
    first = Session(shelf.open(identity), lambda event, data: None)
    for number in range(2):
        first.add_image(drawing("ring", number), f"{number}.png", "ring")
    assert begun.wait(PATIENCE)
    first.close(patience=0.01)
    assert first._threads[0].is_alive()  # nobody waited for it
    gate.set()
    first._threads[0].join(PATIENCE)
    second = Session(shelf.open(identity), lambda event, data: None)
    assert len(settled(second)["items"]) == 2
    second.close()
