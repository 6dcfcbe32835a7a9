"""Weights of complete runs are kept with a card, and load like any checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from handful.cli import main
from handful.data.table import Benchmark
from handful.meta.engine import CPU
from handful.meta.run import load_model
from handful.meta.train import Progress
from handful.paper.experiments import EXPERIMENTS, narrowed
from handful.paper.jobs import Departures, job, train_job
from handful.paper.published import Column
from handful.paper.results import Cell, Results, Score
from handful.paper.testing import draw_set, measure
from handful.paper.weights import _card, keep_weights
from tests.paper.made import cell, results, score

COLUMN = Column("cifar-fs", 5, 1)


def silent(name: str, total: int, steps: Iterator[Progress]) -> Iterable[Progress]:
    return steps


def made(small: Benchmark, out: Path) -> Results:
    """The results of a 64C run of two episodes, which are all that its recipe plans."""
    run = job("cifar-fs/r2d2-64C/authors", 0, out, Departures(2, validate_every=0))
    run = replace(run, planned=2, recipe=replace(run.recipe, way=5))
    manifest = train_job(run, small, "f" * 64, 0.0, CPU, silent)
    drawn = draw_set(small.test, "content", 5, 1, 15, 20, 0)
    measured = measure(run.folder, drawn, "shot", CPU)
    assert measured is not None
    table = narrowed(EXPERIMENTS["table1"], ("cifar-fs/r2d2-64C",))
    cell = Cell(table.rows[0], COLUMN, "authors", run.name, None, (Score(manifest, measured, run.folder),))
    return Results(
        table, (cell,), {(COLUMN, COLUMN.data): drawn}, (), "handful reproduce table1", "now", {"torch": "2"}, {}
    )


@pytest.mark.slow
def test_weights_of_a_complete_run_are_kept_and_load(
    small: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = made(small, tmp_path)
    weights, card = keep_weights(results, tmp_path / "results")
    assert weights == tmp_path / "results/weights/cifar-fs--r2d2-64C--authors-seed0-last.safetensors"
    assert weights.stat().st_size < 600_000  # 0.5 MB: the model alone, without the optimiser's state
    before = weights.read_bytes()
    keep_weights(results, tmp_path / "results")
    assert weights.read_bytes() == before
    kept, trained = load_model(weights).state_dict(), load_model(results.cells[0].folders[0], "last").state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in kept.items())
    found = tmp_path / "evaluated.json"
    words = ["--episodes", "20", "--shot", "1", "--query", "15", "--json", str(found), "--threads", "1"]
    assert main(["evaluate", str(weights), *words]) == 0
    mean = results.cells[0].ours.closed.mean
    assert json.loads(found.read_text())[0]["mean"] == pytest.approx(mean, abs=1e-6)  # a float32 mean of 20
    text = card.read_text()
    for part in (
        "# cifar-fs--r2d2-64C--authors-seed0-last",
        "Complete: all 2 episodes.",
        f"| CIFAR-FS 5-way 1-shot | {results.cells[0].ours.closed} |",
        f"handful evaluate {weights.name}",
        f'handful.load_model("{weights.name}")',
        "by the recipe `cifar-fs/r2d2-64C/authors`, changed: not validated. Complete",
        "f" * 64,
        "licence of handful (MIT)",
        "training classes of cifar-fs only",
    ):
        assert part in text, part


@pytest.mark.slow
def test_a_card_says_that_its_figures_are_of_validation_classes(small: Benchmark, tmp_path: Path) -> None:
    results = made(small, tmp_path)
    results = replace(results, experiment=replace(results.experiment, split="val"))
    weights, card = keep_weights(results, tmp_path / "results")
    assert card == weights.with_suffix(".validation.md")  # beside the card with test figures, if there is one
    said = card.read_text()
    assert "| Validation episodes |" in said
    assert "Accuracies are of validation classes, which also chose the checkpoint" in said


def test_a_card_of_a_changed_run_says_so_and_gives_no_command_that_would_train_another(tiny: Benchmark) -> None:
    plain = score(0.62)
    changed = replace(plain, manifest=replace(plain.manifest, changes="validated every 1,000 episodes"))
    told = []
    for each in (plain, changed):
        own = cell("R2-D2 (64C)", each)
        told.append(_card(each, [own], results(tiny, own), Path("weights.safetensors")))
    assert "by the recipe `a/b/c`. Complete" in told[0]
    assert "- `handful train --recipe a/b/c --out RUN`, or `handful`\n" in told[0]
    assert "by the recipe `a/b/c`, changed: validated every 1,000 episodes. Complete" in told[1]
    assert "- `handful`\n" in told[1]
    assert "handful train" not in told[1]


@pytest.mark.slow
def test_weights_in_part_changed_or_large_are_not_kept(
    small: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = made(small, tmp_path)
    (cell,), (score,) = results.cells, results.cells[0].scores
    for changed in ({"planned": 120_000}, {"altered": True}, {"failure": "The loss became nan"}):
        manifest = replace(score.manifest, **changed)  # type: ignore[arg-type]
        other = replace(results, cells=(replace(cell, scores=(replace(score, manifest=manifest),)),))
        assert keep_weights(other, tmp_path / "none") == []
    monkeypatch.setattr("handful.paper.weights.MOST_BYTES", 1_000)
    assert keep_weights(results, tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
