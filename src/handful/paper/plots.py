"""Pictures of results: numbers next to the paper's, curves over a hyper-parameter, and learning curves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from handful.meta.run import read_log
from handful.paper.published import Column
from handful.paper.results import Cell, Results
from handful.report.page import Picture
from handful.report.plots import svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS, PAPER = "#0b6bcb", "#d1495b"
LINES = ("#0b6bcb", "#d1495b", "#2e8b57", "#8a5cc2", "#c77d0a")


def beside_picture(results: Results) -> Picture | None:
    """One panel per column: each row's published number and ours, with intervals; None if nothing was measured."""
    columns = [column for column in results.experiment.columns if results.filled(column)]
    if not columns:
        return None
    known = [cell for cell in results.cells if cell.scores or cell.published is not None]
    cells = [[cell for cell in known if cell.column == column] for column in columns]
    canvas, axes = panels(len(columns), height=1.0 + 0.27 * max(map(len, cells)))
    for number, (place, column) in enumerate(zip(axes, columns, strict=True)):
        _beside(place, cells[number], column)
        if number % 2 and [cell.label for cell in cells[number]] == [cell.label for cell in cells[number - 1]]:
            place.tick_params(labelleft=False)
    handles, labels = axes[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return svg(canvas, f"Published and measured accuracies of {results.experiment.title}")


def _beside(place: Any, cells: list[Cell], column: Column) -> None:
    for y, cell in enumerate(cells):
        if cell.published is not None:
            place.errorbar(
                cell.published.value, y - 0.14, xerr=cell.published.ci or 0, fmt="D", color=PAPER, markersize=4,
                linewidth=1.2, label="the paper" if y == _first(cells, paper=True) else None,
            )  # fmt: skip
        if cell.scores:
            mean, half = 100 * cell.ours.closed.mean, 100 * cell.ours.closed.half
            wide = 0 if math.isnan(cell.ours.opened.half) else 100 * cell.ours.opened.half
            place.plot([mean - wide, mean + wide], [y + 0.14] * 2, color=OURS, alpha=0.25, linewidth=4,
                       solid_capstyle="butt", label="open interval" if y == _first(cells) else None)  # fmt: skip
            place.errorbar(
                mean, y + 0.14, xerr=half, fmt="o", color=OURS, markersize=5, linewidth=1.2,
                markerfacecolor=OURS if cell.complete else "white",
                label="ours (hollow: trained in part)" if y == _first(cells) else None,
            )  # fmt: skip
    place.set_yticks(range(len(cells)), [cell.label for cell in cells])
    place.set_ylim(len(cells) - 0.4, -0.6)
    low, high = place.get_xlim()
    place.set_xlim(max(0.0, low), min(100.5, high))
    place.set_title(column.title, fontsize=10, loc="left")
    place.set_xlabel("accuracy, %", fontsize=9)


def _first(cells: list[Cell], paper: bool = False) -> int:
    return next((y for y, cell in enumerate(cells) if (cell.published if paper else cell.scores)), -1)


def lines_picture(results: Results) -> Picture | None:
    """One panel per column and kind of x: one line per method over x, with the closed interval as a band."""
    groups = _groups(results)
    if not groups:
        return None
    canvas, axes = panels(len(groups), height=3.1)
    for place, ((column, kind), lines) in zip(axes, groups.items(), strict=True):
        for colour, (name, cells) in zip(LINES * 3, lines.items(), strict=False):
            _line(place, name, sorted(cells, key=lambda cell: cell.row.x or 0.0), colour)
        place.set_title(column.title, fontsize=10, loc="left")
        place.set_xlabel({"steps": "steps of the base learner", "alpha": "start of alpha"}.get(kind, kind), fontsize=9)
        place.set_ylabel("accuracy, %", fontsize=9)
        if kind == "steps":
            place.set_xticks(sorted({cell.row.x for cells in lines.values() for cell in cells if cell.row.x}))
        else:
            place.set_xscale("log")
        place.legend(frameon=False, fontsize=8)
    _same_heights(axes, [column for column, _ in groups])
    return svg(canvas, results.experiment.title)


def _groups(results: Results) -> dict[tuple[Column, str], dict[str, list[Cell]]]:
    """The measured points by panel and by line."""
    several = len({cell.variant for cell in results.cells if cell.scores}) > 1
    groups: dict[tuple[Column, str], dict[str, list[Cell]]] = {}
    for column in results.experiment.columns:
        for cell in results.filled(column):
            if cell.row.x is not None:
                kind = cell.row.line.partition(" ")[0] if "lambda" in results.experiment.axis else "steps"
                line = f"{cell.row.line} · {cell.variant}" if several else cell.row.line
                groups.setdefault((column, kind), {}).setdefault(line, []).append(cell)
    return groups


def _same_heights(axes: list[Any], columns: list[Column]) -> None:
    """Panels of one column of the experiment get the same y axis, so that they can be compared."""
    for column in set(columns):
        own = [place for place, each in zip(axes, columns, strict=True) if each == column]
        limits = [place.get_ylim() for place in own]
        for place in own:
            place.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _line(place: Any, name: str, cells: list[Cell], colour: str) -> None:
    xs = [cell.row.x for cell in cells]
    means, halves = [100 * cell.ours.closed.mean for cell in cells], [100 * cell.ours.closed.half for cell in cells]
    inside = ["white" if not cell.complete else colour for cell in cells]  # hollow: trained in part
    place.plot(xs, means, color=colour, linewidth=1.6, label=name)
    place.scatter(xs, means, s=18, facecolors=inside, edgecolors=colour, linewidths=1.2, zorder=3)
    low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
    place.fill_between(xs, low, high, color=colour, alpha=0.18, linewidth=0)


def curves_of(results: Results) -> dict[str, list[tuple[int, float]]]:
    """The mean validation score of each run while it trained, from its log."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for score in (score for cell in results.cells for score in cell.scores):
        seed = score.manifest.recipe.seed
        scored = [(episode, scores) for episode, scores in read_log(score.folder) if scores]
        curve = [(episode, sum(scores.values()) / len(scores)) for episode, scores in scored]
        if len(curve) > 1:
            curves.setdefault(score.manifest.name + (f", seed {seed}" if seed else ""), curve)
    return curves


def panels(count: int, height: float) -> tuple[Figure, list[Any]]:
    """A canvas with this many panels, each of this height in inches, at most two side by side."""
    from matplotlib.figure import Figure

    across = min(2, count)
    down = -(-count // across)
    canvas = Figure(figsize=(9.2 if across > 1 else 6.4, height * down), layout="constrained")
    grid = canvas.subplots(down, across, squeeze=False).flatten().tolist()
    for place in grid[count:]:
        place.remove()
    for place in grid[:count]:
        place.grid(alpha=0.25)
        place.spines[["top", "right"]].set_visible(False)
        place.tick_params(labelsize=9)
    return canvas, grid[:count]
