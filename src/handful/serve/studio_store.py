"""Projects of the studio on disk: every change is one transaction that survives a crash and can be undone."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from handful._io import from_json, locked, parse_json, write_atomically
from handful.classifier.inputs import Matrix
from handful.errors import CheckpointError, DataError, HandfulError, InvalidOptionError, NewerFormatError

FORMAT = 1
FILE = "project.sqlite"
MOST_UNDONE = 300
"""The most changes that can be undone; older ones are final."""
LONGEST_NAME = 80
Facts = dict[str, Any]
"""Everything about a project as flat keys: name, embedding, reject, class/NAME and item/DIGEST."""

_TABLES = """
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS history (number INTEGER PRIMARY KEY, title TEXT, batch TEXT, changes TEXT);
CREATE TABLE IF NOT EXISTS features (embedding TEXT, item TEXT, row BLOB, PRIMARY KEY (embedding, item));
"""
_DIGEST = re.compile(r"[0-9a-f]{1,64}")


@dataclass(frozen=True)
class Change:
    """One step of the history: its title, and every fact that it changed, before and after."""

    number: int
    title: str
    batch: str
    facts: dict[str, tuple[Any, Any]]


class Project:
    """One project in one folder: facts, history and features in SQLite, and the images as files named by their content.

    A change writes its facts and its step of the history in one transaction. Undo and redo restore the facts of any
    step.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._guard = threading.RLock()
        self._items: dict[str, dict[str, Any]] | None = None
        self._stack = ExitStack()
        self._stack.enter_context(locked(folder / FILE, refuse_second))
        self.facts: Facts = {}
        try:
            self._connection = self._opened()
            with self._reading():
                self.facts = self._checked_facts()
        except (
            sqlite3.DatabaseError,
            UnicodeError,
            HandfulError,
        ) as error:  # sqlite3 cannot even describe some kinds of damage
            self._stack.close()
            if isinstance(error, HandfulError):
                self._connection.close()
                raise
            raise CheckpointError(f"The project {folder} cannot be read: {error}.") from error

    def __repr__(self) -> str:
        return f"Project({str(self.folder)!r}, {self.name!r}, {len(self.items())} images)"

    @property
    def identity(self) -> str:
        """The name of its folder, which is part of its URL."""
        return self.folder.name

    @property
    def name(self) -> str:
        """The name that the user gave it."""
        return str(self.facts.get("name", "Untitled"))

    def items(self) -> Mapping[str, dict[str, Any]]:
        """The images by digest, in the order in which they were added."""
        if self._items is None:
            found = [(key[5:], value) for key, value in self.facts.items() if key.startswith("item/")]
            self._items = dict(sorted(found, key=lambda pair: (pair[1]["n"], pair[0])))
        return self._items

    def classes(self) -> list[str]:
        """The names of the classes, in their order on the page."""
        found = [(value["n"], key[6:]) for key, value in self.facts.items() if key.startswith("class/")]
        return [name for _, name in sorted(found)]

    # ------------------------------------------------------------------------------------------------------- changes

    def change(self, title: str, after: Mapping[str, Any], batch: str = "") -> bool:
        """Set facts, or delete those set to None; returns False if nothing would change.

        Consecutive changes with the same `batch` are one step of the history.
        """
        with self._guard, self._transaction():
            facts = {key: (self.facts.get(key), value) for key, value in after.items()}
            facts = {key: pair for key, pair in facts.items() if pair[0] != pair[1]}
            if not facts:
                return False
            cursor, last = self._cursor(), self._step(self._cursor())
            self._connection.execute(
                "DELETE FROM history WHERE number > ? OR number <= ?", (cursor, cursor - MOST_UNDONE)
            )
            if batch and last is not None and last.batch == batch:
                facts = {**last.facts, **{key: (last.facts.get(key, pair)[0], pair[1]) for key, pair in facts.items()}}
            else:
                cursor += 1
            self._connection.execute(
                "INSERT OR REPLACE INTO history VALUES (?, ?, ?, ?)", (cursor, title, batch, json.dumps(facts))
            )
            self._set({"cursor": cursor, **after})
        return True

    def undo(self) -> Change | None:
        """Undo the last change; None if there is nothing to undo."""
        return self._travel(self._cursor(), 0)

    def redo(self) -> Change | None:
        """Redo what was undone last; None if there is nothing to redo."""
        return self._travel(self._cursor() + 1, 1)

    def undoable(self) -> str | None:
        """The title of the change that undo would revert."""
        return self._title(self._cursor())

    def redoable(self) -> str | None:
        """The title of the change that redo would repeat."""
        return self._title(self._cursor() + 1)

    def settle(self, after: Mapping[str, Any]) -> None:
        """Set facts outside the history, for changes that the user did not make."""
        with self._guard, self._transaction():
            self._set(after)

    def _travel(self, number: int, side: int) -> Change | None:
        with self._guard, self._transaction():
            step = self._step(number)
            if step is not None:
                facts = {key: pair[side] for key, pair in step.facts.items()}
                self._set({"cursor": number - 1 + side, **facts})
        return step

    def _cursor(self) -> int:
        return int(self.facts.get("cursor", 0))

    def _title(self, number: int) -> str | None:
        with self._guard, self._reading():
            row = self._connection.execute("SELECT title FROM history WHERE number = ?", (number,)).fetchone()
        return None if row is None else str(row[0])

    def _step(self, number: int) -> Change | None:
        with self._guard, self._reading():
            row = self._connection.execute("SELECT * FROM history WHERE number = ?", (number,)).fetchone()
            return None if row is None else Change(row[0], str(row[1]), str(row[2]), _changes(row[3]))

    def _set(self, after: Mapping[str, Any]) -> None:
        kept = [(key, json.dumps(value)) for key, value in after.items() if value is not None]
        self._connection.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", kept)
        self._connection.executemany("DELETE FROM facts WHERE key = ?", [(k,) for k, v in after.items() if v is None])
        for key, value in after.items():
            if value is None:
                self.facts.pop(key, None)
            else:
                self.facts[key] = value
            if key.startswith("item/"):
                self._follow(key[5:], value)

    def _follow(self, item: str, value: Any) -> None:
        """Keep the images in order; they are sorted again only if one returns between others."""
        if self._items is None:
            return
        last = next(reversed(self._items.values()), {"n": -1})
        place = self._items[item]["n"] if item in self._items else max(last["n"] + 1, value["n"] if value else 0)
        if value is None:
            self._items.pop(item, None)
        elif value["n"] == place:
            self._items[item] = value
        else:
            self._items = None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction that also covers the facts in memory."""
        before = dict(self.facts)
        try:
            with self._connection:
                yield
        except BaseException as error:
            self.facts, self._items = before, None
            if isinstance(error, sqlite3.DatabaseError):
                raise DataError(
                    f"The project {self.folder} cannot be written: {error}. Nothing was changed."
                ) from error
            raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Report anything that cannot be read as damage to the project."""
        try:
            yield
        except sqlite3.OperationalError:
            raise  # caused by the disk or a lock
        except (sqlite3.DatabaseError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"The project {self.folder} is damaged: {str(error).rstrip('.')}. Delete it, or restore a copy."
            ) from error

    def _checked_facts(self) -> Facts:
        """The facts, after checking that all of them have the expected types."""
        rows = self._connection.execute("SELECT key, value FROM facts")
        facts = {from_json(str, key, "a key"): parse_json(value) for key, value in rows}
        found = from_json(int, facts.get("format", FORMAT), "format")
        if found > FORMAT:
            raise NewerFormatError(f"The project {self.folder} has format {found}. Update handful to open it.")
        if not 0 <= from_json(int, facts.get("cursor", 0), "cursor") < 2**62:
            raise ValueError(f"its history is at step {facts['cursor']}")
        for name in ("name", "embedding", "source", "import"):
            from_json(str, facts.get(name, ""), name)
        for key, value in facts.items():
            if key.startswith(("class/", "item/")):
                from_json(int, value["n"], f"{key}.n")
            if key.startswith("item/"):
                from_json(str, value["name"], f"{key}.name")
                from_json(str | None, value["label"], f"{key}.label")
                if not _DIGEST.fullmatch(key[5:]):  # its image is a file of this name
                    raise ValueError(f"{key[:80]!r} is not named by a digest")
        return facts

    # ------------------------------------------------------------------------------------------- images and features

    def keep(self, item: str, content: bytes, small: bytes) -> None:
        """Store an image file and its thumbnail, before any fact refers to them."""
        if not self.image(item).exists():
            write_atomically(self.image(item), content)
        self.keep_small(item, small)

    def keep_small(self, item: str, small: bytes) -> None:
        """Store only a thumbnail, if there is no image file."""
        if not self.small(item).exists():
            write_atomically(self.small(item), small)

    def image(self, item: str) -> Path:
        """The file of an image; its name is made only of the digest."""
        return self.folder / "images" / item

    def small(self, item: str) -> Path:
        """The file of a thumbnail."""
        return self.folder / "small" / f"{item}.jpg"

    def features(self, embedding: str, items: Sequence[str]) -> dict[str, Matrix]:
        """The stored features of these images, as far as they were embedded before."""
        wanted = set(items)
        with self._guard, self._reading():
            rows = self._connection.execute(
                "SELECT item, row FROM features WHERE embedding = ?", (embedding,)
            ).fetchall()
            return {item: np.frombuffer(row, dtype="<f8") for item, row in rows if item in wanted}

    def keep_features(self, embedding: str, rows: Mapping[str, Matrix]) -> None:
        """Store features."""
        values = [(embedding, item, row.astype("<f8").tobytes()) for item, row in rows.items()]
        with self._guard, self._transaction():
            self._connection.executemany("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", values)

    def sweep(self) -> None:
        """Delete images and features that neither a fact nor the history refers to."""
        with self._guard, self._reading(), self._transaction():
            steps = self._connection.execute("SELECT changes FROM history").fetchall()
            known = {key[5:] for (step,) in steps for key in _changes(step) if key.startswith("item/")}
            known |= set(self.items())
            stored = {item for (item,) in self._connection.execute("SELECT DISTINCT item FROM features")}
            self._connection.executemany("DELETE FROM features WHERE item = ?", [(item,) for item in stored - known])
        for file in [*self.folder.glob("images/*"), *self.folder.glob("small/*")]:
            if file.name.removesuffix(".jpg") not in known:
                file.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the project, so that others can open it."""
        with self._guard:
            with suppress(sqlite3.Error):  # someone lists the projects: the next one that closes it tidies up
                self._connection.execute("PRAGMA journal_mode = DELETE")  # one plain file that can be copied
            self._connection.close()
            self._stack.close()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.folder / FILE, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")  # a change then waits for the disk once instead of four times
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_TABLES)
        with connection:
            connection.execute("INSERT OR IGNORE INTO facts VALUES ('format', ?)", (str(FORMAT),))
        return connection


def _changes(text: Any) -> dict[str, tuple[Any, Any]]:
    """The facts of a step of the history, before and after."""
    changes: dict[str, tuple[Any, Any]] = from_json(dict[str, tuple[Any, Any]], parse_json(text), "a step")
    return changes


def class_name(text: Any) -> str:
    """A valid class name from user input: one line, without invisible characters, not too long."""
    if not isinstance(text, str):
        raise InvalidOptionError("A class needs a name.")
    plain = unicodedata.normalize("NFC", text)
    plain = " ".join("".join(c if unicodedata.category(c)[0] not in "CZ" else " " for c in plain).split())
    if not plain:
        raise InvalidOptionError("A class needs a name.")
    if len(plain) > LONGEST_NAME:
        raise InvalidOptionError(f"A name may have at most {LONGEST_NAME} characters, but this one has {len(plain)}.")
    return plain


def file_name(name: str) -> str:
    """A project's name as a file name: letters, digits and hyphens."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-").lower()
    return "-".join(filter(None, plain.split("-")))[:60] or "model"


def refuse_second() -> None:
    """Raise because another studio holds the lock of a project."""
    raise DataError("This project is open in another handful studio. Close it there first.")
