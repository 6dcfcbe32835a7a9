"""How time and memory of an evaluation grow, one quantity at a time, and with which exponent."""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.contest import Setting, run_module
from benchmarks.material import random_split
from handful import evaluate, keep_freed_memory
from handful.episodes import EpisodeSampler, FixedShots
from handful.learners import R2D2
from handful.meta.model import FewShotModel

ROUTES = ("features", "gram", "tiles")


@dataclass(frozen=True)
class Case:
    """One evaluation after embedding; all but one quantity stay at these values."""

    episodes: int = 2000
    way: int = 5
    shot: int = 1
    features: int = 512
    pool: int = 4000


AXES: dict[str, tuple[int, ...]] = {
    "episodes": (1000, 2000, 4000, 8000, 16000, 32000),
    "way": (2, 4, 8, 16, 32),
    "shot": (1, 2, 4, 8, 16),
    "features": (256, 512, 1024, 2048, 4096),
    "pool": (1000, 2000, 4000, 8000),
}


def measure(case: Case, route: str, answer: Connection) -> None:
    """Time (the better of two runs if they are short) and memory beyond the libraries', in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    keep_freed_memory()
    dataset = random_split(40, case.pool // 40, 2)
    pool = torch.randn(case.pool, case.features, generator=torch.Generator().manual_seed(0))
    model = FewShotModel(nn.Identity(), R2D2())
    taken: list[float] = []
    while len(taken) < 2 and sum(taken) < 0.5:
        begun = time.process_time()
        evaluate(
            model, EpisodeSampler(dataset, FixedShots(case.way, case.shot, 8)), case.episodes, pool=pool, route=route
        )  # type: ignore[arg-type]
        taken.append(time.process_time() - begun)
    answer.send((min(taken), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))


def points() -> dict[str, dict[str, list[tuple[float, float]]]]:
    """For each axis and route, seconds and megabytes at each value."""
    fork = multiprocessing.get_context("fork")
    done: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for axis, values in AXES.items():
        done[axis] = {route: [] for route in ROUTES}
        for value in values:
            for route in ROUTES:
                ours, theirs = fork.Pipe()
                process = fork.Process(target=measure, args=(replace(Case(), **{axis: value}), route, theirs))
                process.start()
                theirs.close()  # so that the end of a process that failed is seen
                done[axis][route].append(ours.recv())
                process.join()
    return done


def exponent(values: Iterable[float], measured: Iterable[float]) -> float:
    """The slope of the last three points on logarithmic axes: constant costs weigh least there."""
    x = [math.log(value) for value in values][-3:]
    y = [math.log(max(value, 1e-9)) for value in measured][-3:]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return above / sum((a - mean_x) ** 2 for a in x)


def growth(setting: Setting, picture: Path) -> list[tuple[str, str, float, float]]:
    """Axis, route, exponent of time, exponent of memory; and a picture of all points."""
    measured: dict[str, dict[str, list[tuple[float, float]]]] = run_module("benchmarks.growth", setting)
    draw(measured, picture)
    rows = []
    for axis, routes in measured.items():
        for route, found in routes.items():
            time_slope, memory_slope = (exponent(AXES[axis], [point[k] for point in found]) for k in (0, 1))
            rows.append((axis, route, time_slope, memory_slope))
    return rows


def draw(measured: dict[str, dict[str, list[tuple[float, float]]]], path: Path) -> None:
    """Two rows of panels, time above memory, one column a quantity."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot, ticker

    mpl.rcParams["svg.hashsalt"] = "handful"
    figure, axes = pyplot.subplots(2, len(measured), figsize=(3.4 * len(measured), 6.2), layout="constrained")
    style: dict[str, Any] = {"features": ("#0072b2", "o"), "gram": ("#d55e00", "s"), "tiles": ("#009e73", "^")}
    for column, (axis, routes) in enumerate(measured.items()):
        for route, found in routes.items():
            colour, marker = style[route]
            for row in (0, 1):
                values = [point[row] for point in found]
                label = f"{route}, exponent {exponent(AXES[axis], values):.2f}"
                axes[row, column].loglog(AXES[axis], values, color=colour, marker=marker, markersize=4, label=label)
        axes[0, column].set_title(f"number of {axis}" if axis == "episodes" else axis)
        axes[1, column].set_xlabel("images in the pool" if axis == "pool" else axis)
        for row in (0, 1):
            axes[row, column].legend(fontsize=7, frameon=False)
            axes[row, column].grid(alpha=0.25)
            axes[row, column].set_xticks(AXES[axis], [f"{value:,}" for value in AXES[axis]], fontsize=7)
            axes[row, column].xaxis.set_minor_locator(ticker.NullLocator())
            axes[row, column].yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
            axes[row, column].yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
            axes[row, column].yaxis.set_minor_formatter(ticker.NullFormatter())
    axes[0, 0].set_ylabel("seconds")
    axes[1, 0].set_ylabel("megabytes")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    torch.set_num_threads(1)
    json.dump(points(), sys.stdout)
