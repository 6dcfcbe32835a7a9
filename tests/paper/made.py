"""Results made up so that the answer is known, for the tests of tables, pictures and reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from handful.data.table import Benchmark
from handful.meta.config import Recipe
from handful.meta.manifest import Manifest, Session
from handful.paper.experiments import EXPERIMENTS, Experiment, narrowed
from handful.paper.published import Column
from handful.paper.report import (
    Lines,
    column_lines,
)
from handful.paper.results import Cell, Results, Score
from handful.paper.testing import Counts, Measurement, draw_set

COLUMN = Column("cifar-fs", 5, 1)
TABLE = narrowed(EXPERIMENTS["table1"], ("cifar-fs/r2d2-64C", "cifar-fs/protonet-64C", "cifar-fs/maml-64C"))
ROWS = {row.label: row for row in TABLE.rows}
QUERIES = 1_000
"""Of an episode, so that a mean to three digits is a whole number of correct answers."""


def score(mean: float, planned: int = 100, limits: str = "inductive", seed: int = 0) -> Score:
    """A run of 100 episodes whose test accuracies spread evenly around a mean."""
    wave = torch.linspace(-0.1, 0.1, 400, dtype=torch.float64)
    recipe = replace(Recipe(), seed=seed, plan=replace(Recipe().plan, episodes=100))
    session = Session("2026-01-01", 60.0, 0, 100, {"torch": "2"}, {"processor": "abacus", "threads": 1})
    manifest = Manifest("a/b/c", recipe, planned, "cifar-fs", "f" * 64, (session,), finished=True)
    correct = ((mean + wave) * QUERIES).round().long()
    measurement = Measurement(Counts(correct, QUERIES, correct[::20], QUERIES), 100, limits, "best-1-shot")
    return Score(manifest, measurement, Path(f"run-{mean}-{seed}"))


def cell(label: str, *scores: Score, variant: str = "authors") -> Cell:
    return Cell(ROWS[label], COLUMN, variant, "a/b/c", ROWS[label].numbers[0], scores)


def with_counts(score: Score, **changes: Tensor) -> Score:
    """The score with other numbers of correct answers."""
    measurement = score.measurement
    return replace(score, measurement=replace(measurement, counts=replace(measurement.counts, **changes)))  # type: ignore[arg-type]


def lines_of(results: Results) -> Lines:
    """The rows of the column, of which there is one at least."""
    lines = column_lines(results, COLUMN)
    assert lines is not None
    return lines


def results(tiny: Benchmark, *cells: Cell, experiment: Experiment = TABLE) -> Results:
    drawn = draw_set(tiny.test, "content", 5, 1, 4, 10, 0)
    machine: dict[str, str | int] = {"processor": "abacus", "threads": 1, "gpu": "none"}
    return Results(
        experiment, cells, {(COLUMN, COLUMN.data): drawn}, ("SNAIL: quoted",), "handful", "now", {"torch": "2"}, machine
    )
