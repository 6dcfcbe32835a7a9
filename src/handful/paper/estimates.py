"""What the paper's runs would take, as a table to keep: measured here, and computed for a GPU from operations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handful import data
from handful._io import write_atomically
from handful.data.table import Benchmark
from handful.errors import DataError, InvalidOptionError
from handful.meta.manifest import machine, now, versions
from handful.paper.estimate import GPU_FLOPS, Estimate, estimate
from handful.paper.experiments import EXPERIMENTS
from handful.paper.forecast import cost_of, time_told
from handful.paper.jobs import Job
from handful.paper.rerun import Options, plan_cells
from handful.paper.tables import Lines, markdown

NAME = "reproduce-estimates"
TITLE = "What the paper's experiments would take"
HEAD = ("Recipe", "and", "images", "s / update", "s / episode", "s / validation", "episodes", "here", "GFLOP", "GPU")
Cost = tuple[object, ...]


@dataclass(frozen=True)
class Priced:
    """Runs that cost the same, and the measurement of the first."""

    jobs: tuple[Job, ...]
    cost: Estimate

    @property
    def images(self) -> int:
        """Images of one update."""
        recipe = self.cost.job.recipe
        return recipe.way * recipe.images_per_class * recipe.plan.episodes_per_step

    def line(self) -> tuple[str, ...]:
        """A row in words."""
        cost, plan = self.cost, self.cost.job.recipe.plan
        return (
            self.jobs[0].name,
            f"{len(self.jobs) - 1} more" if len(self.jobs) > 1 else "",
            f"{self.images:,}",
            f"{cost.update:.3g}",
            f"{cost.update / plan.episodes_per_step:.3g}",
            f"{cost.validation:.1f}",
            f"{plan.episodes:,}",
            time_told(cost.whole),
            f"{cost.operations / 1e9:,.0f}",
            time_told(3600 * cost.gpu_hours),
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        cost, plan = self.cost, self.cost.job.recipe.plan
        return {
            "recipes": [job.name for job in self.jobs],
            "images_per_update": self.images,
            "seconds_per_update": cost.update,
            "seconds_per_episode": cost.update / plan.episodes_per_step,
            "seconds_per_validation": cost.validation,
            "episodes": plan.episodes,
            "hours_here": cost.whole / 3600,
            "operations_per_update": cost.operations,
            "gpu_hours_estimated": cost.gpu_hours,
            "measured_on": cost.measured_on,
        }


def distinct_costs(options: Options, words: tuple[str, ...]) -> dict[Cost, tuple[Job, ...]]:
    """The runs of all tables and figures whose recipe's name contains a word; those of equal cost together."""
    found: dict[Cost, dict[str, Job]] = {}
    for experiment in EXPERIMENTS.values():
        for _, own in plan_cells(experiment, options):
            for job in own[:1]:
                if not words or any(word.lower() in job.name.lower() for word in words):
                    found.setdefault(cost_of(job.recipe), {})[job.name] = job
    if not found:
        raise InvalidOptionError(f"No recipe's name contains {' or '.join(words)}. `handful recipes` lists them.")
    return {key: tuple(jobs.values()) for key, jobs in found.items()}


def price_all(options: Options, words: tuple[str, ...], say: Callable[[str], None]) -> list[Priced]:
    """Measure each distinct cost, in the order of names, and tell each."""
    costs = distinct_costs(options, words)
    benchmarks = {name: _benchmark(name) for name in {jobs[0].recipe.data for jobs in costs.values()}}
    priced = []
    for number, jobs in enumerate(sorted(costs.values(), key=lambda jobs: jobs[0].name), 1):
        cost = estimate(jobs[0], benchmarks[jobs[0].recipe.data])
        priced.append(Priced(jobs, cost))
        say(f"[{number}/{len(costs)}] {jobs[0].name}: {cost.update:.3g} s an update, {time_told(cost.whole)} in all")
    return priced


def _benchmark(name: str) -> Benchmark | None:
    try:
        return data.load(name)
    except DataError:
        return None


def write_estimates(priced: list[Priced], out: Path, command: str) -> list[Path]:
    """Write reproduce-estimates.json and .md; their paths."""
    here = machine()
    noise = sorted({each.cost.job.recipe.data for each in priced if each.cost.on_noise})
    told = [
        f"Measured on {here['processor']}, {here['threads']} threads of {here['cores']}: the mean of up to five "
        f"updates after the first, and a validation scaled up from a part of its images and episodes. 'Here' is the "
        f"whole recipe with its validations; 'and' counts recipes of equal cost. Runs may end sooner.",
        f"GPU times are an ESTIMATE, not a measurement: the operations that torch counts in an update, at an assumed "
        f"{GPU_FLOPS / 1e12:g} TFLOP/s sustained, without validation and without waiting for kernels or data.",
    ]
    if noise:
        told.append(f"{', '.join(noise)}: timed on noise images of the same size, for the data set is not there.")
    facts = {
        "title": TITLE,
        "created": now(),
        "command": command,
        "machine": here,
        "versions": versions(),
        "gpu_flops_assumed": GPU_FLOPS,
        "runs": [each.as_json() for each in priced],
    }
    table = markdown(Lines(TITLE, HEAD, tuple(each.line() for each in priced)))
    text = "\n\n".join([f"# {TITLE}", *told, table, f"Repeat it with `{command}` (made {now()})."]) + "\n"
    paths = [out / f"{NAME}.json", out / f"{NAME}.md"]
    for path, content in zip(paths, (json.dumps(facts, indent=1, allow_nan=False), text), strict=True):
        write_atomically(path, content.encode())
    return paths
