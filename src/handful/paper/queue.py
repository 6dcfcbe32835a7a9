"""A queue of experiments: a file with one `handful reproduce` command per line, worked off by one or more processes.

Each line is a process of its own, whose output goes to a log file beside the queue. Runs save themselves every two
minutes, and lines that are done are noted, so that a queue that was stopped or killed goes on when it is started again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from handful._io import write_atomically
from handful.errors import InvalidOptionError
from handful.meta.lock import held

POLL = 0.2
"""Seconds between two looks at the processes."""


@dataclass(frozen=True)
class Line:
    """One command of a queue."""

    number: int
    words: tuple[str, ...]

    @property
    def key(self) -> str:
        """What the note of its end goes by: the command itself, so that lines may be moved."""
        return hashlib.sha256(shlex.join(self.words).encode()).hexdigest()[:12]


def read_queue(path: Path) -> list[Line]:
    """The commands of a queue file; blank lines and what follows a # do not count."""
    if not path.is_file():
        raise InvalidOptionError(f"There is no queue file {path}. Write one `handful reproduce` command per line.")
    found = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        words = shlex.split(text, comments=True)
        words = words[2:] if words[:2] == ["handful", "reproduce"] else words
        if words and words[0] in ("queue", "status", "verify"):
            raise InvalidOptionError(f"Line {number} of {path} is '{words[0]}', which does not belong into a queue.")
        if words:
            found.append(Line(number, tuple(words)))
    if not found:
        raise InvalidOptionError(
            f"{path} has no command. Write one per line, for example: table1 --only cifar-fs/r2d2."
        )
    return found


def work_off(path: Path, processes: int, out: Path, say: Callable[[str], None]) -> int:
    """Run the lines that are not done yet, this many at a time; the number of lines that failed."""
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
                    code = running.pop(line).returncode
                    failed += bool(code)
                    _note(folder, line, code)
                    say(
                        f"line {line.number}: " + ("done" if not code else f"FAILED ({code}): see {_log(folder, line)}")
                    )
        finally:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
    return failed


def _started(line: Line, folder: Path, processes: int, out: Path) -> subprocess.Popen[bytes]:
    words = [*line.words, "--wait"]
    words += [] if "--out" in words else ["--out", str(out)]
    alone = processes == 1 or "--threads" in words
    words += [] if alone else ["--threads", "1"]
    environment = os.environ if alone else {**os.environ, "OMP_NUM_THREADS": "1"}
    with _log(folder, line).open("ab") as log:
        command = [sys.executable, "-m", "handful", "reproduce", *words]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def _log(folder: Path, line: Line) -> Path:
    return folder / f"{line.key}.log"


def _note(folder: Path, line: Line, code: int) -> None:
    facts = {"command": shlex.join(line.words), "code": code}
    write_atomically(folder / f"{line.key}.json", json.dumps(facts, indent=1).encode())


def _done(folder: Path, line: Line) -> bool:
    try:
        return bool(json.loads((folder / f"{line.key}.json").read_text())["code"] == 0)
    except (OSError, ValueError, KeyError):
        return False
