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
from handful.meta.checkpoint import read_checkpoint
from handful.meta.config import Plan
from handful.meta.engine import Engine
from handful.meta.run import LAST, RECIPE, Run, read_recipe
from handful.meta.train import Progress
from handful.recipes import NAMED, Recipe
from handful.recipes.settings import Schedule, Width
from handful.reproduce.manifest import Manifest, Record

Watch = Callable[[str, int, Iterator[Progress]], Iterable[Progress]]
"""Shows a named training of so many episodes while it passes the progress on."""


@dataclass(frozen=True)
class Departures:
    """A smaller experiment than the recipes': what to change in all of them. All is told in the report."""

    episodes: int = 0
    """Cut short here; 0 for no cut."""
    episodes_of: tuple[tuple[str, int], ...] = ()
    """Another cut for recipes whose name contains a word; the first that does counts."""
    width: Width | None = None
    schedule: Schedule | None = None
    validate_every: int | None = None
    """0 for no validation."""

    def cut(self, name: str) -> int:
        """Where to cut the recipe of this name."""
        return next((episodes for word, episodes in self.episodes_of if word in name), self.episodes)

    def applied(self, name: str, recipe: Recipe) -> tuple[Recipe, str]:
        """The changed recipe, and what changed in it, its length apart, in words."""
        plan, words = recipe.plan, []
        if self.width is not None and self.width != recipe.width:
            words.append(f"{self.width} in place of {recipe.width}")
        if self.schedule is not None and self.schedule != plan.schedule:
            words.append(f"{self.schedule} in place of {plan.schedule} schedule")
            plan = replace(plan, schedule=self.schedule)
        if self.validate_every is not None and self.validate_every != plan.validate_every:
            words.append(
                f"validated every {self.validate_every:,} episodes" if self.validate_every else "not validated"
            )
            plan = replace(plan, validate_every=_whole_steps(self.validate_every, plan))
        if 0 < (cut := self.cut(name)) < plan.episodes:
            plan = replace(plan, episodes=_whole_steps(cut, plan))
        return replace(recipe, width=self.width or recipe.width, plan=plan), "; ".join(words)


def _whole_steps(episodes: int, plan: Plan) -> int:
    return -(-episodes // plan.episodes_per_step) * plan.episodes_per_step


AS_IT_IS = Departures()


@dataclass(frozen=True)
class Job:
    """A run to make: a named recipe with a seed, perhaps changed, and its folder."""

    name: str
    recipe: Recipe
    planned: int
    changes: str
    folder: Path

    @property
    def key(self) -> str:
        """The same for all runs of one recipe and seed, whatever their name."""
        return _short_hash(self.recipe)


def job(name: str, seed: int, out: Path, departures: Departures = AS_IT_IS) -> Job:
    """The run of a named recipe."""
    named = NAMED[name].recipe
    recipe, changes = departures.applied(name, replace(named, seed=seed))
    return Job(name, recipe, named.plan.episodes, changes, _folder(out / "runs", name, recipe))


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


@dataclass(frozen=True)
class Standing:
    """How far a run has come."""

    episodes: int = 0
    over: bool = False
    """Whether nothing is left to train: all episodes are done, or patience is exhausted."""


def standing(job: Job) -> Standing:
    """How far a run has come by its last checkpoint."""
    try:
        facts = read_checkpoint(job.folder / LAST)[1]["training"]
        episode, improved = int(facts["episode"]), int(facts["last_improvement"])
        return Standing(episode, job.recipe.plan.is_over(episode, improved if facts["best"] else None))
    except (CheckpointError, KeyError):
        return Standing()


def advance(
    job: Job, benchmark: Benchmark, content: str, seconds: float, device: torch.device, watch: Watch
) -> Manifest:
    """Train from where the run stands, for so many seconds at most (0: to its end); its manifest afterwards.

    A loss that is not finite ends the run; that is a result too, and the manifest says so.
    """
    run = Run(job.folder, job.recipe, benchmark, Engine(device))
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
