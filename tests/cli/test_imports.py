"""Help, lists and mistakes answer at once: they import no library that takes long to load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ["torch", "sklearn", "scipy", "matplotlib", "jinja2", "safetensors"]
SCRIPT = f"""
import contextlib, io, sys
import handful
from handful.cli import main
for words in {{commands}}:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(words)
    loaded = [name for name in {HEAVY} if name in sys.modules]
    if loaded:
        sys.exit(f"handful {{{{words}}}} imports {{{{loaded}}}}")
"""


def test_commands_that_need_no_torch_do_not_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path))
    commands = [
        [],
        ["--version"],
        ["--help"],
        ["train", "--help"],
        ["fit"],
        ["nonsense"],
        ["recipes"],
        ["data", "list"],
    ]
    script = SCRIPT.format(commands=commands)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
