"""Files on disk: whole or not at all, one writer at a time, in the folder that the user expects."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from handful import _io
from handful._io import (
    data_root,
    digest,
    file_digest,
    from_json,
    locked,
    parse_json,
    read_bytes,
    read_tensors,
    replacing,
    sweep,
    write_atomically,
    write_errors,
    write_tensors,
)
from handful.errors import CheckpointError, DataError, InvalidOptionError


def test_an_explicit_folder_beats_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path / "environment"))
    assert data_root(tmp_path / "given") == tmp_path / "given"
    assert data_root() == tmp_path / "environment"


@pytest.mark.skipif(sys.platform != "linux", reason="other platforms have other customs")
def test_the_default_is_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HANDFUL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_root() == tmp_path / "handful"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root() == tmp_path / ".cache" / "handful"


def test_a_relative_folder_is_pinned_to_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert data_root("here") == tmp_path / "here"


def test_without_a_home_there_is_still_a_folder() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in {"HANDFUL_DATA", "HOME"}}
    code = "from handful._io import data_root; print(data_root().name)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "handful\n"


# -------------------------------------------------------------------------------------------------------------- writing


def test_a_write_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "below" / "a"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_bytes(b"half")
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not open folders")
def test_what_is_written_is_flushed_before_it_gets_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flushed(handle: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        events.append("folder" if is_folder else f"{os.fstat(handle).st_size} bytes")
        fsync(handle)

    def renamed(old: Path, new: Path) -> None:
        events.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    write_atomically(tmp_path / "a", b"four")
    assert events == ["4 bytes", "rename", "folder"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o440, 0o666])
def test_a_file_keeps_its_mode_and_is_never_readable_to_more_people(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(mode)
    with replacing(path) as temporary:
        temporary.write_bytes(b"new")
        assert stat.S_IMODE(temporary.stat().st_mode) & ~(mode | stat.S_IWUSR) == 0
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_pipe_or_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(InvalidOptionError, match="a device, a pipe or a socket"):
            write_atomically(tmp_path / name, b"new")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_link_stays_a_link_to_the_new_file(tmp_path: Path) -> None:
    path, link = tmp_path / "there" / "a", tmp_path / "link"
    write_atomically(path, b"old")
    link.symlink_to(path)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"


def test_threads_that_write_one_file_at_once_never_tear_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    payloads = [bytes([letter]) * 50_000 for letter in b"abcd"]
    failures: list[BaseException] = []

    def write(payload: bytes) -> None:
        try:
            for _ in range(25):
                write_atomically(path, payload)
                assert path.read_bytes() in payloads
        except BaseException as error:  # handed to the main thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(payload,)) for payload in payloads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_that_a_sweep_is_deleting_is_given_up_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    flock, sweepers = fcntl.flock, []

    def delete_soon(path: Path, handle: int) -> None:
        time.sleep(0.05)  # the writer asks for the lock meanwhile
        path.unlink()
        os.close(handle)

    def sweep_first(handle: int, operation: int) -> None:
        if not sweepers:
            [path] = tmp_path.glob(".a.*.tmp")
            other = os.open(path, os.O_RDWR)
            flock(other, fcntl.LOCK_EX)
            sweepers.append(threading.Thread(target=delete_soon, args=(path, other)))
            sweepers[0].start()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    with replacing(tmp_path / "a") as temporary:
        sweepers[0].join()
        assert temporary.exists()


def test_sweeping_takes_temporaries_of_this_file_only(tmp_path: Path) -> None:
    for name in ("a", "b", ".a.12-x.tmp", ".b.12-x.tmp", ".a.lock"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".a.scratch.tmp").mkdir()
    sweep(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.lock", ".b.12-x.tmp", "a", "b"]


def test_what_the_disk_refuses_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    below = tmp_path / "file" / "a"
    with pytest.raises(DataError, match=r"/a: .*--data or HANDFUL_DATA"), write_errors(below):
        write_atomically(below, b"")
    with pytest.raises(EOFError), write_errors(below):
        raise EOFError("not an error of the disk")


# ---------------------------------------------------------------------------------------------------------------- locks


def test_a_lock_is_held_against_other_processes_and_dropped_when_they_die(tmp_path: Path) -> None:
    path = tmp_path / "a"
    code = (
        "import sys\nfrom pathlib import Path\nfrom handful._io import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        waited = []

        def waiting() -> None:
            waited.append("waited")
            other.kill()

        with locked(path, waiting):
            assert waited == ["waited"]


# -------------------------------------------------------------------------------------------------------------- digests


def test_digests_are_those_of_hashlib(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"abc" * 100_000)
    assert digest(path.read_bytes()) == file_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert file_digest(path, "md5") == hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


# -------------------------------------------------------------------------------------------------------------- reading


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [_pipe, Path.mkdir], ids=["pipe", "folder"])
def test_what_is_not_a_regular_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "odd")
    with pytest.raises(DataError, match="is not a regular file"):
        read_bytes(tmp_path / "odd", 100)


def test_a_device_is_refused_and_a_large_sparse_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a regular file"):
        read_bytes("/dev/zero", 100)
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)  # reading it would exhaust memory
    with pytest.raises(DataError, match="1 MB"):
        read_bytes(tmp_path / "sparse", 1 << 20)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 40 + "]" * 40,
        "9" * 5_000,
        "9" * 400,
        "1e999",
        "-Infinity",
        "NaN",
        '{"a": [18446744073709551616]}',
        b'"\xff"',
        b"\x00",
        "",
    ],
    ids=["deep", "deeper-than-ours", "digits", "long", "overflow", "infinity", "nan", "65-bits", "0xff", "nul", "none"],
)
def test_hostile_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (any: messages differ)
        parse_json(text)


def test_plain_json_is_read_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "ü"], "b": {"c": -(2**63)}}
    assert parse_json(json.dumps(value)) == value


# -------------------------------------------------------------------------------------------------------------- tensors


def _tensors() -> dict[str, torch.Tensor]:
    return {
        "weights": torch.arange(6.0).reshape(2, 3).T,
        "step": torch.tensor(3.0),
        "none": torch.zeros(0, 4, dtype=torch.int64),
        "flags": torch.tensor([True, False]),
    }


def test_tensors_and_facts_come_back_and_equal_ones_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tensors(tmp_path / name, _tensors(), {"format": 1, "lam": 0.1, "names": ["ü"]})
    tensors, facts = read_tensors(tmp_path / "a")
    assert facts == {"format": 1, "lam": 0.1, "names": ["ü"]}
    assert all(torch.equal(tensors[name], value) for name, value in _tensors().items())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("limit", ["MOST_TENSORS", "MOST_HEADER"])
def test_a_file_that_is_too_large_to_be_read_back_is_not_written(
    tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write_tensors(path, {"a": torch.ones(2)}, {})
    before = path.read_bytes()
    monkeypatch.setattr(_io, limit, len(before))
    with pytest.raises(InvalidOptionError, match=r"/a was not written"):
        write_tensors(path, {"a": torch.ones(999)}, {"names": ["bee"] * 999})
    assert path.read_bytes() == before


def test_a_flipped_bit_is_noticed_in_whatever_byte_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_tensors(path, {"a": torch.arange(3.0)}, {"lam": 0.25})
    whole, read = path.read_bytes(), []
    for byte in range(len(whole)):
        damaged = bytearray(whole)
        damaged[byte] ^= 1 << byte % 8
        path.write_bytes(damaged)
        try:
            tensors, facts = read_tensors(path)
        except CheckpointError:
            continue
        read.append(byte)  # the name of the checksum itself was hit: nothing else can be
        assert torch.equal(tensors["a"], torch.arange(3.0))
        assert facts["lam"] == 0.25
    assert len(read) <= len("sha256")


def test_a_file_without_a_checksum_is_read_as_before(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(save({"a": torch.ones(2)}, metadata={"handful": '{"format": 1}'}))
    tensors, facts = read_tensors(tmp_path / "old")
    assert torch.equal(tensors["a"], torch.ones(2))
    assert facts == {"format": 1}


@pytest.mark.parametrize("size", [0, 7, 8, 100, -1, 1 << 40], ids=str)
def test_a_file_of_another_length_is_refused_before_it_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a"
    write_tensors(path, _tensors(), {})
    with path.open("r+b") as file:
        file.truncate(size if size >= 0 else path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=r"/a .*safetensors"):
        read_tensors(path)


def test_a_reader_sees_one_version_while_a_writer_replaces_the_file(tmp_path: Path) -> None:
    path, stop = tmp_path / "a", threading.Event()

    def version(number: int) -> None:
        size = 1 + number % 50  # so that a header does not fit another version's tensors
        write_tensors(path, {"a": torch.full((size,), float(number))}, {"number": number})

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            version(number)

    version(0)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = set()
        for _ in range(2_000):
            tensors, facts = read_tensors(path)
            assert tensors["a"].tolist() == [float(facts["number"])] * (1 + facts["number"] % 50)
            seen.add(facts["number"])
    finally:
        stop.set()
        writer.join()
    assert len(seen) > 1


# ---------------------------------------------------------------------------------------------------------- temporaries


def test_the_next_write_removes_what_a_killed_one_left_and_spares_a_living_writer(tmp_path: Path) -> None:
    path, stale = tmp_path / "a[1]", tmp_path / ".a[1].123-abcd.tmp"
    stale.write_bytes(b"private")
    with replacing(path) as living:
        living.write_bytes(b"first")
        write_atomically(path, b"second")
        assert living.exists()
        assert not stale.exists()
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_read_by_type(tmp_path: Path) -> None:
    kind = dict[str, tuple[int, ...] | float | None]
    assert from_json(kind, {"a": [1, 2], "b": 3, "c": None}, "it") == {"a": (1, 2), "b": 3, "c": None}
    for wrong in ({"a": "1"}, {"a": [1.5]}, {"a": True}, [], 3):
        with pytest.raises(ValueError, match=r"^it\b"):
            from_json(kind, wrong, "it")
