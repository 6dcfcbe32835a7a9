from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pytest
import torch

from handful.data import store as stores
from handful.data.store import (
    ALIGNMENT,
    PREFIX,
    UNHASHED,
    Header,
    check_store,
    open_benchmark,
    open_table,
    read_header,
    write_store,
)
from handful.data.table import ImageTable
from handful.errors import DataError

HEADER = Header(
    name="toy",
    classes=("a", "b", "c", "d"),
    counts=(3, 1, 2, 4),
    shape=(5, 4, 3),
    splits={
        "first": {"train": ((0, 2),), "val": ((2, 1),), "test": ((3, 1),)},
        "second": {"train": ((0, 1), (3, 1)), "val": (), "test": ((1, 2),)},
    },
    groups=("x", "x", "y", "y"),
    source="nowhere",
)
PIXELS = np.random.default_rng(0).integers(0, 256, (10, 5, 4, 3), dtype=np.uint8)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "toy.pack"
    write_store(path, HEADER, [PIXELS[:4], PIXELS[4:]])
    return path


def test_a_table_has_the_images_classes_and_groups_that_were_written(store: Path) -> None:
    header, table = open_table(store)
    assert np.array_equal(table.images.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert (table.classes, table.counts, table.groups) == (HEADER.classes, HEADER.counts, HEADER.groups)
    assert header == replace(HEADER, content=header.content)


def test_the_images_are_a_view_of_the_memory_map(store: Path) -> None:
    _, table = open_table(store)
    assert table.images.is_contiguous(memory_format=torch.channels_last)
    assert str(store) in Path("/proc/self/maps").read_text()


def test_writing_to_the_view_never_reaches_the_file(store: Path) -> None:
    before = store.read_bytes()
    _, table = open_table(store)
    table.images.zero_()
    assert store.read_bytes() == before


def test_the_pixels_begin_at_a_page_and_the_header_is_json(store: Path) -> None:
    data = store.read_bytes()
    _, length, _ = PREFIX.unpack(data[: PREFIX.size])
    assert json.loads(data[PREFIX.size : PREFIX.size + length])["classes"] == ["a", "b", "c", "d"]
    assert read_header(store)[1] % ALIGNMENT == 0
    assert data[read_header(store)[1] :] == PIXELS.tobytes()


def test_splits_open_by_name_and_the_first_is_the_default(store: Path) -> None:
    benchmark = open_benchmark(store)
    assert benchmark.name == "toy"
    assert (benchmark.train.classes, benchmark.val.classes, benchmark.test.classes) == (("a", "b"), ("c",), ("d",))
    assert benchmark.train.images.data_ptr() == benchmark.train.table.images.data_ptr()
    second = open_benchmark(store, "second")
    assert second.name == "toy/second"
    assert (second.train.classes, len(second.val), second.test.classes) == (("a", "d"), 0, ("b", "c"))
    assert torch.equal(second.train.images, torch.from_numpy(PIXELS[[0, 1, 2, 6, 7, 8, 9]]).permute(0, 3, 1, 2))
    with pytest.raises(DataError, match=r"'toy' .*'third'.*first, second"):
        open_benchmark(store, "third")


def test_the_hash_covers_pixels_classes_and_splits_but_not_the_origin(tmp_path: Path) -> None:
    def content(header: Header, pixels: np.ndarray) -> str:
        return write_store(tmp_path / "x.pack", header, [pixels]).content

    reference = content(HEADER, PIXELS)
    assert reference != UNHASHED
    assert content(replace(HEADER, source="elsewhere", name="other"), PIXELS) == reference
    assert content(HEADER, PIXELS[::-1]) != reference
    assert content(replace(HEADER, classes=("a", "b", "c", "e")), PIXELS) != reference
    assert content(replace(HEADER, splits={"first": HEADER.splits["first"]}), PIXELS) != reference


def test_check_passes_a_whole_store_and_finds_a_single_flipped_bit(store: Path) -> None:
    assert check_store(store) == read_header(store)[0]
    data = bytearray(store.read_bytes())
    data[-7] ^= 1
    store.write_bytes(data)
    read_header(store)
    with pytest.raises(DataError, match=r"hash.*handful data remove toy"):
        check_store(store)


@pytest.mark.parametrize("keep", [0, 10, 30, 200, 4096, 4200])
def test_a_truncated_store_is_refused(store: Path, keep: int) -> None:
    store.write_bytes(store.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"damaged|not a data set"):
        open_table(store)


def test_a_store_with_bytes_too_many_is_refused(store: Path) -> None:
    with store.open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"\d+ bytes.* \d+"):
        open_table(store)


