"""Results compared with the published numbers: cells with intervals and verdicts, and paired differences of methods.

Only `paper` and `authors` reproduce the paper. Cells of other variants go beyond it: they are listed separately, with
what their recipe adds, and are never said to agree. A cell whose network is not its row's own has no published number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from handful.meta.intervals import Interval, closed_interval, open_interval
from handful.meta.manifest import Manifest
from handful.paper.experiments import Experiment
from handful.paper.published import Column, Figure, Row
from handful.paper.recipes.own import REPRODUCING
from handful.paper.recipes.provenance import additions
from handful.paper.testing import Counts, EpisodeSet, Measurement

Verdict = Literal["agrees", "above", "below"]


@dataclass(frozen=True, repr=False)
class Outcome:
    """Accuracies of one or more training seeds on the same test episodes."""

    shared: Tensor  # (seeds, episodes)
    """Accuracies on the episodes that all methods share."""
    apart: Tensor  # (seeds, episodes)
    """Accuracies on the episodes that share no image."""

    @classmethod
    def of(cls, counts: Sequence[Counts], n: int | None = None, n_apart: int | None = None) -> Outcome:
        """The outcome for the counts of each seed, or their first `n` and `n_apart` episodes."""
        shared = torch.stack([each.accuracies[:n] for each in counts])
        return cls(shared, torch.stack([each.apart[:n_apart] for each in counts]))

    def __repr__(self) -> str:
        return f"Outcome({self.closed}, {len(self.shared)} seeds)"

    @property
    def means(self) -> Tensor:
        """The mean accuracy of each training seed."""
        return torch.stack([values.mean() for values in self.shared])

    @cached_property
    def closed(self) -> Interval:
        """The mean with the interval that the paper uses."""
        return closed_interval(self.shared.mean(0))

    @cached_property
    def opened(self) -> Interval:
        """The mean over episodes that share no image, with its interval."""
        return open_interval(self.apart.mean(0))

    @cached_property
    def over_seeds(self) -> Interval:
        """The mean over training seeds with its interval, which is NaN for one seed."""
        return open_interval(self.means)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        kinds = {"closed": self.closed, "open": self.opened, "over_seeds": self.over_seeds}
        return {kind: _finite(asdict(interval)) for kind, interval in kinds.items()}


def difference(first: Outcome, second: Outcome) -> tuple[Interval, Interval]:
    """The closed and the open interval of the first minus the second, episode by episode."""
    both = min(first.shared.shape[1], second.shared.shape[1])  # one may have been tested on fewer
    apart = min(first.apart.shape[1], second.apart.shape[1])
    return (
        closed_interval(first.shared.mean(0)[:both] - second.shared.mean(0)[:both]),
        open_interval(first.apart.mean(0)[:apart] - second.apart.mean(0)[:apart]),
    )


@dataclass(frozen=True)
class Comparison:
    """Our number minus the published one, in percentage points, with half the interval of the difference."""

    difference: float
    half: float
    """Half the interval from the episodes, several training seeds if any, and the paper's interval and rounding."""
    open: float
    """The same with the open interval instead of the closed one; the verdict does not use it."""

    @property
    def verdict(self) -> Verdict:
        """Whether zero lies within the interval of the difference, or else the side on which ours lies."""
        if abs(self.difference) <= self.half:
            return "agrees"
        return "above" if self.difference > 0 else "below"

    @property
    def within_open(self) -> bool:
        """Whether other images of the same classes might explain the difference."""
        return abs(self.difference) <= self.open

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**_finite(asdict(self)), "within_open": self.within_open, "verdict": self.verdict}


def compare(ours: Outcome, figure: Figure) -> Comparison:
    """Compare our number with a published one, measured on the same images.

    The rounding is half a unit of the last digit. Several training seeds add their spread: the paper's number is from
    one training, ours is the mean of n, so they differ by sqrt(1 + 1/n) standard deviations, which is sqrt(n + 1)
    times the standard error of the mean. The factor is Student's, because n is small.
    """
    rounded = math.hypot(figure.ci or 0.0, 0.5 * 10.0**-figure.digits)
    seeds = len(ours.shared)
    spread = ours.over_seeds.half * math.sqrt(seeds + 1) if seeds > 1 else 0.0
    closed, opened = ours.closed.half, ours.opened.half
    wide = closed if math.isnan(opened) else max(opened, closed)
    return Comparison(
        100 * ours.closed.mean - figure.value,
        math.hypot(100 * closed, 100 * spread, rounded),
        math.hypot(100 * wide, 100 * spread, rounded),
    )


