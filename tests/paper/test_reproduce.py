"""Runs of an experiment become jobs, as many at a time as allowed; what is complete or busy is left alone.

No SLURM cluster is at hand: executables of the names of its commands stand in for it and run jobs as processes here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handful.data.table import Benchmark
from handful.errors import DataError, HandfulError, InvalidOptionError, NotFiniteError
from handful.meta.train import Progress
from handful.paper import reproduce
from handful.paper.experiments import EXPERIMENTS, narrowed
from handful.paper.jobs import Departures, Standing, job
from handful.paper.reproduce import Options, plan_cells
from handful.paper.testing import Measurement
from tests.paper.made import score

NAMES = ("omniglot/r2d2-32C/quick", "omniglot/protonet-32C/quick", "omniglot/lrd2-32C/quick")


@dataclass
class Submitted:
    """A job that fails if it was asked to."""

    job_id: int
    answer: str
    looks: int = 0
    paths: Any = field(default_factory=lambda: SimpleNamespace(stderr="err"))

    def done(self) -> bool:
        self.looks += 1
        return self.looks > 1

    def exception(self) -> Exception | None:
        return RuntimeError() if self.answer == "bad" else None

    def result(self) -> str:
        return self.answer


def test_jobs_are_submitted_a_few_at_a_time_and_complete_runs_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitit = pytest.importorskip("submitit")
    jobs = [job(name, 0, tmp_path) for name in NAMES]
    monkeypatch.setattr(reproduce, "POLL", 0.0)
    monkeypatch.setattr(reproduce, "standing", lambda each: Standing(complete=each.name == NAMES[1]))
    sent: list[str] = []

    class Executor:
        def __init__(self, folder: Path, cluster: str) -> None:
            assert (folder, cluster) == (tmp_path / "jobs", "local")

        def update_parameters(self, **parameters: Any) -> None:
            assert parameters["timeout_min"] in (24 * 60, 8)

        def submit(self, function: Callable[..., str], each: reproduce.Job, seconds: float, until: str) -> Submitted:
            assert function is reproduce.train_alone
            sent.append(each.name)
            return Submitted(len(sent), "bad" if len(sent) == 2 else "8,000 episodes, complete")

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    said: list[str] = []
    reproduce.train_on("local:1", [*jobs, jobs[0]], Options(out=tmp_path), said.append)
    assert sent == [NAMES[0], NAMES[2]]
    reproduce.train_on("local:1", jobs[1:2], Options(out=tmp_path, until="end", minutes=2.5), [].append)
    assert sent[2:] == [NAMES[1]]  # it is complete, but not over
    assert [line.rpartition(": ")[2] for line in said[1:]] == [
        "job 1",
        "8,000 episodes, complete",
        "job 2",
        "FAILED, see err",
    ]


@pytest.mark.parametrize("on", ["local", "local:0", "pbs"])
def test_an_unknown_place_is_refused(on: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="slurm, or local:N"):
        reproduce.train_on(on, [], Options(out=tmp_path), print)


def test_a_missing_package_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "find_spec", lambda name: None)
    with pytest.raises(HandfulError, match=r"pip install 'handful\[slurm\]'"):
        reproduce.train_on("slurm", [], Options(out=tmp_path), print)


SLURM = {
    "sbatch": """#!/bin/bash
cd "$(dirname "$0")"
[ -e refuse ] && { echo "sbatch: error: Batch job submission failed: Invalid account" >&2; exit 1; }
number=$((1000 + $(ls -d job-* 2>/dev/null | wc -l))); mkdir job-$number; cp "$1" job-$number/script
export SLURM_JOB_ID=$number SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
export SLURM_JOB_NODELIST=here
(bash job-$number/script > job-$number/log 2>&1; echo $? > job-$number/code) > /dev/null 2>&1 &
echo "Submitted batch job $number"
""",
    "srun": """#!/bin/bash
while [[ "$1" == --* ]]; do case "$1" in
    --output) out="$2"; shift 2;; --error) err="$2"; shift 2;; *) shift;;
esac; done
for name in out err; do value="${!name//%j/$SLURM_JOB_ID}"; declare $name="${value//%t/0}"; done
exec "$@" > "$out" 2> "$err"
""",
    "sacct": """#!/bin/bash
cd "$(dirname "$0")"; echo "JobID|State|NodeList"
for job in job-*; do
    if [ ! -e $job/code ]; then state=RUNNING
    elif [ "$(cat $job/code)" = 0 ]; then state=COMPLETED; else state=FAILED; fi
    echo "${job#job-}|$state|here"