def test_every_byte_of_the_header_is_guarded(store: Path) -> None:
    data = store.read_bytes()
    _, length, _ = PREFIX.unpack(data[: PREFIX.size])
    for at in range(0, PREFIX.size + length, 7):
        damaged = bytearray(data)
        damaged[at] ^= 4
        store.write_bytes(damaged)
        with pytest.raises(DataError):
            read_header(store)


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "photo.pack"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(5000))
    with pytest.raises(DataError, match=r"photo\.pack .*handful data remove photo"):
        open_table(path)


def test_a_newer_format_is_refused_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "toy.pack"
    write_store(path, replace(HEADER, format=2), [PIXELS])
    with pytest.raises(DataError, match=r"format 2.*reads format 1"):
        read_header(path)


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="No such file"):
        open_table(tmp_path / "none.pack")


@pytest.mark.parametrize("chunks", [[PIXELS[:9]], [PIXELS, PIXELS], [PIXELS[:, :4]], [PIXELS.astype(float)]])
def test_a_failed_write_leaves_the_old_store_and_no_other_file(store: Path, chunks: list[np.ndarray]) -> None:
    before = hashlib.sha256(store.read_bytes()).digest()
    with pytest.raises(DataError):
        write_store(store, HEADER, chunks)
    assert hashlib.sha256(store.read_bytes()).digest() == before
    assert list(store.parent.iterdir()) == [store]


def test_a_source_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    def chunks() -> object:
        yield PIXELS[:4]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_store(tmp_path / "toy.pack", HEADER, chunks())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_replaced_stays_readable_to_those_who_have_it_open(store: Path) -> None:
    _, table = open_table(store)
    write_store(store, HEADER, [255 - PIXELS])
    assert np.array_equal(table.images.permute(0, 2, 3, 1).numpy(), PIXELS)
    assert np.array_equal(open_table(store)[1].images.permute(0, 2, 3, 1).numpy(), 255 - PIXELS)


def test_a_store_can_be_moved(store: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere" / "renamed.pack"
    moved.parent.mkdir()
    shutil.move(store, moved)
    assert check_store(moved).name == "toy"


def test_a_split_that_repeats_classes_is_refused_before_they_are_counted_out(tmp_path: Path) -> None:
    many = {"train": ((0, 4),) * 2_000, "val": (), "test": ()}
    write_store(tmp_path / "x.pack", replace(HEADER, splits={"first": many}), [PIXELS])
    with pytest.raises(DataError, match=r"x\.pack .*class.* twice"):
        open_benchmark(tmp_path / "x.pack")


@pytest.mark.parametrize("read", [open_table, check_store])
def test_header_and_pixels_are_of_one_version(
    read: Callable[[Path], object], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process replaces the file after its header was read."""
    parse = stores.parse_header
    larger = replace(HEADER, counts=(3, 1, 2, 5))

    def slowly(file: BinaryIO, path: Path) -> tuple[Header, int]:
        found = parse(file, path)
        write_store(path, larger, [255 - PIXELS, PIXELS[:1]])
        return found

    monkeypatch.setattr(stores, "parse_header", slowly)
    found = read(store)
    if read is open_table:
        _, table = cast("tuple[Header, ImageTable]", found)
        assert torch.equal(table.images, torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    assert store.stat().st_size > 0
