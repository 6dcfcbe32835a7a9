"""All projects of the studio: listing, creating, opening and removing them."""

from __future__ import annotations

import re
import secrets
import shutil
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handful._io import locked, parse_json
from handful.errors import DataError
from handful.serve.studio_store import FILE, Project, class_name, refuse_second

_IDENTITY = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class Summary:
    """A project as the start page lists it."""

    identity: str
    name: str
    classes: int
    images: int
    changed: float
    shown: tuple[str, ...]
    """The digests of some images."""
    source: str = ""
    """The folder or file that it was made from."""


@dataclass(frozen=True)
class Shelf:
    """The folder of all projects."""

    root: Path

    def list(self) -> list[Summary]:
        """The projects, last changed first; other folders are skipped."""
        found = [self._summary(file) for file in self.root.glob(f"*/{FILE}") if _IDENTITY.fullmatch(file.parent.name)]
        return sorted(found, key=lambda each: -each.changed)

    def create(self, name: str, facts: Mapping[str, Any] | None = None) -> str:
        """Create an empty project, with some more facts about it."""
        identity = secrets.token_hex(6)
        project = Project(self.root / identity)
        project.settle({"name": class_name(name), **(facts or {})})
        project.close()
        return identity

    def open(self, identity: str) -> Project:
        """An existing project."""
        return Project(self.path(identity))

    def remove(self, identity: str) -> None:
        """Delete a project with everything in it; raises if it is open in another studio."""
        folder = self.path(identity)
        with locked(folder / FILE, refuse_second):
            (folder / FILE).unlink(missing_ok=True)  # from now on nobody can open it
        shutil.rmtree(folder)

    def path(self, identity: str) -> Path:
        """The folder of a project; only its twelve hexadecimal digits are taken from the URL."""
        folder = self.root / identity
        if not _IDENTITY.fullmatch(identity) or not (folder / FILE).is_file():
            raise DataError(f"There is no project {identity[:20]!r}.")
        return folder

    def _summary(self, file: Path) -> Summary:
        try:
            connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=1)
            try:
                rows = connection.execute("SELECT key, value FROM facts")
                facts = {str(key): parse_json(value) for key, value in rows}
            finally:
                connection.close()
        except (sqlite3.Error, ValueError, TypeError, AttributeError):
            return Summary(file.parent.name, "(cannot be read)", 0, 0, _changed_at(file), ())
        items = [key[5:] for key in facts if key.startswith("item/")]
        return Summary(
            file.parent.name,
            str(facts.get("name", "Untitled")),
            sum(key.startswith("class/") for key in facts),
            len(items),
            _changed_at(file),
            tuple(items[:: max(1, len(items) // 8)][:8]),
            str(facts.get("source", "")),
        )


def _changed_at(file: Path) -> float:
    """When a database was last changed; the latest changes of an open one are in a file next to it."""
    return max(each.stat().st_mtime for each in (file, file.with_name(f"{file.name}-wal")) if each.exists())
