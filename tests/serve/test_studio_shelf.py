"""The shelf lists, creates and removes projects, and leads nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from handful.errors import DataError
from handful.serve.studio_shelf import Shelf
from handful.serve.studio_store import FILE


def test_the_shelf_lists_creates_and_removes(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    identity = shelf.create("Birds")
    (tmp_path / "not-a-project").mkdir()
    assert [(each.identity, each.name) for each in shelf.list()] == [(identity, "Birds")]
    shelf.remove(identity)
    assert shelf.list() == []


@pytest.mark.parametrize("identity", ["..", "../../etc", "", "0123456789ab", "0123456789AB/x"])
def test_only_a_projects_digits_lead_to_a_folder(tmp_path: Path, identity: str) -> None:
    with pytest.raises(DataError, match="no project"):
        Shelf(tmp_path).path(identity)


def test_an_open_project_is_listed_with_its_last_change_and_a_closed_one_is_one_plain_file(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    project = shelf.open(shelf.create("Signs"))
    project.change("Add the class", {"class/ring": {"n": 1}})
    log = project.folder / f"{FILE}-wal"
    assert log.stat().st_size > 0
    assert [each.classes for each in shelf.list()] == [1]
    project.close()
    assert not log.exists()
    assert (project.folder / FILE).read_bytes()[18:20] == b"\x01\x01"  # SQLite's mark of a file without a log
    assert [each.classes for each in shelf.list()] == [1]


def test_a_folder_of_projects_may_have_any_name(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "my #1? 100%41")
    shelf.create("Birds")
    assert [each.name for each in shelf.list()] == ["Birds"]


def test_a_project_that_is_open_in_another_studio_is_not_removed(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    project = shelf.open(shelf.create("Signs"))
    with pytest.raises(DataError, match="open in another"):
        shelf.remove(project.identity)
    assert len(shelf.list()) == 1
    project.close()
    shelf.remove(project.identity)
    assert list(tmp_path.iterdir()) == []
