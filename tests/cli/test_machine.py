"""Printing that is safe: no orders to the terminal, and streams that may be closed, full or of another encoding."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from handful.cli.machine import note, plain, plain_output, prepare_streams


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a heron", "a heron"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("\x07\x7f\x9b", "\\u0007\\u007f\\u009b"),
        ("\u202eevil", "\\u202eevil"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
        ("été 鷺", "été 鷺"),
    ],
)
def test_a_terminal_gets_no_orders_from_names(text: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plain(text) == shown
    with plain_output():
        sys.stdout.write(text)
    note(text)
    said = capsys.readouterr()
    assert said.out == shown
    assert said.err == f"{shown}\n"


def test_output_is_flushed_at_the_end_and_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, write_through=False)
    monkeypatch.setattr("sys.stdout", stream)
    with plain_output():
        sys.stdout.write("done\n")
        assert sys.stdout is not stream
        assert sys.stdout.encoding == stream.encoding  # all but writing is the stream's own
    assert sys.stdout is stream
    assert raw.getvalue() == b"done\n"


def test_characters_that_the_encoding_lacks_are_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii"))
    prepare_streams()
    sys.stdout.write("été\n")
    sys.stdout.flush()
    assert raw.getvalue() == rb"\xe9t\xe9" + b"\n"


def run_closed(code: str) -> bytes:
    """What a process writes to standard error that was started with standard input and output closed."""
    words = [sys.executable, "-c", f"import os, sys\nfrom handful.cli.machine import *\n{code}"]
    done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&-', "sh", *words], stderr=subprocess.PIPE, check=False)
    return done.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
def test_streams_that_were_closed_are_opened_so_that_no_file_gets_their_number() -> None:
    code = "prepare_streams(); print('lost'); sys.stdout.flush(); print(open(os.devnull).fileno() > 2, file=sys.stderr)"
    assert run_closed(code) == b"True\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_a_full_disk_refuses_is_not_tried_again_at_the_end() -> None:
    code = "from handful.cli.machine import drop_output; print('lost'); drop_output()"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, check=False, env=buffered
        )
    assert (done.returncode, done.stderr) == (0, b"")