@dataclass(frozen=True)
class Score:
    """The result of one training seed."""

    manifest: Manifest
    measurement: Measurement
    folder: Path


def count_key(column: str, score: Score) -> str:
    """The key of a score in the counts file; rows that share a run share it."""
    return f"{column}/{score.folder.name}"


@dataclass(frozen=True, repr=False)
class Cell:
    """One row of one column in one variant: the paper's number, and ours over all training seeds."""

    row: Row
    column: Column
    variant: str
    recipe: str
    published: Figure | None
    scores: tuple[Score, ...]
    width: str = ""
    """The network that was trained, if it is not the row's own; then there is no comparison with the paper."""

    def __repr__(self) -> str:
        ours = self.ours.closed if self.scores else "not run"
        return f"Cell({self.label}, {self.column.title}: paper {self.published or 'none'}, ours {ours})"

    @property
    def label(self) -> str:
        """The row's name, the network if it is not the row's own, and the variant."""
        name = f"{self.row.label}, on {self.width}" if self.width else self.row.label
        return f"{name} · {self.variant}" if self.variant else name

    @property
    def reproduces(self) -> bool:
        """Whether the variant is one of the paper's own, so that the cell can agree with the paper."""
        return self.variant in ("", *REPRODUCING)

    @property
    def complete(self) -> bool:
        """Whether all of its runs are complete, and trained with their recipes."""
        return bool(self.scores) and all(
            score.manifest.completion.complete and not score.manifest.altered for score in self.scores
        )

    @property
    def changed(self) -> bool:
        """Whether its runs went to their end, but with another network or schedule than their recipes'."""
        return (
            bool(self.scores) and not self.complete and all(score.manifest.completion.complete for score in self.scores)
        )

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of its runs, which two rows may share."""
        return tuple(score.folder for score in self.scores)

    @cached_property
    def ours(self) -> Outcome:
        """What was measured, over all training seeds."""
        return Outcome.of([score.measurement.counts for score in self.scores])

    @property
    def comparison(self) -> Comparison | None:
        """The comparison with the paper, if both numbers exist and the variant is the paper's own."""
        if self.published is None or not self.scores or not self.reproduces:
            return None
        return compare(self.ours, self.published)

    @property
    def verdict(self) -> Verdict | None:
        """Whether it agrees with the paper; there is no verdict for runs in part."""
        comparison = self.comparison
        return comparison.verdict if comparison and self.complete else None

    @property
    def shortfall(self) -> str:
        """How its runs fall short of the recipe."""
        return "; ".join(dict.fromkeys(s.manifest.shortfall for s in self.scores if s.manifest.shortfall))

    @property
    def additions(self) -> tuple[str, ...]:
        """What the recipe adds to the one that it is built on."""
        return additions(self.recipe, self.scores[0].manifest.recipe) if self.scores else ()

    def as_json(self) -> dict[str, Any]:
        """The cell as plain values; `counts` names its arrays in the report's counts file, one per training seed."""
        facts: dict[str, Any] = {
            "row": self.row.label,
            "label": self.label,
            "column": self.column.title,
            "variant": self.variant,
            "recipe": self.recipe,
            "published": None if self.published is None else asdict(self.published),
        }
        if not self.scores:
            return {**facts, "ours": None}
        comparison = self.comparison
        return {
            **facts,
            "ours": {
                **self.ours.as_json(),
                "limits": self.scores[0].measurement.limits,
                "checkpoints": [score.measurement.checkpoint for score in self.scores],
                "counts": [count_key(self.column.title, score) for score in self.scores],
            },
            "comparison": None if comparison is None else {**comparison.as_json(), "verdict": self.verdict},
            "complete": self.complete,
            "shortfall": self.shortfall,
            **({} if self.reproduces else {"adds": list(self.additions)}),
            "manifests": [score.manifest.as_json() for score in self.scores],
        }


