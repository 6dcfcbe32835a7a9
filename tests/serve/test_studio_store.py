"""Projects survive crashes, and every change can be taken back exactly."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from handful.errors import CheckpointError, DataError, InvalidOptionError, NewerFormatError
from handful.serve.studio_shelf import Shelf
from handful.serve.studio_store import FILE, Project, class_name, file_name


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "one")


def test_undo_and_redo_put_back_every_kind_of_fact(project: Project) -> None:
    project.change("Add", {"class/cat": {"n": 1}, "item/a": {"n": 1, "label": "cat", "name": "a.png"}})
    before = dict(project.facts)
    project.change("Move", {"class/dog": {"n": 2}, "item/a": {"n": 1, "label": "dog", "name": "a.png"}})
    project.change("Delete", {"item/a": None, "class/cat": None})
    after = dict(project.facts)
    assert (project.undoable(), project.redoable()) == ("Delete", None)
    project.undo()
    project.undo()
    assert {k: v for k, v in project.facts.items() if k != "cursor"} == {
        k: v for k, v in before.items() if k != "cursor"
    }
    project.redo()
    project.redo()
    assert project.facts == after
    assert project.redo() is None


def test_a_new_change_ends_what_could_be_redone(project: Project) -> None:
    project.change("Add cat", {"class/cat": {"n": 1}})
    project.undo()
    project.change("Add dog", {"class/dog": {"n": 1}})
    assert project.redo() is None
    assert project.classes() == ["dog"]


def test_changes_of_one_batch_are_one_step(project: Project) -> None:
    for number in range(5):
        project.change("Add images", {f"item/{number}": {"n": number, "label": None, "name": ""}}, "drop 1")
    project.change("Add images", {"item/9": {"n": 9, "label": None, "name": ""}}, "drop 2")
    project.undo()
    assert list(project.items()) == ["0", "1", "2", "3", "4"]
    project.undo()
    assert not project.items()


def test_a_change_that_changes_nothing_is_no_step(project: Project) -> None:
    project.change("Add cat", {"class/cat": {"n": 1}})
    assert not project.change("Add cat", {"class/cat": {"n": 1}})
    project.undo()
    assert project.undoable() is None


def test_a_project_reads_back_what_was_written_without_being_closed(project: Project, tmp_path: Path) -> None:
    project.change("Add cat", {"class/cat": {"n": 1}})
    project.keep_features("e", {"a": np.arange(3.0)})
    project._stack.close()  # the lock ends with a killed process; nothing else of it runs
    again = Project(tmp_path / "one")
    assert again.classes() == ["cat"]
    assert again.undoable() == "Add cat"
    assert again.features("e", ["a"])["a"].tolist() == [0.0, 1.0, 2.0]


def test_a_failed_write_changes_nothing_in_memory_either(project: Project) -> None:
    project.change("Add cat", {"class/cat": {"n": 1}})
    before = dict(project.facts)
    project._connection.execute("DROP TABLE history")
    with pytest.raises(DataError, match="Nothing was changed"):
        project.change("Add dog", {"class/dog": {"n": 2}})
    assert project.facts == before


def test_a_project_is_open_once(project: Project, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="another handful studio"):
        Project(tmp_path / "one")


def test_a_newer_format_is_refused(project: Project, tmp_path: Path) -> None:
    project.close()
    with sqlite3.connect(tmp_path / "one" / "project.sqlite") as connection:
        connection.execute("UPDATE facts SET value = '99' WHERE key = 'format'")
    with pytest.raises(NewerFormatError, match="Update handful"):
        Project(tmp_path / "one")


def test_sweeping_keeps_what_the_history_may_bring_back(project: Project) -> None:
    for item in ("kept", "deleted", "stray"):
        project.keep(item, b"image", b"small")
    project.change("Add", {f"item/{item}": {"n": 1, "label": None, "name": ""} for item in ("kept", "deleted")})
    project.change("Delete", {"item/deleted": None})
    project.sweep()
    assert sorted(file.name for file in project.folder.glob("images/*")) == ["deleted", "kept"]


def test_names_are_one_visible_line() -> None:
    assert class_name("  a\n\tb\u202e c ") == "a b c"
    assert class_name("<script>") == "<script>"
    for bad in ("", " \n", None, "x" * 81):
        with pytest.raises(InvalidOptionError):
            class_name(bad)
    assert file_name("../Birds & Bees!") == "birds-bees"
    assert file_name("鳥") == "model"


ITEM = "a" * 64
DAMAGE = [
    "UPDATE facts SET value = '{' WHERE key = 'format'",
    "UPDATE facts SET value = 'null' WHERE key = 'format'",
    "UPDATE facts SET value = x'ff00' WHERE key = 'format'",
    "UPDATE facts SET value = '[1]' WHERE key = 'name'",
    "INSERT INTO facts VALUES ('cursor', '\"x\"')",
    "INSERT INTO facts VALUES ('cursor', '9223372036854775808')",
    "INSERT INTO facts VALUES ('class/x', '[]')",
    f"INSERT INTO facts VALUES ('item/{ITEM}', '5')",
    f"INSERT INTO facts VALUES ('item/{ITEM}', '{{}}')",
    f"INSERT INTO facts VALUES ('item/{ITEM}', '{'[' * 5000}')",
    """INSERT INTO facts VALUES ('item/../../x', '{"n": 1, "label": null, "name": "x"}')""",
    "INSERT INTO history VALUES (1, 't', 'b', '{')",
    "INSERT INTO history VALUES (1, 't', 'b', '{\"a\": 3}')",
    "INSERT INTO features VALUES ('e', 'x', x'0102')",
    "INSERT INTO features VALUES ('e', 'x', 'text')",
]


@pytest.mark.parametrize("statement", DAMAGE)
def test_a_damaged_project_is_one_clear_error_and_is_not_left_open(statement: str, tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    identity = shelf.create("Birds")
    with closing(sqlite3.connect(tmp_path / identity / FILE)) as connection, connection:
        connection.execute(statement)
    for _ in range(2):  # the second time, nobody holds its lock
        with pytest.raises(CheckpointError, match="is damaged") as caught:
            _read(shelf, identity)
        assert "\n" not in str(caught.value)
    assert len(shelf.list()) == 1
    shelf.remove(identity)


def _read(shelf: Shelf, identity: str) -> None:
    project = shelf.open(identity)
    try:
        project.features("e", ["x"])
        project.sweep()
    finally:
        project.close()
