"""A lock on a folder names its holder, is given up with its process, and can be waited for."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from handful.meta.lock import HOLDER, BusyError, held, holder, is_held


def test_a_lock_names_its_holder_and_is_free_afterwards(tmp_path: Path) -> None:
    assert not is_held(tmp_path)
    with held(tmp_path):
        assert is_held(tmp_path)
        with pytest.raises(BusyError, match=f"process {os.getpid()} "), held(tmp_path):
            pass
    assert not is_held(tmp_path)
    assert holder(tmp_path) == "another process"
    with held(tmp_path):
        pass


def test_a_folder_that_does_not_exist_is_made_and_cleared_of_what_a_killed_process_left(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    with held(folder):
        (folder / ".log.1-ab.tmp").write_bytes(b"half")
    with held(folder):
        assert not list(folder.glob("*.tmp"))
        assert json.loads((folder / HOLDER).read_text()) == {"pid": os.getpid(), "host": platform.node()}
    assert not (folder / HOLDER).exists()


def test_a_lock_ends_with_its_process_however_it_ends(tmp_path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from handful.meta.lock import held\n"
    script += "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read(1); os._exit(9)"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert is_held(tmp_path)
    assert holder(tmp_path) == f"process {process.pid} on {platform.node()}"
    process.communicate("x")
    assert not is_held(tmp_path)
    assert holder(tmp_path).startswith(f"process {process.pid}")  # the last one, which could not sign off
    with held(tmp_path):
        assert holder(tmp_path).startswith(f"process {os.getpid()}")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"pid": 4}'])
def test_a_holder_that_cannot_be_read_is_another_process(tmp_path: Path, content: bytes) -> None:
    (tmp_path / HOLDER).write_bytes(content)
    assert holder(tmp_path) == "another process"
    assert not is_held(tmp_path)


def test_a_block_that_fails_gives_the_lock_up(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on purpose"), held(tmp_path):
        raise ValueError("on purpose")
    assert not is_held(tmp_path)


def test_a_lock_that_is_waited_for_comes_after_the_other_block(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with held(tmp_path, wait=True):
            order.append("second")

    with held(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
