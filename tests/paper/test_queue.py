"""A queue survives kill -9, starts no run twice, and tells how far all runs are; real processes on a small data set."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from handful.cli import main
from handful.errors import InvalidOptionError
from handful.meta.config import Recipe
from handful.meta.lock import holder, is_held
from handful.meta.run import LAST, LOG
from handful.paper import queue
from handful.paper.queue import Line, read_queue, status_of

JOB = "table1 --only cifar-fs/r2d2-64C --width 32C --episodes 30 --validate-every 5 --test-episodes 20 --threads 1"


def start(root: Path, *words: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "handful", "reproduce", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HANDFUL_DATA": str(root)},
    )


def until(found: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not found():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def lines(out: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in (out / "runs").glob(f"*/{LOG}"))


def weights(out: Path) -> dict[str, bytes]:
    (folder,) = (out / "runs").iterdir()
    tensors = load_file(folder / LAST)
    assert tensors
    return {name: value.numpy().tobytes() for name, value in tensors.items()}


def test_a_queue_file_has_a_command_per_line(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text("# first\nhandful reproduce table1 --only 'Proto net'  # a comment\n\ntable2 --seeds 2\n")
    assert [(line.number, line.words) for line in read_queue(path)] == [
        (2, ("table1", "--only", "Proto net")),
        (4, ("table2", "--seeds", "2")),
    ]
    path.write_text("queue other")
    with pytest.raises(InvalidOptionError, match=r"Line 1 of .*'queue'"):
        read_queue(path)
    path.write_text("# nothing")
    with pytest.raises(InvalidOptionError, match=r"jobs .*table1 --only"):
        read_queue(path)
    with pytest.raises(InvalidOptionError, match=r"none.*`handful reproduce`"):
        read_queue(tmp_path / "none")


@pytest.mark.slow
def test_a_killed_queue_goes_on_to_the_same_bits(
    small_root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = start(small_root, *JOB.split(), "--out", tmp_path / "whole")
    assert whole.wait(timeout=240) == 0
    out, path = tmp_path / "killed", tmp_path / "jobs"
    path.write_text(f"{JOB} --out {out}\n")
    queue = start(small_root, "queue", path)
    until(lambda: out.exists() and lines(out) >= 7, queue)
    (folder,) = (out / "runs").iterdir()
    child = int(holder(folder).split()[1])
    for process in (queue.pid, child):
        os.kill(process, signal.SIGKILL)
    queue.communicate()
    until(lambda: not is_held(folder), whole_stopped := subprocess.Popen(["sleep", "60"], text=True))
    whole_stopped.kill()
    whole_stopped.wait()
    assert lines(out) < 30
    assert main(["reproduce", "status", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "not running" in told
    assert "1 runs in" in told
    again = start(small_root, "queue", path)
    said, complaint = again.communicate(timeout=240)
    assert again.returncode == 0, said + complaint
    assert "All jobs are done" in said
    assert weights(out) == weights(tmp_path / "whole")
    assert (out / "table1.json").exists()
    third = start(small_root, "queue", path)
    assert "1 done before" in third.communicate(timeout=60)[0]


@pytest.mark.slow
def test_a_run_is_trained_by_one_process_at_a_time(small_root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [word.replace("30", "100000") for word in JOB.split()]
    first = start(small_root, *words, "--out", out)
    try:
        until(lambda: out.exists() and lines(out) >= 1, first)
        second = start(small_root, *words, "--out", out)
        _, complaint = second.communicate(timeout=120)
        assert second.returncode == 2
        assert f"process {first.pid}" in complaint
        status = start(small_root, "status", "--out", out)
        told, _ = status.communicate(timeout=60)
        assert f"running (process {first.pid} on" in told
        assert "1 running" in told
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


@pytest.mark.slow
def test_a_failing_job_is_reported_and_tried_again(small_root: Path, tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text("table1 --only nothing-like-it\ntable1 --only r3d3\n")
    for _ in range(2):
        queue = start(small_root, "queue", path, "--processes", "2", "--out", tmp_path / "out")
        said, _ = queue.communicate(timeout=120)
        assert queue.returncode == 2
        assert said.count("FAILED (2)") == 2
        assert "2 jobs failed" in said


@pytest.mark.parametrize(
    ("manifest", "shown"), [({}, "mine"), ({"name": "none"}, "mine"), ({"name": "a/b/c"}, "a/b/c")]
)
def test_a_run_without_a_named_recipe_goes_by_the_name_of_its_folder(
    tmp_path: Path, manifest: dict[str, str], shown: str
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps({"recipe": Recipe().as_json()}))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert str(status_of(folder)).startswith(f"{shown}, seed 0:")


def test_a_run_that_was_cut_short_is_not_complete(tmp_path: Path) -> None:
    recipe = replace(Recipe(), plan=replace(Recipe().plan, episodes=300))
    (tmp_path / "recipe.json").write_text(json.dumps({"recipe": recipe.as_json()}))
    (tmp_path / "log.jsonl").write_text('{"episode": 300}')
    (tmp_path / "manifest.json").write_text(json.dumps({"planned": 120_000, "finished": True}))
    assert "in part: 300 of 120,000 episodes, 92% of the summed learning rate left" in str(status_of(tmp_path))
    (tmp_path / "manifest.json").write_text(json.dumps({"planned": 10**18, "finished": True}))
    assert "complete: all 300 episodes" in str(status_of(tmp_path))


def test_the_status_of_a_failed_run_gives_the_reason(tmp_path: Path) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({"recipe": Recipe().as_json()}))
    (tmp_path / "log.jsonl").write_text('{"episode": 7}')
    (tmp_path / "manifest.json").write_text(json.dumps({"failure": "The loss became nan at episode 7"}))
    assert ": FAILED: The loss became nan at episode 7; episode 7 of 120,000; not running" in str(status_of(tmp_path))


def test_options_of_a_line_are_known_in_both_spellings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    for words in (("table1", "--out=mine", "--threads=2"), ("table1", "--out", "mine", "--threads", "2"), ("table1",)):
        queue._started(Line(1, words), tmp_path, 2, Path("ours"))
    assert [command[4:] for command in started] == [
        ["table1", "--out=mine", "--threads=2", "--wait"],
        ["table1", "--out", "mine", "--threads", "2", "--wait"],
        ["table1", "--wait", "--out", "ours", "--threads", "1"],
    ]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"episode": "x"}', "[3]", '{"episode": 3, "validation": [1]}', "{"])
@pytest.mark.parametrize("sessions", ['[{"last": "x"}]', "5", "[" * 100_000])
def test_the_status_of_a_run_with_a_hostile_log_and_manifest_is_what_its_whole_lines_say(
    tmp_path: Path, line: str, sessions: str
) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({"recipe": Recipe().as_json()}))
    good = '{"episode": 2, "validation": {"1-shot": 0.5}}'
    (tmp_path / "log.jsonl").write_text(f"{line}\n{good}\n{line}\n")
    (tmp_path / "manifest.json").write_text(f'{{"sessions": {sessions}}}')
    status = status_of(tmp_path)
    assert status is not None
    assert status.best == {"1-shot": 0.5}
    assert "2 of 120,000 episodes" in str(status)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"table1 'open", b'table1 "open', b"table1 \\"])
def test_what_is_no_queue_is_one_clear_error(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs").write_bytes(content)
    assert main(["reproduce", "queue", str(tmp_path / "jobs"), "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("handful: ")
    assert told.count("\n") == 1


def test_a_queue_larger_than_any_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "jobs").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(InvalidOptionError, match="16 MB"):
        read_queue(tmp_path / "jobs")
