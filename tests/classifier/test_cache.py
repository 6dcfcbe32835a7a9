"""The cache of features: never slow, never wrong, never full, and without a trace of what was forgotten."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from handful.classifier import FewShotClassifier, ImageEmbedding, cache
from handful.classifier.cache import FILE, FORMER, Store, clear, purge, set_limit, usage
from handful.errors import DataError, InvalidOptionError
from tests.classifier.drawings import SHAPES, drawing, encoded, write_folder

IMAGE, OTHER, EMBEDDING = "aa" * 32, "bb" * 32, "cc" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 4))


def pixels(images: Tensor) -> Tensor:
    return images.flatten(1)[:, ::3]


EMBED = ImageEmbedding(pixels, size=16, name="pixels")


def test_a_locked_cache_is_waited_for_once(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    connect = sqlite3.connect

    def counted(path: Path, timeout: float) -> sqlite3.Connection:
        waits.append(timeout)
        return connect(path, timeout=0)

    monkeypatch.setattr(cache.sqlite3, "connect", counted)
    with Store(tmp_path):
        pass
    with closing(connect(tmp_path / FILE)) as other:
        other.execute("BEGIN EXCLUSIVE")
        waits.clear()
        FewShotClassifier(EMBED, cache=tmp_path).fit(folder)
        assert waits == [cache.WAIT]  # for one batch of 16 images, read and written
        assert cache.WAIT <= 1
        with pytest.raises(DataError, match="cannot be changed"):
            purge(tmp_path, [IMAGE])


def test_a_cache_that_is_locked_while_it_is_open_is_given_up(tmp_path: Path) -> None:
    """Otherwise each of a thousand images would wait for the lock."""
    with Store(tmp_path) as store:
        store.add_features(EMBEDDING, {IMAGE: np.ones(3)})
    with Store(tmp_path, wait=0) as store, closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert store.features(EMBEDDING, IMAGE) is None
        other.rollback()
        assert store.features(EMBEDDING, IMAGE) is None
    with Store(tmp_path) as store:
        assert store.features(EMBEDDING, IMAGE) is not None


@pytest.mark.parametrize("content", [b"", b"1234567", np.full(3, np.nan).tobytes(), "text", 7, None])
def test_wrong_rows_are_computed_again(tmp_path: Path, folder: Path, content: object) -> None:
    whole = FewShotClassifier(EMBED, cache=tmp_path).fit(folder)
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute(
            "CREATE TABLE other AS SELECT image, embedding, ? AS content, digest, day FROM entries", [content]
        )
        connection.execute("DROP TABLE entries")
        connection.execute("ALTER TABLE other RENAME TO entries")
    again = FewShotClassifier(EMBED, cache=tmp_path).fit(folder)
    np.testing.assert_array_equal(again.predict_proba(folder), whole.predict_proba(folder))


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add_features(EMBEDDING, {IMAGE: np.arange(4.0)})
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, connection:
        connection.execute("UPDATE entries SET content = ?", [np.arange(1.0, 5.0).tobytes()])
    with Store(tmp_path) as store:
        assert store.features(EMBEDDING, IMAGE) is None


def test_what_is_forgotten_leaves_no_byte(tmp_path: Path, folder: Path) -> None:
    clf = FewShotClassifier(EMBED, cache=tmp_path / "cache").fit(folder)
    rows = {i: clf.transform(source.name)[0].astype("<f8").tobytes() for i, source in enumerate(clf._state.sources)}
    thumbnails = [source.thumbnail for source in clf._state.sources]
    before = (tmp_path / "cache" / FILE).read_bytes()
    assert all(rows[i] in before and thumbnails[i] in before for i in range(16))
    clf.forget(index=[0, 5])
    after = b"".join(path.read_bytes() for path in (tmp_path / "cache").iterdir())
    for i in range(16):
        assert (rows[i] in after, thumbnails[i] in after) == ((False, False) if i in (0, 5) else (True, True))


def test_what_is_deleted_is_overwritten_where_sqlite_does_not_do_so_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def careless(path: Path, timeout: float) -> sqlite3.Connection:
        connection = connect(path, timeout=timeout)
        connection.execute("PRAGMA secure_delete = OFF")
        return connection

    monkeypatch.setattr(cache.sqlite3, "connect", careless)
    with Store(tmp_path) as store:
        store.add_features(EMBEDDING, {IMAGE: np.arange(1.0, 50.0)})
    assert np.arange(1.0, 50.0).tobytes() in (tmp_path / FILE).read_bytes()
    purge(tmp_path, [IMAGE])
    assert np.arange(1.0, 50.0).tobytes() not in (tmp_path / FILE).read_bytes()


def test_predictions_store_no_thumbnails(tmp_path: Path, folder: Path) -> None:
    clf = FewShotClassifier(EMBED, cache=False).fit(folder)
    clf.cache = tmp_path / "cache"
    clf.predict(folder)
    clf.score(folder)
    held = usage(tmp_path / "cache")
    assert (held.images, held.features, held.thumbnails) == (16, 16, 0)


def test_without_thumbnails_none_is_made_even_when_the_file_learns_more(tmp_path: Path, folder: Path) -> None:
    cache, file = tmp_path / "cache", tmp_path / "a.handful"
    FewShotClassifier(EMBED, cache=cache, thumbnails=False).fit(folder).save(file)
    clf = FewShotClassifier.load(file, embedding=EMBED, cache=cache)
    clf.partial_fit([encoded(drawing(SHAPES[0], 201))], [SHAPES[0]])
    held = usage(cache)
    assert (held.images, held.thumbnails) == (17, 0)
    assert not clf.has_thumbnails_


def test_the_cache_is_private_and_the_former_one_goes(tmp_path: Path) -> None:
    (tmp_path / FORMER).write_bytes(b"thumbnails of former times")
    with Store(tmp_path) as store:
        store.add_thumbnail(IMAGE, b"jpeg")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert not (tmp_path / FORMER).exists()


def test_the_cache_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:064x}" for number in range(100)]
    set_limit(tmp_path, 200_000)
    with Store(tmp_path) as store:
        store.add_features(EMBEDDING, {name: np.full(1000, 1.0) for name in names[:15]})
    monkeypatch.setattr(cache.time, "time", lambda: 4e9)  # another day, on which the first was used again
    with Store(tmp_path) as store:
        assert store.features(EMBEDDING, names[0]) is not None
    with Store(tmp_path) as store:
        for name in names[15:]:
            store.add_features(EMBEDDING, {name: np.full(1000, 1.0)})
            store.flush()
        held = usage(tmp_path)
        assert held.limit == 200_000
        assert held.size < 250_000  # pages of the last write
        assert store.features(EMBEDDING, names[1]) is None
        assert store.features(EMBEDDING, names[99]) is not None
    set_limit(tmp_path, 0)
    assert usage(tmp_path).images == 0
    clear(tmp_path)
    assert not (tmp_path / FILE).exists()
    with pytest.raises(InvalidOptionError, match="negative"):
        set_limit(tmp_path, -1)


def test_the_usage_of_a_damaged_cache_is_that_of_none(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.add_features(EMBEDDING, {f"{number:064x}": np.ones(100) for number in range(100)})
    content = bytearray((tmp_path / FILE).read_bytes())
    content[3 * 4096 :] = b"\xff" * (len(content) - 3 * 4096)  # the schema can be read, but not all rows
    (tmp_path / FILE).write_bytes(content)
    assert usage(tmp_path) == cache.Usage(tmp_path / FILE, 0, 0, 0, 0, cache.LIMIT)
    assert not (tmp_path / FILE).exists()
