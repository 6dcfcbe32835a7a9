"""A cache of features on disk, by content: an image that was embedded once is not embedded again.

Everything in it can be recomputed. So a damaged file is deleted, a locked or read-only one is skipped, and the least
recently used entries are deleted when it is full. Deleted entries are overwritten with zeros.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from handful._io import data_root, expanded
from handful.classifier.inputs import Matrix
from handful.errors import DataError, InvalidOptionError

FILE = "features.sqlite"
FORMER = "embeddings.sqlite"
"""The cache of handful 0.1, which kept a thumbnail of every image; it is deleted if found."""
LIMIT = 1_000_000_000
"""Default size limit of the cache in bytes; `handful cache --limit` changes it."""
WAIT, PATIENCE = 0.5, 10.0
"""Seconds to wait for a lock: if the cache only saves time, and if something must be deleted."""
_SCHEMA = (
    "PRAGMA secure_delete = ON",
    "PRAGMA journal_mode = MEMORY",  # no journal file that would keep deleted data
    "PRAGMA synchronous = OFF",
    "CREATE TABLE IF NOT EXISTS entries (image BLOB, embedding BLOB, content BLOB NOT NULL, digest BLOB NOT NULL, "
    "day INTEGER NOT NULL, PRIMARY KEY (image, embedding))",
    "CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
)
_THUMBNAIL = b""
"""Used in place of an embedding's digest for entries that are thumbnails."""


@dataclass(frozen=True)
class Usage:
    """What the cache holds."""

    path: Path
    images: int
    features: int
    thumbnails: int
    size: int
    """Bytes on disk."""
    limit: int