@dataclass(frozen=True)
class Pair:
    """Two methods on the same episodes: the first minus the second, episode by episode."""

    column: str
    first: str
    second: str
    closed: Interval
    opened: Interval
    published: float | None
    """The difference of the published numbers, in percentage points."""
    published_half: float = 0.0
    """Half the interval of that difference, if the paper gives intervals."""

    @property
    def same_order(self) -> bool | None:
        """Whether ours are in the published order; None if either order is unknown or too close to call."""
        if self.published is None or abs(self.published) <= self.published_half or not self.closed.excludes_zero:
            return None
        return (self.published > 0) == (self.closed.mean > 0)

    @property
    def loose(self) -> bool:
        """Whether there is an order that other images of these classes might reverse."""
        return self.same_order is not None and not self.opened.excludes_zero

    def figures(self) -> dict[str, Any]:
        """The figures that follow from the counts."""
        intervals = {"closed": _finite(asdict(self.closed)), "open": _finite(asdict(self.opened))}
        return {**intervals, "same_order": self.same_order}

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        names = ("column", "first", "second", "published", "published_half")
        return {**{name: getattr(self, name) for name in names}, **self.figures()}


def pair(first: Cell, second: Cell) -> Pair:
    """The paired difference of two cells of one column."""
    ours, theirs = first.published, second.published
    if not (first.reproduces and second.reproduces):
        ours = theirs = None
    return Pair(
        first.column.title,
        first.label,
        second.label,
        *difference(first.ours, second.ours),
        ours.value - theirs.value if ours and theirs and first.row != second.row else None,
        math.hypot(ours.ci or 0.0, theirs.ci or 0.0) if ours and theirs else 0.0,
    )


Sets = dict[tuple[Column, str], EpisodeSet]
"""Test episodes by column and by the data set that provides their pixels."""


@dataclass(frozen=True, repr=False)
class Results:
    """The outcome of an experiment."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    sets: Sets
    missing: tuple[str, ...]
    """What could not be done, and why."""
    command: str
    created: str
    versions: dict[str, str]
    machine: dict[str, str | int]

    def __repr__(self) -> str:
        measured = sum(bool(cell.scores) for cell in self.cells)
        return f"Results({self.experiment.name}, {measured} of {len(self.cells)} cells measured)"

    @property
    def reproducing(self) -> tuple[Cell, ...]:
        """The cells of the paper's own variants."""
        return tuple(cell for cell in self.cells if cell.reproduces)

    @property
    def beyond(self) -> tuple[Cell, ...]:
        """The cells of all other variants."""
        return tuple(cell for cell in self.cells if not cell.reproduces)

    def drawn(self, column: Column) -> EpisodeSet | None:
        """The test episodes of a column, in the pixels of its first row; None if the data set is missing."""
        return next((drawn for (own, _), drawn in self.sets.items() if own == column), None)

    def episodes(self, column: Column) -> int:
        """How many test episodes a column has."""
        drawn = self.drawn(column)
        return drawn.episodes if drawn else 0

    def filled(self, column: Column) -> list[Cell]:
        """The cells of a column that have a result."""
        return [cell for cell in self.cells if cell.column == column and cell.scores]

    def pairs(self) -> list[Pair]:
        """All pairs of filled cells of a column; in a figure, which has many points, each point with its reference."""
        columns = self.experiment.columns
        if self.experiment.axis:
            return [each for column in columns for each in self.against_reference(column)]
        return [pair(*both) for column in columns for both in combinations(self.filled(column), 2)]

    def against_reference(self, column: Column) -> list[Pair]:
        """Each cell of a column minus its reference row of the same variant, or of the first variant that has it.

        The reference row itself is compared with its first variant.
        """
        cells = self.filled(column)
        found = []
        for cell in cells:
            wanted = (cell.row.against, self.experiment.reference)
            named = [[other for other in cells if other.row.label == label] for label in wanted]
            references = named[0] or named[1]
            same = [other for other in references if other.variant == cell.variant and other.row != cell.row]
            chosen = (same or references)[:1]
            if chosen and chosen[0].folders != cell.folders:
                found.append(pair(cell, chosen[0]))
        return found

    def as_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "source": self.experiment.source,
            "claim": self.experiment.claim,
            "created": self.created,
            "command": self.command,
            "versions": self.versions,
            "machine": self.machine,
            "test_episodes": {_set_title(*kind): drawn.as_json() for kind, drawn in self.sets.items()},
            "cells": [cell.as_json() for cell in self.reproducing],
            "beyond_the_paper": [cell.as_json() for cell in self.beyond],
            "pairs": [each.as_json() for each in self.pairs()],
            "missing": list(self.missing),
        }


def _set_title(column: Column, data: str) -> str:
    return column.title if data == column.data else f"{column.title}, pixels of {data}"


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """The value, or None for NaN, which JSON does not have."""
    return {key: None if math.isnan(value) else value for key, value in values.items()}
