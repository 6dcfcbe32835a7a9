"""What came out, beside what was published: cells with intervals and verdicts, and paired differences of methods.

Only `paper` and `authors` reproduce the paper. Cells of other variants go beyond it: they are listed apart, with what
their recipe adds, and are never said to agree. A cell whose network is not its row's own has no published number.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from handful.meta.manifest import Manifest
from handful.paper.additions import additions
from handful.paper.episode_set import EpisodeSet
from handful.paper.experiments import Column, Experiment, Row
from handful.paper.intervals import Comparison, Interval, Verdict, closed_interval, compare, open_interval
from handful.paper.measure import Measurement
from handful.paper.published import Figure

REPRODUCING = ("paper", "authors")
"""The variants that reproduce the paper; others go beyond it."""


@dataclass(frozen=True)
class Score:
    """One training seed's result."""

    manifest: Manifest
    measurement: Measurement
    folder: Path


def count_key(column: str, score: Score) -> str:
    """The name of a score's numbers of correct answers in the counts file; rows that share a run share it."""
    return f"{column}/{score.folder.name}"


@dataclass(frozen=True)
class Cell:
    """One row of one column in one variant: what the paper has, and ours over all training seeds."""

    row: Row
    column: Column
    variant: str
    recipe: str
    published: Figure | None
    scores: tuple[Score, ...]
    width: str = ""
    """The network that was trained, where it is not the row's own; no published number is then compared with."""

    @property
    def label(self) -> str:
        """The row's name, with the network where that is another, and the variant."""
        name = f"{self.row.label}, on {self.width}" if self.width else self.row.label
        return f"{name} · {self.variant}" if self.variant else name

    @property
    def reproduces(self) -> bool:
        """Whether the variant is one of the paper's own, so that the cell may agree with the paper or not."""
        return self.variant in ("", *REPRODUCING)

    @property
    def complete(self) -> bool:
        """Whether all runs behind it are complete, and trained by their recipes."""
        return bool(self.scores) and all(
            score.manifest.completion.complete and not score.manifest.altered for score in self.scores
        )

    @property
    def folders(self) -> tuple[Path, ...]:
        """The runs behind it; two rows may share them."""
        return tuple(score.folder for score in self.scores)

    @property
    def accuracies(self) -> Tensor:
        """The accuracy of each shared test episode, the mean over seeds."""
        return torch.stack([score.measurement.accuracies for score in self.scores]).mean(0)

    @property
    def apart(self) -> Tensor:
        """The accuracy of each episode that shares no image with another, the mean over seeds."""
        return torch.stack([score.measurement.apart for score in self.scores]).mean(0)

    @property
    def closed(self) -> Interval:
        """The mean with the interval that the paper uses."""
        return closed_interval(self.accuracies)

    @property
    def opened(self) -> Interval:
        """The mean over episodes without common images, with its interval."""
        return open_interval(self.apart)

    @property
    def over_seeds(self) -> Interval:
        """The mean over training seeds with its interval; not a number for one seed."""
        return open_interval(self.seed_means)

    @property
    def seed_means(self) -> Tensor:
        """The mean accuracy of each training seed."""
        return torch.stack([score.measurement.accuracies.mean() for score in self.scores])

    @property
    def comparison(self) -> Comparison | None:
        """Ours against the paper's, where both exist and the variant is the paper's own."""
        if self.published is None or not self.scores or not self.reproduces:
            return None
        return compare(self.closed, self.opened, self.published, self.seed_means)

    @property
    def verdict(self) -> Verdict | None:
        """Whether it agrees with the paper; runs in part allow none."""
        comparison = self.comparison
        return comparison.verdict if comparison and self.complete else None

    @property
    def shortfall(self) -> str:
        """In what the runs behind it fall short of the recipe, in words."""
        return "; ".join(dict.fromkeys(s.manifest.shortfall for s in self.scores if s.manifest.shortfall))

    @property
    def additions(self) -> tuple[str, ...]:
        """What the recipe has that the authors' of the same row has not, in words."""
        return additions(self.recipe, self.scores[0].manifest.recipe) if self.scores else ()

    def as_json(self) -> dict[str, Any]:
        """Plain values; `counts` names the arrays of the report's counts file, one for each training seed."""
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
                "closed": _finite(asdict(self.closed)),
                "open": _finite(asdict(self.opened)),
                "over_seeds": _finite(asdict(self.over_seeds)),
                "limits": self.scores[0].measurement.limits,
                "checkpoints": [score.measurement.checkpoint for score in self.scores],
                "counts": [count_key(self.column.title, score) for score in self.scores],
            },
            "comparison": None
            if comparison is None
            else {**_finite(asdict(comparison)), "within_open": comparison.within_open, "verdict": self.verdict},
            "complete": self.complete,
            "shortfall": self.shortfall,
            **({} if self.reproduces else {"adds": list(self.additions)}),
            "manifests": [score.manifest.as_json() for score in self.scores],
        }


