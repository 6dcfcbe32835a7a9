"""The runs that an experiment needs: one folder a recipe and seed, trained as far as the time allows, resumable.

A run is known by its recipe: one that was made by hand is taken for an experiment's own when its folder, whatever its
name, stands beside the others and its recipe is the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from handful.data.table import Benchmark
from handful.errors import CheckpointError, DivergedError
from handful.recipes import NAMED, Recipe
from handful.recipes.settings import Schedule, Width
from handful.reproduce.manifest import Manifest, Record
from handful.runs import RECIPE, Run, read_recipe
from handful.training import Progress

Watch = Callable[[str, int, Iterator[Progress]], Iterable[Progress]]
"""Shows a named training of so many episodes while it passes the progress on."""


@dataclass(frozen=True)
class Job:
    """A run to make: a named recipe with a seed, perhaps shortened or on another width, and its folder."""

    name: str
    recipe: Recipe
    planned: int
    changes: str
    folder: Path


def job(
    name: str, seed: int, out: Path, episodes: int = 0, width: Width | None = None, schedule: Schedule | None = None
) -> Job:
    """The run of a named recipe; `episodes` cuts it short, `width` and `schedule` replace the recipe's; all is told."""
    named = NAMED[name].recipe
    plan, changes = named.plan, []
    if width is not None and width != named.width:
        changes.append(f"{width} in place of {named.width}")
    if schedule is not None and schedule != plan.schedule:
        changes.append(f"{schedule} in place of {plan.schedule} schedule")
        plan = replace(plan, schedule=schedule)
    if episodes and episodes < plan.episodes:
        plan = replace(plan, episodes=-(-episodes // plan.episodes_per_step) * plan.episodes_per_step)
    recipe = replace(named, seed=seed, width=width or named.width, plan=plan)
    return Job(name, recipe, named.plan.episodes, "; ".join(changes), _folder(out / "runs", name, recipe))


def _folder(runs: Path, name: str, recipe: Recipe) -> Path:
    """Where the run is: under its own name, else any folder whose recipe is the same, else where it will be."""
    own = runs / f"{name.replace('/', '--')}-{_short_hash(recipe)}"
    if (own / RECIPE).exists():
        return own
    return next((path.parent for path in sorted(runs.glob(f"*/{RECIPE}")) if _has(path.parent, recipe)), own)


def _has(folder: Path, recipe: Recipe) -> bool:
    try:
        return read_recipe(folder) == recipe
    except CheckpointError:  # a run of another version, which is no run of this recipe
        return False


def _short_hash(recipe: Recipe) -> str:
    """Eight digits that change with any choice that is not a default: a new knob leaves old runs their names."""
    plain, default = recipe.as_json(), Recipe().as_json()
    plan = {key: value for key, value in plain["plan"].items() if value != default["plan"][key]}
    chosen = {key: value for key, value in plain.items() if value != default[key]} | {"plan": plan}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]


def advance(
    job: Job, benchmark: Benchmark, content: str, seconds: float, device: torch.device, watch: Watch
) -> Manifest:
    """Train from where the run stands, for so many seconds at most (0: to its end); its manifest afterwards.

    A loss that is not finite ends the run; that is a result too, and the manifest says so.
    """
    run = Run(job.folder, job.recipe, benchmark, device)
    _resume(run) if (job.folder / RECIPE).exists() else run.start()
    record = Record(Manifest(job.name, job.recipe, job.planned, benchmark.name, content, changes=job.changes), run)
    try:
        for progress in watch(job.name, job.recipe.plan.episodes, steps := run.train()):
            if progress.scores:
                record.write()
            if seconds and progress.seconds > seconds:
                steps.close()
    except DivergedError as error:
        record.failure = str(error).partition(". ")[0]
    finally:
        if run.state.episode > record.first:
            record.write()
    return record.write()


def _resume(run: Run) -> None:
    if read_recipe(run.folder) != run.recipe:
        raise CheckpointError(
            f"{run.folder} holds a run of another recipe than its name says. Give it another name, or remove it."
        )
    run.resume()