done
""",
}


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with the commands of SLURM that submitit calls; jobs run at once, as processes of this machine."""
    pytest.importorskip("submitit")
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in SLURM.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def submit(root: Path, out: Path, *commands: Path) -> subprocess.CompletedProcess[str]:
    words = ["table1", "--only", "cifar-fs/r2d2-64C", "--width", "32C", "--episodes", "6", "--validate-every", "3"]
    words += ["--test-episodes", "10", "--threads", "1", "--out", str(out), "--on", "slurm"]
    path = os.pathsep.join([*map(str, commands), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", "handful", "reproduce", *words],
        env={**os.environ, "HANDFUL_DATA": str(root), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_a_grid_is_trained_by_jobs_of_a_stand_in_for_slurm(small_root: Path, slurm: Path, tmp_path: Path) -> None:
    out = tmp_path / "grid"
    done = submit(small_root, out, slurm)
    assert done.returncode == 0, done.stderr
    assert "job 1000" in done.stdout + done.stderr
    assert (slurm / "job-1000" / "code").read_text() == "0\n"
    script = (slurm / "job-1000" / "script").read_text()
    assert "#SBATCH --cpus-per-task=1" in script
    assert f"#SBATCH --time={24 * 60}" in script
    (run,) = (out / "runs").iterdir()
    assert len((run / "log.jsonl").read_text().splitlines()) == 6
    again = submit(small_root, out, slurm)  # all is complete: nothing to submit
    assert again.returncode == 0, again.stderr
    assert not (slurm / "job-1001").exists()


@pytest.mark.slow
def test_a_job_that_slurm_refuses_is_one_clear_line(small_root: Path, slurm: Path, tmp_path: Path) -> None:
    (slurm / "refuse").touch()
    done = submit(small_root, tmp_path / "grid", slurm)
    assert done.returncode == 2
    assert "could not be submitted to slurm" in done.stderr
    assert "Invalid account" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_machine_without_slurm_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HandfulError, match=r"sbatch, srun, sacct .*--on local:N"):
        reproduce.train_on("slurm", [], Options(out=tmp_path / "out"), print)
    assert not (tmp_path / "out").exists()


TABLE = narrowed(EXPERIMENTS["table1"], ("r2d2-64C", "cifar-fs/protonet-64C"))


def watch(name: str, total: int, steps: Iterator[Progress]) -> Iterable[Progress]:
    return steps


def test_a_run_that_cannot_be_tested_is_listed_and_the_others_are_reported(
    small: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = score(0.6)

    def measure(folder: Path, *_: object) -> Measurement:
        if "protonet" in folder.name:
            raise NotFiniteError("The logits of 3 of 5 queries are NaN or infinite. Lower the rate.")
        return made.measurement

    monkeypatch.setattr(reproduce, "train_all", lambda jobs, *_: {each.folder: made.manifest for each in jobs})
    monkeypatch.setattr(reproduce, "measure", measure)
    found = reproduce.reproduce(TABLE, Options(out=tmp_path, test_episodes=2), "handful", [].append, watch)
    assert {cell.row.label for cell in found.cells if cell.scores} == {"R2-D2 (64C)"}
    said = (
        "cifar-fs/protonet-64C-1shot/authors, seed 0: The logits of 3 of 5 queries are NaN or infinite. Lower the rate."
    )
    assert said in found.missing


def test_a_table_is_reported_if_only_a_part_of_its_data_is_installed(small: Benchmark, tmp_path: Path) -> None:
    options = Options(out=tmp_path, test_episodes=2, until="now")
    found = reproduce.reproduce(TABLE, options, "handful", [].append, watch)
    assert any("handful data add mini-imagenet" in each for each in found.missing)
    assert found.sets


def test_a_table_without_any_data_is_refused_with_the_names_of_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"no data for table1.*data add cifar-fs.*data add mini-imagenet"):
        reproduce.reproduce(TABLE, Options(out=tmp_path / "out"), "handful", [].append, watch)
    assert not (tmp_path / "out").exists()


def test_a_row_with_another_network_has_no_published_number() -> None:
    wide = narrowed(EXPERIMENTS["table1"], ("cifar-fs/r2d2-64C", "cifar-fs/r2d2-wide"))
    cells = [cell for cell, _ in plan_cells(wide, Options(Path("none"), departures=Departures(width="64C")))]
    assert [(cell.label, cell.published is None) for cell in cells[::2]] == [
        ("R2-D2 (64C) · authors", False),
        ("R2-D2, on 64C · authors", True),
    ]
    assert [cell.published is None for cell, _ in plan_cells(wide, Options(Path("none")))] == [False] * 4
