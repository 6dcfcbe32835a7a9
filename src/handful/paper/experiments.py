"""The experiments by name: their rows and columns, and the recipe for each cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from handful.errors import InvalidOptionError
from handful.paper import published
from handful.paper.published import Column, Row
from handful.paper.recipes.beyond import ADDITIONS
from handful.paper.recipes.own import BINARY, SWITCHES
from handful.paper.recipes.sweeps import DATA, LAM_KINDS, LAMBDAS, SCALE_KINDS, SCALES, STEPS

_WIDE = "R2-D2"
"""The row of R2-D2 on the paper's own, wide net."""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper."""

    name: str
    title: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    reference: str
    """The row that the others are compared with, episode by episode."""
    claim: str
    """What the paper says about it."""
    axis: str = ""
    """What x is, for a figure."""
    variants: tuple[str, ...] = ("authors",)
    """Which recipes are trained unless others are asked for."""
    split: Literal["test", "val"] = "test"
    """The classes to test on; `val` for experiments that choose between recipes."""


_TABLE_1_COLUMNS = tuple(Column(data, 5, shot) for data in ("mini-imagenet", "cifar-fs") for shot in (1, 5))
_TABLE_2_COLUMNS = tuple(Column("omniglot", way, shot) for way in (5, 20) for shot in (1, 5))
_TABLE_3_COLUMNS = tuple(Column(f"{d}{BINARY}", 2, shot) for d in ("mini-imagenet", "cifar-fs") for shot in (1, 5))


def _rows(*tables: Iterable[Row]) -> tuple[Row, ...]:
    """The rows of a table; those with the wide net are compared with R2-D2 on the wide net."""
    return tuple(
        replace(row, against=_WIDE) if row.label != _WIDE and all(s.endswith("-wide") for s in row.stems) else row
        for table in tables
        for row in table
    )


def _source(where: str) -> str:
    return f"{published.SOURCE}, {where}"


def _iterations() -> tuple[Row, ...]:
    none = (None,) * 4
    rows: list[Row] = []
    for steps in STEPS:
        word = "1 step" if steps == 1 else f"{steps} steps"
        maml = (f"maml-{steps}steps-64C", f"maml-{steps}steps-32C")
        rows += [
            Row(f"R2-D2, beside {word}", ("r2d2-wide",), none, "R2-D2 (no steps)", steps, against=f"LR-D2, {word}"),
            Row(f"LR-D2, {word}", (f"lrd2-{steps}steps-wide",), none, "LR-D2", steps),
            Row(f"MAML, {word}", maml, none, "MAML", steps, against=f"LR-D2, {word}"),
        ]
    return tuple(rows)


def _hyperparameters(name: str) -> tuple[Row, ...]:
    grid, kinds, word = (LAMBDAS, LAM_KINDS, "lambda") if name == "lam" else (SCALES, SCALE_KINDS, "alpha")
    rows = []
    for kind in kinds:
        how = kind.partition("-")[2]
        for value in grid:
            against = f"{word} fixed, {10 if how == 'fixed' else value:g}"
            stem, line = f"r2d2-{kind}-{value:g}-wide", f"{word} {how}"
            rows.append(Row(f"{line}, {value:g}", (stem,), (None,) * 4, line, value, against))
    return tuple(rows)


def _ablation() -> tuple[Row, ...]:
    none = (None,) * 4
    changed = (Row(name.replace("-", " "), (f"r2d2-64C-{name}",), none) for name in SWITCHES)
    return (Row("the variant `authors`", ("r2d2-64C",), none), *changed)


def _beyond() -> tuple[Row, ...]:
    none = (None,) * 2
    added = (Row(each.label, (f"r2d2-64C-{name}",), none) for name, each in ADDITIONS.items())
    reconstruction = Row("feature map reconstruction", ("frn-64C",), none)
    return (Row("the variant `modern`", ("r2d2-64C",), none), *added, reconstruction)