@dataclass(frozen=True)
class Pair:
    """Two methods on the same episodes: the first less the second, episode by episode."""

    column: Column
    first: str
    second: str
    closed: Interval
    opened: Interval
    published: float | None
    """The difference of the published numbers, in percent points."""
    published_half: float = 0.0
    """Half the interval of that difference, as far as the paper gives it."""

    @property
    def firm(self) -> bool:
        """Whether the difference is more than other images of these classes might have given."""
        return self.opened.excludes_zero

    @property
    def same_order(self) -> bool | None:
        """Whether ours stand in the published order; None where either is too close to call or unknown."""
        if self.published is None or abs(self.published) <= self.published_half or not self.closed.excludes_zero:
            return None
        return (self.published > 0) == (self.closed.mean > 0)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "column": self.column.title,
            "first": self.first,
            "second": self.second,
            "closed": _finite(asdict(self.closed)),
            "open": _finite(asdict(self.opened)),
            "published": self.published,
            "published_half": self.published_half,
            "same_order": self.same_order,
        }


def pair(first: Cell, second: Cell) -> Pair:
    """The paired difference of two cells of one column."""
    ours, theirs = first.published, second.published
    both = min(len(first.accuracies), len(second.accuracies))  # one may have been tested on the first of them only
    apart = min(len(first.apart), len(second.apart))
    if not (first.reproduces and second.reproduces):
        ours = theirs = None
    return Pair(
        first.column,
        first.label,
        second.label,
        closed_interval(first.accuracies[:both] - second.accuracies[:both]),
        open_interval(first.apart[:apart] - second.apart[:apart]),
        ours.value - theirs.value if ours and theirs and first.row != second.row else None,
        math.hypot(ours.ci or 0.0, theirs.ci or 0.0) if ours and theirs else 0.0,
    )


Sets = dict[tuple[Column, str], EpisodeSet]
"""Test episodes by column and by the name of the data set whose pixels they have."""


@dataclass(frozen=True)
class Results:
    """An experiment's outcome."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    sets: Sets
    missing: tuple[str, ...]
    """What could not be done, and why."""
    command: str
    created: str
    versions: dict[str, str]
    machine: dict[str, str | int]

    @property
    def reproducing(self) -> tuple[Cell, ...]:
        """The cells of the paper's own variants."""
        return tuple(cell for cell in self.cells if cell.reproduces)

    @property
    def beyond(self) -> tuple[Cell, ...]:
        """The cells of all others."""
        return tuple(cell for cell in self.cells if not cell.reproduces)

    def drawn(self, column: Column) -> EpisodeSet | None:
        """The test episodes of a column, in the pixels of its first row; None where the data is not there."""
        return next((drawn for (own, _), drawn in self.sets.items() if own == column), None)

    def episodes(self, column: Column) -> int:
        """How many test episodes a column has."""
        drawn = self.drawn(column)
        return drawn.episodes if drawn else 0

    def filled(self, column: Column) -> list[Cell]:
        """The cells of a column that have a result."""
        return [cell for cell in self.cells if cell.column == column and cell.scores]

    def pairs(self) -> list[Pair]:
        """Every two filled cells of a column; of a figure, which has many points, each point and its reference."""
        columns = self.experiment.columns
        if self.experiment.axis:
            return [each for column in columns for each in self.against_reference(column)]
        return [pair(*both) for column in columns for both in combinations(self.filled(column), 2)]

    def against_reference(self, column: Column) -> list[Pair]:
        """Each cell of a column less its reference row of the same variant, or of the first variant that has it.

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
            "test_episodes": {_set_title(*kind): _set_facts(drawn) for kind, drawn in self.sets.items()},
            "cells": [cell.as_json() for cell in self.reproducing],
            "beyond_the_paper": [cell.as_json() for cell in self.beyond],
            "pairs": [each.as_json() for each in self.pairs()],
            "missing": list(self.missing),
        }


def _set_title(column: Column, data: str) -> str:
    return column.title if data == column.data else f"{column.title}, pixels of {data}"


def _set_facts(drawn: EpisodeSet) -> dict[str, Any]:
    return {
        "sha256": drawn.digest,
        "episodes": drawn.episodes,
        "query": drawn.query,
        "seed": drawn.seed,
        "episodes_apart": len(drawn.apart.rows),
        "query_apart": drawn.apart.query,
    }


def _finite(values: dict[str, float]) -> dict[str, float | None]:
    """JSON has no word for not-a-number."""
    return {key: None if math.isnan(value) else value for key, value in values.items()}