class Store:
    """One SQLite file, open until `close`; several processes may use it at once, and writes are atomic.

    After the first failure it does nothing more, so it waits for a lock only once.
    """

    def __init__(self, folder: Path, wait: float = WAIT) -> None:
        self._path = folder / FILE
        self._pending: list[tuple[bytes, bytes, bytes, bytes, int]] = []
        self._used: list[tuple[int, bytes, bytes]] = []
        self._day = int(time.time() // 86400)
        self._connection = _opened(self._path, wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.flush()
        if self._connection is not None:
            self._connection.close()

    def features(self, embedding: str, image: str) -> Matrix | None:
        """The features of an image, by the digests of the embedding and the image."""
        content = self._read(bytes.fromhex(image), bytes.fromhex(embedding))
        if content is None or not content or len(content) % 8:
            return None
        row: Matrix = np.frombuffer(content, dtype="<f8")
        return row if bool(np.isfinite(row).all()) else None

    def add_features(self, embedding: str, rows: Mapping[str, Matrix]) -> None:
        """Store the features of images at the next `flush`."""
        for image, row in rows.items():
            self._add(bytes.fromhex(image), bytes.fromhex(embedding), row.astype("<f8").tobytes())

    def thumbnail(self, image: str) -> bytes | None:
        """The thumbnail of an image."""
        return self._read(bytes.fromhex(image), _THUMBNAIL)

    def add_thumbnail(self, image: str, jpeg: bytes) -> None:
        """Store a thumbnail at the next `flush`."""
        self._add(bytes.fromhex(image), _THUMBNAIL, jpeg)

    def flush(self) -> None:
        """Write what was added, and delete old entries if the cache is too large."""
        added, used = self._pending, self._used
        self._pending, self._used = [], []
        if not (added or used):
            return

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)", added)
                connection.executemany("UPDATE entries SET day = ? WHERE image = ? AND embedding = ?", used)
            _make_room(connection)

        self._attempt(write)

    def _read(self, image: bytes, embedding: bytes) -> bytes | None:
        query = "SELECT content, digest, day FROM entries WHERE image = ? AND embedding = ?"
        row = self._attempt(lambda connection: connection.execute(query, (image, embedding)).fetchone())
        if row is None or not isinstance(row[0], bytes) or row[1] != _digest(image, embedding, row[0]):
            return None
        if row[2] != self._day:
            self._used.append((self._day, image, embedding))
        return row[0]

    def _add(self, image: bytes, embedding: bytes, content: bytes) -> None:
        self._pending.append((image, embedding, content, _digest(image, embedding, content), self._day))

    def _attempt(self, action: Callable[[sqlite3.Connection], Any]) -> Any:
        if self._connection is None:
            return None
        try:
            return action(self._connection)
        except sqlite3.OperationalError:
            self._give_up()  # locked by another process, or in a folder that cannot be written
        except (sqlite3.DatabaseError, UnicodeError):  # for some kinds of damage sqlite3 raises other errors
            self._give_up()
            _delete(self._path)
        return None

    def _give_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


def purge(folder: Path | None, images: Iterable[str]) -> None:
    """Delete all entries of images, by their digests; raises if that is not possible."""
    keys = [(bytes.fromhex(image),) for image in images if image]
    if folder is None or not keys:
        return
    _delete(folder / FORMER)

    def delete(connection: sqlite3.Connection) -> None:
        with connection:
            connection.executemany("DELETE FROM entries WHERE image = ?", keys)

    _change(folder, delete)


def clear(folder: Path) -> None:
    """Delete the cache."""
    for name in (FILE, FORMER):
        _delete(folder / name)


def set_limit(folder: Path, limit: int) -> None:
    """Set the size limit of the cache, and apply it now."""
    if limit < 0:
        raise InvalidOptionError(f"The limit of the cache cannot be negative, but got {limit} bytes.")

    def bound(connection: sqlite3.Connection) -> None:
        with connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES ('limit', ?)", (limit,))
        _make_room(connection)
        connection.execute("VACUUM")

    folder.mkdir(parents=True, exist_ok=True)
    _change(folder, bound, create=True)


def usage(folder: Path) -> Usage:
    """What the cache in a folder holds."""
    path = folder / FILE
    count = "SELECT count(DISTINCT image), total(embedding != x''), total(embedding = x'') FROM entries"
    connection = _opened(path, PATIENCE) if path.is_file() else None
    images, features, thumbnails, limit = 0, 0, 0, LIMIT
    if connection is not None:
        try:
            with closing(connection):
                images, features, thumbnails = map(int, connection.execute(count).fetchone())
                limit = _limit(connection)
        except sqlite3.OperationalError:
            pass  # locked by another process since it was opened
        except (sqlite3.DatabaseError, UnicodeError):
            _delete(path)
    return Usage(path, images, features, thumbnails, path.stat().st_size if path.is_file() else 0, limit)


def cache_folder(cache: bool | str | Path) -> Path | None:
    """The folder for the `cache` argument: True means the default folder, False none."""
    if isinstance(cache, bool):
        try:
            return data_root() if cache else None
        except DataError:  # without a home folder nothing is cached
            return None
    return expanded(cache)


def _opened(path: Path, wait: float) -> sqlite3.Connection | None:
    """The database, created if necessary; None if it is locked or not writable."""
    for _ in range(2):  # the second time after a damaged file was deleted
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                _delete(path.with_name(FORMER))
            connection = sqlite3.connect(path, timeout=wait)
        except (sqlite3.OperationalError, OSError):
            return None
        try:
            for statement in _SCHEMA:
                connection.execute(statement)
            return connection
        except sqlite3.OperationalError:
            connection.close()
            return None
        except (sqlite3.DatabaseError, UnicodeError):
            connection.close()
            _delete(path)
    return None


def _change(folder: Path, action: Callable[[sqlite3.Connection], None], create: bool = False) -> None:
    """Make a change that must not fail silently: wait longer for the lock, and raise if that does not help."""
    path = folder / FILE
    if not (create or path.is_file()):
        return
    connection = _opened(path, PATIENCE)
    try:
        if connection is None:
            raise sqlite3.OperationalError("it is locked or cannot be written")
        with closing(connection):
            action(connection)
    except sqlite3.OperationalError as error:
        raise DataError(
            f"The feature cache {path} cannot be changed: {error}. Try again when no other command uses it, or delete "
            f"the file."
        ) from error
    except (sqlite3.DatabaseError, UnicodeError):
        _delete(path)


def _make_room(connection: sqlite3.Connection) -> None:
    """Delete the least recently used entries, a tenth at a time, until the rest fits."""
    limit = _limit(connection)
    while _size(connection) > limit:
        (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
        if not count:
            return
        oldest = "SELECT rowid FROM entries ORDER BY day, rowid LIMIT ?"
        with connection:
            connection.execute(f"DELETE FROM entries WHERE rowid IN ({oldest})", (count // 10 + 1,))


def _size(connection: sqlite3.Connection) -> int:
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def _limit(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM settings WHERE name = 'limit'").fetchone()
    return LIMIT if row is None or not isinstance(row[0], int) else row[0]


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b" ".join(parts), digest_size=16).digest()


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
