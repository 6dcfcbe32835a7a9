"""The engine keeps freed memory in the process, and shares the passes of an update evenly or not at all."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from handful.errors import InvalidOptionError
from handful.meta import engine
from handful.meta.config import Plan
from tests.meta import shared_run

WORK = """
import resource, sys, torch
from handful.meta.engine import keep_freed_memory
if sys.argv[1] == "kept":
    print(keep_freed_memory())
def work():
    torch.zeros(16 * 2**20).add_(1)  # 64 MB, written
for _ in range(40):  # small blocks left behind large ones move the next large one, a few times
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def answers(mode: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", WORK, mode], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(not engine.keep_freed_memory(), reason="this system does not use glibc")
def test_freed_blocks_are_reused_without_new_pages() -> None:
    (faults,) = answers("default")
    told, faults_kept = answers("kept")
    assert told == "True"
    assert int(faults) > 5 * 1000  # five times 64 MB in pages of 4 kB, or of 64 kB at most
    assert int(faults_kept) < 100


def test_another_operating_system_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.sys, "platform", "darwin")
    assert engine.keep_freed_memory() is False


def test_a_c_library_that_is_not_glibc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.ctypes, "CDLL", lambda name: object())
    assert engine.keep_freed_memory() is False


def test_a_number_of_processes_that_does_not_divide_the_episodes_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidOptionError, match=r"4 passes .*3 processes"):
        shared_run.run_in(tmp_path / "run", engine.Engine(rank=1, world=3))
    assert not (tmp_path / "run").exists()


def test_a_compiled_embedding_that_would_share_one_episode_is_refused(tmp_path: Path) -> None:
    recipe = replace(shared_run.RECIPE, plan=Plan(episodes=2))
    with pytest.raises(InvalidOptionError, match="Leave out --compile"):
        shared_run.run_in(tmp_path / "run", engine.Engine(rank=0, world=2, compiled=True), recipe)
