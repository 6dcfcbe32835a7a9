"""A queue of experiments, run by one or more processes, and the state of all runs in a folder.

A queue is a file with one `handful reproduce` command per line. Each line runs in its own process, whose output goes to
a log file next to the queue. Runs are saved every two minutes, and finished lines are recorded, so a queue that was
stopped or killed continues when it is started again. Reading the state of runs does not disturb training.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handful._io import MOST_JSON, from_json, read_bytes, read_json, write_atomically
from handful.errors import CheckpointError, DataError, InvalidOptionError
from handful.meta.config import Completion, complete_at, whole_plan
from handful.meta.lock import held, holder, is_held
from handful.meta.manifest import MANIFEST, MOST_PLANNED, UNNAMED, Session, whole_completion
from handful.meta.run import RECIPE, read_log, read_recipe
from handful.paper.cost import duration

POLL = 0.2
"""Seconds between checks of the processes."""


@dataclass(frozen=True)
class Line:
    """One command of a queue."""

    number: int
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        """The key under which it is recorded as done; it depends on the command only, so lines may be moved."""
        return hashlib.sha256(shlex.join(self.words).encode()).hexdigest()[:12]


def read_queue(path: Path) -> list[Line]:
    """The commands of a queue file; blank lines and comments after # are ignored."""
    if not path.is_file():
        raise InvalidOptionError(f"There is no queue file {path}. Write one `handful reproduce` command per line.")
    try:
        lines = read_bytes(path, MOST_JSON).decode().splitlines()
    except (OSError, UnicodeDecodeError, DataError) as error:
        raise InvalidOptionError(f"The queue file {path} cannot be read: {error}.") from error
    found = []
    for number, text in enumerate(lines, 1):
        try:
            words = shlex.split(text, comments=True)
        except ValueError as error:
            raise InvalidOptionError(f"Line {number} of {path} is not a command: {error}.") from error
        words = words[2:] if words[:2] == ["handful", "reproduce"] else words
        if words and words[0] in ("queue", "status", "verify"):
            raise InvalidOptionError(f"Line {number} of {path} is '{words[0]}', which cannot be used in a queue.")
        if words:
            found.append(Line(number, tuple(words)))
    if not found:
        raise InvalidOptionError(
            f"{path} has no command. Write one per line, for example: table1 --only cifar-fs/r2d2."
        )
    return found


def work_off(path: Path, processes: int, out: Path, say: Callable[[str], None]) -> int:
    """Run the lines that are not done yet, this many at a time; returns the number of lines that failed."""
    lines = read_queue(path)
    folder = path.with_name(f"{path.name}.state")
    with held(folder):
        waiting = [line for line in lines if not _done(folder, line)]
        say(f"{path}: {len(lines)} jobs, {len(lines) - len(waiting)} done before, {processes} at a time")
        running: dict[Line, subprocess.Popen[bytes]] = {}
        failed = 0
        try:
            while waiting or running:
                while waiting and len(running) < processes:
                    line = waiting.pop(0)
                    running[line] = _started(line, folder, processes, out)
                    say(f"line {line.number}: started as process {running[line].pid}: {shlex.join(line.words)}")
                time.sleep(POLL)
                for line in [line for line, process in running.items() if process.poll() is not None]:
                    failed += _ended(line, running.pop(line).returncode, folder, say)
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
    return failed


def _ended(line: Line, code: int, folder: Path, say: Callable[[str], None]) -> bool:
    """Record how a line ended; returns whether it failed."""
    facts = {"command": shlex.join(line.words), "code": code}
    write_atomically(folder / f"{line.key}.json", json.dumps(facts, indent=1).encode())
    say(f"line {line.number}: " + (f"FAILED ({code}): see {_log(folder, line)}" if code else "done"))
    return bool(code)


def _started(line: Line, folder: Path, processes: int, out: Path) -> subprocess.Popen[bytes]:
    words = [*line.words, "--wait"]
    given = {word.partition("=")[0] for word in words}
    words += [] if "--out" in given else ["--out", str(out)]
    alone = processes == 1 or "--threads" in given
    words += [] if alone else ["--threads", "1"]
    environment = os.environ if alone else {**os.environ, "OMP_NUM_THREADS": "1"}
    with _log(folder, line).open("ab") as log:
        command = [sys.executable, "-m", "handful", "reproduce", *words]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def _log(folder: Path, line: Line) -> Path:
    return folder / f"{line.key}.log"


def _done(folder: Path, line: Line) -> bool:
    return _json(folder / f"{line.key}.json").get("code") == 0


@dataclass(frozen=True)
class Status:
    """The state of one run according to its files."""

    name: str
    completion: Completion
    """Whether it is complete, and why."""
    failed: bool
    best: dict[str, float]
    pace: float | None
    """Seconds per episode in the last session, including validations; None if unknown."""
    left: int
    """Episodes until it stops, because it is complete or was cut short, if patience does not end it sooner."""
    holder: str
    """The process that is training it; empty if there is none."""

    def __str__(self) -> str:
        words = [f"FAILED: {self.completion.why}" if self.failed else str(self.completion)]
        if self.pace is not None:
            words.append(f"{self.pace:.2f} s per episode")
            if self.left and not self.completion.complete and not self.failed:
                words.append(f"done within {duration(self.left * self.pace)}")
        scores = ", ".join(f"{name} {100 * value:.2f}%" for name, value in self.best.items())
        who = f"running ({self.holder})" if self.holder else "not running"
        return f"{self.name}: {', '.join(words)}; {who}" + (f"; best validation: {scores}" if scores else "")


def runs_below(out: Path) -> list[Status]:
    """The state of every run in a folder and its subfolders."""
    if not out.is_dir():
        raise DataError(f"There is no folder {out}. Use --out to say where the runs are.")
    return [found for path in sorted(out.rglob(RECIPE)) if (found := status_of(path.parent)) is not None]


def status_of(folder: Path) -> Status | None:
    """The state of one run; None for a folder whose recipe this version cannot read."""
    try:
        recipe = read_recipe(folder)
    except CheckpointError:
        return None
    plan, manifest, log = recipe.plan, _json(folder / MANIFEST), read_log(folder)
    session = _last_session(manifest)
    trained = session.last - session.first if session else 0
    episodes = max([episode for episode, _ in log[-1:]] + [session.last if session else 0])
    best: dict[str, float] = {}
    for _, scores in log:
        for name, value in scores.items():
            best[name] = max(value, best.get(name, 0.0))
    failure, finished = str(manifest.get("failure", "")), manifest.get("finished") is True
    planned = manifest.get("planned")
    planned = planned if isinstance(planned, int) and planned <= MOST_PLANNED else plan.episodes
    name = manifest.get("name", UNNAMED)
    return Status(
        f"{folder.name if name == UNNAMED else name}, seed {recipe.seed}",
        whole_completion(plan, planned, episodes, finished, failure),
        bool(failure),
        best,
        session.seconds / trained if session and session.seconds and trained > 0 else None,
        max(0, min(plan.episodes, complete_at(whole_plan(plan, planned))) - episodes),
        holder(folder) if is_held(folder) else "",
    )


def _last_session(manifest: Mapping[str, Any]) -> Session | None:
    try:
        sessions: tuple[Session, ...] = from_json(tuple[Session, ...], manifest.get("sessions", []), "sessions")
    except ValueError:
        return None
    return sessions[-1] if sessions else None


def _json(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
