"""`handful train` reads the learner's options and a recipe's values from its flags."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from handful.cli.main import _parse, main
from handful.cli.train import Train, parse_options, watched
from handful.data.table import Benchmark
from handful.errors import InvalidOptionError
from handful.learners import R2D2
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from handful.meta.config import Plan, Recipe
from handful.meta.train import Progress
from handful.paper.recipes import named_recipe
from tests.cli.cases import QUICK, SMALL, run_handful, wait_for


def test_a_named_recipe_gives_the_flags_their_defaults() -> None:
    name = "cifar-fs/r2d2-64C/authors"
    command = _parse(["train", "--out", "x", "--recipe", name])
    assert isinstance(command, Train)
    assert command._recipe() == named_recipe(name)
    changed = _parse(["train", "--out", "x", "--recipe", name, "--way", "7", "--set", "lam=3"])
    assert isinstance(changed, Train)
    assert changed._recipe().way == 7
    assert changed._recipe().options == {**named_recipe(name).options, "lam": 3}


def test_learner_options_are_read_by_kind() -> None:
    words = ("lam=10", "rate=1e-3", "learn_lam=true", "prior=diagonal")
    assert parse_options(words) == {"lam": 10, "rate": 1e-3, "learn_lam": True, "prior": "diagonal"}
    with pytest.raises(InvalidOptionError, match="name=value"):
        parse_options(("lam",))


@pytest.mark.parametrize("words", [[], ["--recipe", "cifar-fs/r2d2-64C/authors"]])
def test_there_is_nothing_to_resume_in_a_folder_that_holds_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    folder = tmp_path / "none"
    assert main(["train", "--out", str(folder), "--resume", "--threads", "1", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{folder} is not a run" in said
    assert not folder.exists()


PLANNED = Recipe(plan=Plan(episodes=4, schedule="constant"), options={"lam": 3.0})
COSINE = dataclasses.replace(PLANNED, plan=Plan(episodes=4, schedule="cosine"))
LATE = dataclasses.replace(PLANNED, plan=Plan(episodes=4, schedule="constant", average="uniform", average_from=0.75))


@pytest.mark.parametrize(
    ("recipe", "words", "part"),
    [
        (PLANNED, ["--episodes", "3"], "not shorter"),
        (PLANNED, ["--episodes=9", "--seed=2", "--rate=1"], "for rate and seed"),
        (PLANNED, ["--set", "lam=4"], "for options"),
        (PLANNED, ["--patience", "5"], "has --patience 20000 (0 is no limit)"),
        (PLANNED, ["--patience", "5"], "not lowered to 5"),
        (COSINE, ["--episodes", "9"], "its cosine schedule brought the learning rate down to 0 at episode 4"),
        (LATE, ["--episodes", "9"], "it averages weights over the last 25% of 4 episodes"),
    ],
)
def test_a_run_goes_on_by_its_own_recipe_or_a_longer_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], recipe: Recipe, words: list[str], part: str
) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({"recipe": recipe.as_json()}))
    assert main(["train", "--out", str(tmp_path), "--resume", "--threads", "1", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert part in said
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.json"]


@pytest.mark.parametrize("out", ["--out {}", "--out={}"])
def test_flags_that_are_not_given_are_those_of_the_run_to_resume(tmp_path: Path, out: str) -> None:
    (tmp_path / "recipe.json").write_text(json.dumps({"recipe": PLANNED.as_json()}))
    command = _parse(["train", *out.format(tmp_path).split(), "--resume", "--episodes", str(Plan().episodes)])
    assert isinstance(command, Train)
    longer = dataclasses.replace(PLANNED, plan=dataclasses.replace(PLANNED.plan, episodes=Plan().episodes))
    assert command._resumed(PLANNED) == longer


def test_a_log_gets_a_line_a_validation(capsys: pytest.CaptureFixture[str]) -> None:
    silent = Progress(1, 2.0, 0.5, 0.1, scores=None, improved=(), seconds=1.0)
    scores = {"1-shot": 0.25, "mean": 0.5}
    validated = Progress(2, 2.0, 0.5, 0.1, scores=scores, improved=("mean",), seconds=2.0)
    steps = [silent, validated]
    assert list(watched("cifar-fs/r2d2", 2, iter(steps))) == steps
    assert capsys.readouterr().out == (
        "cifar-fs/r2d2: episode       2  validation 1-shot 25.00%  mean 50.00%  best so far\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_resumes_to_the_bits_of_an_uninterrupted_one(tmp_path: Path, sign: signal.Signals) -> None:
    words = [*QUICK, "--episodes", "60", "--dropout", "0.2", "--save-every", "5"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run_handful("train", "--out", whole, *words)
    process = subprocess.Popen(
        [sys.executable, "-m", "handful", "train", "--out", str(broken), *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log = broken / "log.jsonl"
    wait_for(lambda: (broken / "last.safetensors").exists() and len(log.read_text().splitlines()) >= 23, process)
    os.kill(process.pid, sign)
    process.wait(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[sign]
    assert len(log.read_text().splitlines()) < 60
    run_handful("train", "--out", broken, "--resume", "--threads", "1")
    assert not list(broken.glob(".*.tmp")) or sign == signal.SIGKILL
    first, second = load_file(whole / "last.safetensors"), load_file(broken / "last.safetensors")
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)
    assert (whole / "log.jsonl").read_text() == log.read_text()
    best = "best-mean.safetensors"
    assert (whole / best).read_bytes() == (broken / best).read_bytes()


def test_a_run_that_diverges_records_the_failure(
    small: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(R2D2, "objective", lambda self, logits, targets: logits.sum() * math.nan)
    words = ["--data", "cifar-fs", *SMALL[2:], "--validate-every", "0", "--episodes", "2", "--threads", "1"]
    assert main(["train", "--out", str(tmp_path), *words]) == 2
    facts = json.loads((tmp_path / "manifest.json").read_text())
    assert facts["failure"] == "The loss became nan at episode 0 with learning rate 0.005"
    assert facts["complete"] is False


@pytest.mark.slow
def test_a_run_that_diverges_says_where_and_keeps_its_last_good_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*SMALL, "--validate-every", "0", "--threads", "1"]
    run_handful("train", "--out", run, *words, "--episodes", "2")
    tensors, facts = read_checkpoint(run / "last.safetensors")
    facts["recipe"]["plan"].update(episodes=20, rate=1e30)
    write_checkpoint(run / "last.safetensors", tensors, facts)
    (run / "recipe.json").write_text(json.dumps({"recipe": facts["recipe"]}))
    good = (run / "last.safetensors").read_bytes()
    said = run_handful("train", "--out", run, "--resume", check=2).stderr
    assert re.search(r"at episode [3-9] with learning rate 1e\+30\. The last checkpoint is kept", said)
    assert (run / "last.safetensors").read_bytes() == good
