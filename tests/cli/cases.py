"""Commands as words, in this process and in one of their own, and settings that train in seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from handful.cli import test as testing
from handful.cli.data import Cache
from handful.cli.fit import Add, Fit, Forget
from handful.cli.predict import Predict
from handful.cli.test import Inspect

COMMANDS: dict[str, Any] = {
    "fit": Fit,
    "predict": Predict,
    "test": testing.Test,
    "add": Add,
    "forget": Forget,
    "inspect": Inspect,
    "cache": Cache,
}
Handful = Callable[..., tuple[int, str]]
"""Runs a command from its words; gives the exit code and what it printed."""

SMALL = ["--data", "glyphs", "--width", "32C", "--way", "5", "--images-per-class", "6", "--max-shot", "3"]
QUICK = [*SMALL, "--val-episodes", "20", "--validate-every", "20", "--threads", "1"]


def run_handful(*words: str | Path, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "handful", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    if check is not None:
        assert done.returncode == check, done.stderr
    return done


def wait_for(condition: object, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < end, "the run did not get far enough to be stopped"
        time.sleep(0.02)
