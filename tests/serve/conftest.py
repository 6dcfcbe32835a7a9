"""A shelf of projects, and an open session of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from handful.serve.studio_session import Session
from handful.serve.studio_shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "projects")


@pytest.fixture
def session(shelf: Shelf) -> Iterator[Session]:
    opened = Session(shelf.open(shelf.create("Signs")), lambda event, data: None)
    yield opened
    opened.close()