_SWEEP_COLUMNS = tuple(Column(data, 5, shot) for data in DATA for shot in (1, 5))

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "table1",
            "Table 1: many-way accuracies on miniImageNet and CIFAR-FS",
            _source("table 1"),
            _TABLE_1_COLUMNS,
            _rows(published.TABLE_1, published.BEYOND_TABLE_1),
            "R2-D2 (64C)",
            "R2-D2 is better than every method with a shallow network, LR-D2 with five iterations is as good, and more "
            "filters do not help the other methods much.",
        ),
        Experiment(
            "table2",
            "Table 2: accuracies on Omniglot",
            _source("table 2"),
            _TABLE_2_COLUMNS,
            _rows(published.TABLE_2),
            "R2-D2 (64C)",
            "R2-D2 is among the best for all four problems.",
        ),
        Experiment(
            "table3",
            "Table 3: two-way accuracies on miniImageNet and CIFAR-FS",
            _source("table 3"),
            _TABLE_3_COLUMNS,
            _rows(published.TABLE_3, published.BEYOND_TABLE_3),
            "R2-D2",
            "R2-D2 and LR-D2 are at least as good as the other methods in two-way problems.",
        ),
        Experiment(
            "figure-iterations",
            "Figure: two-way accuracy by the number of steps of the base learner",
            _source("figure of section 4.2"),
            _TABLE_3_COLUMNS,
            _iterations(),
            "LR-D2, 1 step",
            "LR-D2 is superior to MAML, especially for a higher number of steps.",
            "steps of the base learner",
        ),
        Experiment(
            "figure-hyperparameters",
            "Figure: accuracy with lambda fixed, learnt or diagonal, and with alpha fixed or learnt",
            _source("figure of appendix C"),
            _SWEEP_COLUMNS,
            (*_hyperparameters("lam"), *_hyperparameters("scale")),
            "lambda fixed, 10",
            "Learning alpha is very important and recovers from poor starts in [1e-3, 1]; learning lambda is "
            "indifferent; the diagonal prior is no better and breaks down for lambda > 0.01.",
            "lambda, or the start of alpha",
        ),
        Experiment(
            "appendix-a",
            "Appendix A: pre-trained features with ridge regression against R2-D2",
            _source("appendix A; the rows of pre-trained features are table 1 less the drops that the text gives"),
            _TABLE_1_COLUMNS,
            _rows(published.APPENDIX_A),
            "R2-D2 (64C)",
            "Pre-trained features with the same ridge regression lose 13.8 and 11.6 points on miniImageNet, 11.5 and "
            "5.9 on CIFAR-FS, in 1-shot and 5-shot problems.",
        ),
        Experiment(
            "ablation",
            "Ablation: R2-D2 64C by the variant `authors`, one detail changed at a time",
            "not in the paper: the details that its text leaves out",
            _SWEEP_COLUMNS,
            _ablation(),
            "the variant `authors`",
            "Of these details the text mentions dropout, the concatenation, the number of ways and the random shots.",
        ),
        Experiment(
            "beyond",
            "Beyond the paper: what R2-D2 64C gains from other training, on validation classes",
            "not in the paper: choices that are made before the test classes are looked at",
            _TABLE_1_COLUMNS[2:],
            _beyond(),
            "the variant `modern`",
            "It trains this network without augmentation, on one episode per update.",
            variants=("modern",),
            split="val",
        ),
    )
}


def narrowed(experiment: Experiment, words: tuple[str, ...]) -> Experiment:
    """The experiment with only those rows and columns whose `GROUP/LABEL STEMS` contains one of the words."""
    if not words:
        return experiment

    def wanted(column: Column, row: Row) -> bool:
        stems = " ".join(f"{column.group}/{stem}" for stem in row.stems)
        names = f"{column.group}/{row.label} {stems}".lower()
        return any(word.lower() in names for word in words)

    rows = [row for row in experiment.rows if any(wanted(column, row) for column in experiment.columns)]
    if not rows:
        known = ", ".join(dict.fromkeys(row.label for row in experiment.rows))
        raise InvalidOptionError(
            f"No row of {experiment.name} contains {' or '.join(map(repr, words))}. Its rows: {known}. "
            f"Its groups: {', '.join(dict.fromkeys(column.group for column in experiment.columns))}."
        )
    kept = [i for i, column in enumerate(experiment.columns) if any(wanted(column, row) for row in rows)]
    return replace(
        experiment,
        columns=tuple(experiment.columns[i] for i in kept),
        rows=tuple(
            replace(
                row,
                numbers=tuple(row.numbers[i] for i in kept),
                only=tuple(column for column in experiment.columns if wanted(column, row)),
            )
            for row in rows
        ),
    )
