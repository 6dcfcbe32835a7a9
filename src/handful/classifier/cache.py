"""A cache of embeddings on disk, by content: an image that was embedded once is not embedded again."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from handful._io import data_root
from handful.classifier.inputs import Matrix

FILE = "embeddings.sqlite"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, features BLOB NOT NULL, thumbnail BLOB NOT NULL)"
)
_READ = "SELECT features, thumbnail FROM embeddings WHERE key = ?"
_WRITE = "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)"


@dataclass(frozen=True)
class Stored:
    """The features and the thumbnail of one image."""

    features: Matrix
    thumbnail: bytes


@dataclass(frozen=True)
class Store:
    """One SQLite file: several processes may use it at once, and a write happens whole or not at all.

    Everything in it can be computed again, so a damaged file is deleted, and a locked or read-only one is skipped.
    """

    folder: Path

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Stored]:
        """The entries for these keys, as far as there are any."""
        found: dict[bytes, Stored] = {}

        def look_up(connection: sqlite3.Connection) -> None:
            for key in keys:
                for features, thumbnail in connection.execute(_READ, (key,)):
                    found[key] = Stored(np.frombuffer(features, dtype="<f8"), thumbnail)

        self._attempt(look_up)
        return found

    def write(self, entries: Mapping[bytes, Stored]) -> None:
        """Add entries, or replace those with the same keys."""
        rows = [(key, entry.features.astype("<f8").tobytes(), entry.thumbnail) for key, entry in entries.items()]

        def insert(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany(_WRITE, rows)

        self._attempt(insert)

    def _attempt(self, action: Callable[[sqlite3.Connection], None]) -> None:
        path = self.folder / FILE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=30)) as connection:
                connection.execute(_CREATE)
                action(connection)
        except (sqlite3.OperationalError, OSError):
            return  # locked by another process, or in a folder that cannot be written
        except sqlite3.DatabaseError:
            path.unlink(missing_ok=True)  # damaged


def cache_folder(cache: bool | str | Path) -> Path | None:
    """The folder of the cache that a user asked for: True for the usual one, False for none."""
    if isinstance(cache, bool):
        return data_root() if cache else None
    return Path(cache).expanduser()


def key_of(embedder_digest: str, content_digest: str) -> bytes:
    """The key of one image under one embedding."""
    return hashlib.sha256(f"{embedder_digest} {content_digest}".encode()).digest()
