"""Files on disk: whole or not at all, one writer at a time, in the folder that the user expects."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from handful._io import data_root, digest, file_digest, locked, replacing, sweep, write_atomically, write_errors
from handful.errors import DataError


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


def test_sweeping_takes_temporaries_of_this_file_only(tmp_path: Path) -> None:
    for name in ("a", "b", ".a.12-x.tmp", ".b.12-x.tmp", ".a.lock"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".a.scratch.tmp").mkdir()
    sweep(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.lock", ".b.12-x.tmp", "a", "b"]


def test_what_the_disk_refuses_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    below = tmp_path / "file" / "a"
    with pytest.raises(DataError, match=r"Cannot write .*--data or HANDFUL_DATA"), write_errors(below):
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
