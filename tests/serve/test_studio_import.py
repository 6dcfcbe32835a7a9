"""Folders and .handful files become projects, once, also when the first attempt was cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handful.errors import InvalidOptionError
from handful.serve.studio_import import open_source, take_over
from handful.serve.studio_session import Session
from handful.serve.studio_shelf import Shelf
from tests.serve.browser import KINDS, drawing
from tests.serve.sessions import settled, until


def test_a_folder_and_then_its_file_become_projects(shelf: Shelf, tmp_path: Path) -> None:
    folder = tmp_path / "signs"
    for kind in KINDS[:2]:
        for number in range(3):
            file = folder / kind / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(drawing(kind, number))
    (folder / "loose.png").write_bytes(drawing("ring", 9))
    (folder / "ring" / "broken.png").write_bytes(b"not an image")
    identity, told = open_source(shelf, folder), []
    session = Session(shelf.open(identity), lambda event, data: told.append((event, data)))
    session.start(take_over)
    until(lambda: "import" not in session.project.facts)
    state = settled(session)
    assert [(each["name"], each["count"]) for each in state["classes"]] == [("cross", 3), ("ring", 3)]
    assert len(state["pile"]) == 1
    assert any("broken.png" in data["message"] for event, data in told if event == "failed")
    session.save(tmp_path / "signs.handful")
    session.close()
    assert open_source(shelf, folder) == identity
    again = Session(shelf.open(open_source(shelf, tmp_path / "signs.handful")), lambda event, data: None)
    again.start(take_over)
    until(lambda: "import" not in again.project.facts)
    taken = settled(again)
    assert taken["estimate"]["accuracy"] == pytest.approx(state["estimate"]["accuracy"])
    with pytest.raises(InvalidOptionError, match="features but not the images"):
        again.choose_embedding("characters")
    again.add_image(drawing("ring", 30), "new.png", "ring")
    assert len(settled(again)["items"]) == 7
    again.close()


def test_the_next_session_goes_on_with_a_folder_that_was_half_taken_over(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "signs" / "ring"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.png").write_bytes(drawing("ring", number))
    identity = open_source(shelf, folder.parent)
    first = Session(shelf.open(identity), lambda event, data: None)
    real = first.add_image

    def add_and_stop(*arguments: Any) -> Any:
        first.stopped = True
        return real(*arguments)

    monkeypatch.setattr(first, "add_image", add_and_stop)
    take_over(first)
    assert len(first.project.items()) == 1
    first.close()
    second = Session(shelf.open(identity), lambda event, data: None)
    take_over(second)
    assert len(second.project.items()) == 4
    assert "import" not in second.project.facts
    second.close()


@pytest.mark.parametrize("content", [None, b"not a classifier"])
def test_a_bad_source_is_one_line_and_makes_no_project(
    tmp_path: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    from handful.cli import main

    source = tmp_path / "odd.handful"
    if content is not None:
        source.write_bytes(content)
    assert main(["studio", str(source), "--projects", str(tmp_path / "projects"), "--no-browser"]) == 2
    assert capsys.readouterr().err.startswith("handful: ")
    assert Shelf(tmp_path / "projects").list() == []


def test_an_import_that_failed_is_told_and_tried_again_by_the_next_session(shelf: Shelf, tmp_path: Path) -> None:
    folder, moved = tmp_path / "signs", tmp_path / "moved"
    (folder / "ring").mkdir(parents=True)
    (folder / "ring" / "0.png").write_bytes(drawing("ring", 0))
    identity, told = open_source(shelf, folder), []
    folder.rename(moved)
    first = Session(shelf.open(identity), lambda event, data: told.append((event, data)))
    take_over(first)
    first.close()
    assert [str(folder) in data["message"] for event, data in told if event == "failed"] == [True]
    moved.rename(folder)
    assert open_source(shelf, folder) == identity
    second = Session(shelf.open(identity), lambda event, data: None)
    take_over(second)
    assert len(second.project.items()) == 1
    assert "import" not in second.project.facts
    second.close()
