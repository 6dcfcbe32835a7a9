"""Running contestants in turn and comparing them round by round."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Setting:
    """How this run measures: the threads, the clock (wall, or the processor's on a busy machine), the effort."""

    threads: int
    clock: str
    quick: bool
    peers: str | None
    """The interpreter of the peers' environment, or None without one."""

    def rounds(self, full: int) -> int:
        """How often each contestant runs."""
        return max(2, full // 2) if self.quick else full


@dataclass(frozen=True)
class Contestant:
    """A way to do a piece of work: `task` names the function that sets it up, `scale` extrapolates its time."""

    name: str
    task: str
    options: dict[str, Any] = field(default_factory=dict)
    scale: float = 1.0
    peer: bool = False


@dataclass(frozen=True)
class Times:
    """What a contestant took, in seconds, round by round."""

    name: str
    seconds: tuple[float, ...]
    peak_mb: float
    all_said: tuple[Any, ...]

    @property
    def said(self) -> Any:
        """What the contestant itself reported in the last round."""
        return self.all_said[-1]

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.seconds)

    def spread(self) -> str:
        """Lowest to highest."""
        return f"{readable(min(self.seconds))} to {readable(max(self.seconds))}"


@dataclass(frozen=True)
class Ratio:
    """One contestant's time over another's, taken within each round."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({min(self.values):.3g} to {max(self.values):.3g})"


def ratio(above: Times, below: Times) -> Ratio:
    """How many times longer `above` took than `below`."""
    return Ratio(tuple(a / b for a, b in zip(above.seconds, below.seconds, strict=True)))


def compete(contestants: Sequence[Contestant], rounds: int, setting: Setting, warm: bool = True) -> dict[str, Times]:
    """Run all contestants `rounds` times in turn, each round beginning with another, after one round to warm up."""
    present = [each for each in contestants if setting.peers or not each.peer]
    processes = {each.name: _Process(each, setting) for each in present}
    try:
        for process in processes.values():
            process.expect("ready")
        for number in range(rounds + warm):
            turn = number % len(present)
            for each in (*present[turn:], *present[:turn]):
                processes[each.name].go(keep=number >= warm)
        return {name: process.end() for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.stop()


class _Process:
    """A worker and the pipe to it."""

    def __init__(self, contestant: Contestant, setting: Setting) -> None:
        self.contestant, self.clock = contestant, setting.clock
        self.taken: list[float] = []
        self.said: list[Any] = []
        spec = {"task": contestant.task, "options": contestant.options, "threads": setting.threads}
        python = setting.peers if contestant.peer and setting.peers else sys.executable
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", json.dumps(spec)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env=environment(setting),
        )  # fmt: skip

    def expect(self, key: str) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"'{self.contestant.name}' ended before its answer; its own words stand above.")
        return json.loads(line)[key] if key else json.loads(line)

    def go(self, keep: bool) -> None:
        self._tell("go")
        answer = self.expect("")
        if keep:
            self.taken.append(answer[self.clock] * self.contestant.scale)
            self.said.append(answer["said"])

    def end(self) -> Times:
        self._tell("end")
        return Times(self.contestant.name, tuple(self.taken), self.expect("peak_mb"), tuple(self.said))

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()


def readable(seconds: float) -> str:
    """A duration in the unit that suits it."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def run_module(module: str, setting: Setting, *arguments: str) -> Any:
    """What a module of this package prints as JSON, last line, when it runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, cwd=ROOT, env=environment(setting),
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def environment(setting: Setting) -> dict[str, str]:
    """The variables of a contestant's process: threads pinned, this checkout first."""
    pinned = {name: str(setting.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return {**os.environ, **pinned, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
