"""The paper's numbers as data: Bertinetto, Henriques, Torr and Vedaldi, ICLR 2019, tables 1 to 4.

Accuracies are in percent, with half the 95% interval if there is one. A row names the recipes that rerun it. Rows
that the paper quotes from elsewhere are rerun as their own authors train them, only in the variant `authors`.
"""

from __future__ import annotations

from dataclasses import dataclass

from handful.paper.recipes import NAMED
from handful.paper.recipes.own import BINARY, SETTINGS

SOURCE = "Bertinetto et al., Meta-learning with differentiable closed-form solvers, ICLR 2019"
TITLES = {"mini-imagenet": "miniImageNet", "cifar-fs": "CIFAR-FS", "omniglot": "Omniglot"}
BINARY_SIZE = 32
"""Images per two-way training episode."""


@dataclass(frozen=True)
class Figure:
    """A published number in percent, with half its interval if there is one, and its rounding."""

    value: float
    ci: float | None = None
    digits: int = 1

    def __str__(self) -> str:
        shown = f"{self.value:.{self.digits}f}"
        return shown if self.ci is None else f"{shown} ± {self.ci:.{self.digits}f}"


@dataclass(frozen=True)
class Column:
    """One kind of test episode: a group of experiments (a data set, or its two-way problems), ways and shots."""

    group: str
    way: int
    shot: int

    @property
    def data(self) -> str:
        """The data set's name."""
        return self.group.removesuffix(BINARY)

    @property
    def title(self) -> str:
        """The column's heading."""
        return f"{TITLES.get(self.data, self.data)} {self.way}-way {self.shot}-shot"

    def query(self, images: int) -> int:
        """Queries per class: as many as fill the S images of a training episode, if the class has enough `images`."""
        size = BINARY_SIZE if self.group.endswith(BINARY) else SETTINGS[self.data].size
        return min(size // self.way, images) - self.shot


@dataclass(frozen=True)
class Row:
    """A method: the stems of its recipes, its published numbers by column, and its position in a plot."""

    label: str
    stems: tuple[str, ...]
    numbers: tuple[Figure | None, ...]
    line: str = ""
    x: float | None = None
    against: str = ""
    """The row to compare with, episode by episode, if it is not the experiment's reference."""
    only: tuple[Column, ...] | None = None
    """The columns of this row, if not all."""

    def recipe_name(self, column: Column, variant: str) -> str | None:
        """The recipe for this row's cell: one for all problems, or one for the column's shots, ways or both."""
        names = (
            name
            for stem in self.stems
            for name in (
                f"{column.group}/{stem}/{variant}",
                f"{column.group}/{stem}-{column.shot}shot/{variant}",
                f"{column.group}/{stem}-{column.way}way/{variant}",
                f"{column.group}/{stem}-{column.way}way-{column.shot}shot/{variant}",
            )
        )
        return next((name for name in names if name in NAMED), None)


def figure(text: str) -> Figure | None:
    """Parse a number as the paper prints it: '62.3±0.2', '57', or '-' for none."""
    if text == "-":
        return None
    value, _, ci = text.partition("±")
    digits = len(value.partition(".")[2])
    return Figure(float(value), float(ci) if ci else None, digits)


def _row(label: str, stems: str, numbers: str) -> Row:
    return Row(label, tuple(stems.split()), tuple(figure(word) for word in numbers.split()))


TABLE_1 = (
    _row("Matching net", "matching-fce-64C", "44.2 57 - -"),
    _row("MAML", "maml-64C maml-32C", "48.7±1.8 63.1±0.9 58.9±1.9 71.5±1.0"),
    _row("MAML *", "maml-wide", "40.9±1.5 58.9±0.9 53.8±1.8 67.6±1.0"),
    _row("Meta-LSTM", "meta-lstm-32C", "43.4±0.8 60.6±0.7 - -"),
    _row("Proto net", "protonet-64C", "47.4±0.6 65.4±0.5 55.5±0.7 72.0±0.6"),
    _row("Proto net *", "protonet-wide", "42.9±0.6 65.9±0.6 57.9±0.8 76.7±0.6"),
    _row("Relation net", "relation-64C", "50.4±0.8 65.3±0.7 55.0±1.0 69.3±0.8"),
    _row("SNAIL (ResNet)", "snail-resnet", "55.7±1.0 68.9±0.9 - -"),
    _row("SNAIL (32C)", "snail-32C", "45.1 55.2 - -"),
    _row("GNN", "gnn-net gnn-64C", "50.3 66.4 61.9 75.3"),
    _row("GNN *", "gnn-wide", "50.3 68.2 56.0 72.5"),
    _row("R2-D2 (64C)", "r2d2-64C", "49.5±0.2 65.4±0.2 62.3±0.2 77.4±0.2"),
    _row("R2-D2", "r2d2-wide", "51.8±0.2 68.4±0.2 65.4±0.2 79.4±0.2"),
    _row("LR-D2 (1 iteration)", "lrd2-1steps-wide", "51.0±0.2 65.6±0.2 64.5±0.2 75.8±0.2"),
    _row("LR-D2 (5 iterations)", "lrd2-5steps-wide", "51.9±0.2 68.7±0.2 65.3±0.2 78.3±0.2"),
)
"""miniImageNet 5-way 1-shot and 5-shot, CIFAR-FS 5-way 1-shot and 5-shot."""

TABLE_2 = (
    _row("Siamese net", "siamese-64C", "96.7 98.4 88 96.5"),
    _row("Matching net", "matching-64C", "98.1 98.9 93.8 98.5"),
    _row("MAML", "maml-64C", "98.7±0.4 99.9±0.1 95.8±0.3 98.9±0.2"),
    _row("Proto net", "protonet-64C", "98.5±0.2 99.5±0.1 95.3±0.2 98.7±0.1"),
    _row("SNAIL", "snail-64C", "99.07±0.16 99.77±0.09 97.64±0.30 99.36±0.18"),
    _row("GNN", "gnn-net", "99.2 99.7 97.4 99.0"),
    _row("R2-D2 (64C)", "r2d2-64C", "98.55±0.05 99.66±0.02 94.70±0.05 98.91±0.02"),
    _row("R2-D2", "r2d2-wide", "98.91±0.05 99.74±0.02 96.24±0.05 99.20±0.02"),
)
"""Omniglot 5-way 1-shot and 5-shot, 20-way 1-shot and 5-shot."""

TABLE_3 = (
    _row("MAML", "maml-64C maml-32C", "74.9±3.0 84.4±1.2 82.8±2.7 88.3±1.1"),
    _row("Proto nets", "protonet-64C", "71.7±1.0 84.8±0.7 76.4±0.9 88.5±0.6"),
    _row("Relation net", "relation-64C", "76.2±1.2 86.8±1.0 75.0±1.5 86.7±0.9"),
    _row("GNN", "gnn-net gnn-64C", "78.4 87.1 79.3 89.1"),
    _row("R2-D2", "r2d2-wide", "77.4±0.3 86.8±0.2 84.1±0.3 91.7±0.2"),
    _row("LR-D2 (10 iterations)", "lrd2-wide", "78.1±0.3 86.5±0.2 84.7±0.3 91.5±0.2"),
)
"""miniImageNet 2-way 1-shot and 5-shot, CIFAR-FS 2-way 1-shot and 5-shot."""

BEYOND_TABLE_1 = (
    _row("Relation net (inductive)", "relation-inductive-64C", "- - - -"),
    _row("LR-D2 (1 iteration, 64C)", "lrd2-1steps-64C", "- - - -"),
    _row("LR-D2 (5 iterations, 64C)", "lrd2-5steps-64C", "- - - -"),
)
"""Rows that the paper does not have, with the columns of table 1.

RelationNet's own evaluation normalises all queries of an episode together, so each sees the others. The inductive
row trains the same model and tests it without that.
"""

BEYOND_TABLE_3 = (_row("Relation net (inductive)", "relation-inductive-64C", "- - - -"),)
"""A row that the paper does not have, with the columns of table 3."""

APPENDIX_A = (
    _row("R2-D2", "r2d2-wide", "51.8±0.2 68.4±0.2 65.4±0.2 79.4±0.2"),
    _row("Pre-trained + ridge", "transfer-wide", "38.0 56.8 53.9 73.5"),
    _row("R2-D2 (64C)", "r2d2-64C", "49.5±0.2 65.4±0.2 62.3±0.2 77.4±0.2"),
    _row("Pre-trained + ridge (64C)", "transfer-64C", "- - - -"),
)
"""Columns of table 1. The paper gives drops against R2-D2 (-13.8, -11.6, -11.5, -5.9); these are R2-D2's less them."""

TABLE_4 = {
    "R2-D2": 83.0,
    "R2-D2 (64C)": 64.0,
    "MAML (32C)": 395.0,
    "LR-D2, one against the rest, 1 iteration (32C)": 348.0,
    "R2-D2 (32C)": 57.0,
    "Proto nets (32C)": 24.0,
}
"""Seconds for 10,000 5-way 1-shot episodes of 10 images of 84 x 84 on one GTX 1080, by row."""
