from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from handful.data import download
from handful.data.download import Remote, fetch
from handful.errors import DataError
from tests.data.web import Web

BODY = random.Random(0).randbytes(200_000)


@pytest.fixture(autouse=True)
def served(web: Web) -> None:
    web.files["file.zip"] = BODY


def remote(web: Web, *behaviours: str) -> Remote:
    mirrors = tuple(f"{web.at(behaviour)}/file.zip" for behaviour in behaviours)
    return Remote("file.zip", mirrors, hashlib.md5(BODY, usedforsecurity=False).hexdigest())


def ranges(web: Web) -> list[str | None]:
    return [wanted for _, wanted in web.requests]


def test_a_good_server_gives_the_file(web: Web, tmp_path: Path) -> None:
    path = fetch(remote(web, "good"), tmp_path / "new" / "folder")
    assert path.read_bytes() == BODY
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_there_is_not_fetched_again(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_bytes(BODY)
    fetch(remote(web, "good"), tmp_path)
    assert web.requests == []


def test_a_wrong_file_that_is_there_is_replaced(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_bytes(b"old")
    assert fetch(remote(web, "good"), tmp_path).read_bytes() == BODY


def test_a_broken_transfer_is_resumed_where_it_broke(web: Web, tmp_path: Path) -> None:
    assert fetch(remote(web, "cut"), tmp_path).read_bytes() == BODY
    assert ranges(web) == [None, "bytes=100000-"]


def test_what_an_earlier_run_left_is_resumed(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY[:50_000])
    assert fetch(remote(web, "good"), tmp_path).read_bytes() == BODY
    assert ranges(web) == ["bytes=50000-"]


def test_a_server_that_cannot_resume_sends_all_again(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY[:50_000])
    assert fetch(remote(web, "norange"), tmp_path).read_bytes() == BODY


def test_a_server_that_resumes_elsewhere_is_not_believed(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY[:50_000])
    assert fetch(remote(web, "elsewhere", "good"), tmp_path).read_bytes() == BODY
    assert web.requests[-1] == ("good", "bytes=50000-")


@pytest.mark.parametrize("left", [b"x" * 300, BODY[:999] + b"x", b"x" * 300_000, BODY + b"x"])
def test_a_foreign_beginning_is_thrown_away(left: bytes, web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(left)
    assert fetch(remote(web, "good"), tmp_path).read_bytes() == BODY
    assert ranges(web)[-1] is None


def test_a_complete_leftover_needs_no_more_bytes(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY)
    assert fetch(remote(web, "good"), tmp_path).read_bytes() == BODY


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("html", "web page"),
        ("wrong", "wrong checksum"),
        ("shorter", "wrong checksum"),
        ("missing", "answered 404"),
        ("stall", "stalled after 66666 bytes"),
        ("silent", r"no answer within 0\.3 seconds"),
        ("alwayscut", r"broke off after 300 of 200000 bytes"),
    ],
)
def test_a_bad_server_is_a_clear_error_and_the_next_mirror_helps(
    behaviour: str, reason: str, web: Web, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"file\.zip.*{reason}.*--from"):
        fetch(remote(web, behaviour), tmp_path, timeout=0.3)
    assert not (tmp_path / "file.zip").exists()
    assert fetch(remote(web, behaviour, "good"), tmp_path, timeout=0.3).read_bytes() == BODY


def test_a_server_that_promises_too_much_but_sends_all_is_good_enough(web: Web, tmp_path: Path) -> None:
    assert fetch(remote(web, "longer"), tmp_path).read_bytes() == BODY


def test_a_stalled_transfer_is_kept_for_the_next_mirror(web: Web, tmp_path: Path) -> None:
    assert fetch(remote(web, "stall", "good"), tmp_path, timeout=0.3).read_bytes() == BODY
    assert web.requests[-1] == ("good", "bytes=66666-")


def test_a_dead_mirror_costs_nothing_that_was_there(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file.zip.part").write_bytes(BODY[:50_000])
    nowhere = "http://127.0.0.1:9/file.zip"
    fetched = fetch(Remote("file.zip", (nowhere, *remote(web, "good").mirrors), remote(web).md5), tmp_path)
    assert fetched.read_bytes() == BODY
    assert ranges(web) == ["bytes=50000-"]


def test_an_endless_answer_is_cut_off(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "MAX_BYTES", 1 << 20)
    with pytest.raises(DataError, match=r"file\.zip.*\b1 MB"):
        fetch(remote(web, "endless"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_own_mirrors_come_first(web: Web, tmp_path: Path) -> None:
    fetch(remote(web, "missing"), tmp_path, mirrors=[web.at("good") + "/"])
    assert [behaviour for behaviour, _ in web.requests] == ["good"]


@pytest.mark.parametrize("address", ["nonsense", "ftp:///nowhere", "http://", "http://no host/"])
def test_an_address_that_makes_no_sense_is_a_clear_error(address: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"file\.zip.*--from"):
        fetch(Remote("file.zip", (address,), ""), tmp_path, timeout=2)


def test_a_full_disk_is_a_clear_error_and_gives_its_room_back(web: Web, tmp_path: Path) -> None:
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from handful.data.download import Remote, fetch\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        f"fetch({remote(web, 'good')!r}, Path({str(tmp_path)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert "DataError: No room to write" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_a_clear_error(web: Web, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match="Cannot write"):
        fetch(remote(web, "good"), tmp_path / "file" / "below")


def test_a_mirror_that_drips_is_left_for_the_next(web: Web, tmp_path: Path) -> None:
    path = fetch(remote(web, "drip", "good"), tmp_path, timeout=0.2)  # each read returns in time, the file never would
    assert path.read_bytes() == BODY
    assert web.tries["drip"] >= 1
    with pytest.raises(DataError, match=r"the transfer (is too slow|stalled)"):
        fetch(remote(web, "drip"), tmp_path / "other", timeout=1.0)


def test_a_busy_server_is_asked_again_when_it_says_so(web: Web, tmp_path: Path) -> None:
    assert fetch(remote(web, "busy"), tmp_path).read_bytes() == BODY
    assert web.tries["busy"] == 2


@pytest.mark.parametrize(("length", "size"), [("12", 17), ("", None), ("-1", None), ("\u00b2", None)])
def test_only_a_plain_number_is_a_promised_length(length: str, size: int | None) -> None:
    response = SimpleNamespace(headers={"Content-Length": length})
    assert download.promised(response, 5) == size
