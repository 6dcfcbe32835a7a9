"""Runs of an experiment become jobs, as many at a time as allowed; what is complete or busy is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from handful.errors import HandfulError, InvalidOptionError
from handful.paper import reproduce
from handful.paper.jobs import Standing, job
from handful.paper.reproduce import Options

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
            assert parameters["timeout_min"] == 24 * 60

        def submit(self, function: Callable[..., str], each: reproduce.Job, seconds: float, until: str) -> Submitted:
            assert function is reproduce.train_alone
            sent.append(each.name)
            return Submitted(len(sent), "bad" if len(sent) == 2 else "8,000 episodes, complete")

    monkeypatch.setattr(submitit, "AutoExecutor", Executor)
    said: list[str] = []
    reproduce.train_on("local:1", [*jobs, jobs[0]], Options(out=tmp_path), said.append)
    assert sent == [NAMES[0], NAMES[2]]
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
