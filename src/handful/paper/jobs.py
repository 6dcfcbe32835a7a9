"""The runs that an experiment needs: one resumable folder per recipe and seed, trained as far as time allows.

A run is identified by its recipe: a run made by hand is used too if its folder is next to the others, under any name,
and its recipe is the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from handful.data.table import Benchmark
from handful.errors import CheckpointError, DivergedError
from handful.meta.checkpoint import read_checkpoint
from handful.meta.config import Plan, Recipe, complete_at, whole_plan
from handful.meta.engine import Engine
from handful.meta.lock import held
from handful.meta.manifest import Manifest, Record, recorded_failure
from handful.meta.run import LAST, RECIPE, Run, read_recipe
from handful.meta.train import Progress
from handful.paper.recipes import NAMED
from handful.paper.recipes.own import Schedule, Width

Watch = Callable[[str, int, Iterator[Progress]], Iterable[Progress]]
"""Given a name, a number of episodes and a stream of progress, shows the progress and yields it."""
NOTE_SECONDS = 60.0
"""Most seconds between two records of a run's progress."""
Until = Literal["complete", "end", "now"]
"""When training stops: once the run is complete, or at the end of its plan."""


@dataclass(frozen=True)
class Departures:
    """Changes to all recipes, for a smaller experiment. The report names every change."""

    episodes: int = 0
    """Number of episodes after which to stop; 0 for no cut."""
    episodes_of: tuple[tuple[str, int], ...] = ()
    """Another cut for recipes whose name contains a word; the first match counts."""
    width: Width | None = None
    schedule: Schedule | None = None
    validate_every: int | None = None
    """0 for no validation."""

    def cut(self, name: str) -> int:
        """Where to cut the recipe with this name."""
        return next((episodes for word, episodes in self.episodes_of if word in name), self.episodes)

    def applied(self, name: str, recipe: Recipe) -> tuple[Recipe, str]:
        """The changed recipe, and a description of the changes except its length."""
        plan, words = recipe.plan, []
        if self.width is not None and self.width != recipe.width:
            words.append(f"{self.width} in place of {recipe.width}")
        if self.schedule is not None and self.schedule != plan.schedule:
            words.append(f"{self.schedule} in place of {plan.schedule} schedule")
            plan = replace(plan, schedule=self.schedule)
        if (every := self.validate_every) is not None and every != plan.validate_every:
            words.append(f"validated every {every:,} episodes" if every else "not validated")
            plan = replace(plan, validate_every=_whole_steps(every, plan))
        if 0 < (cut := self.cut(name)) < plan.episodes:
            plan = replace(plan, episodes=_whole_steps(cut, plan))
        return replace(recipe, width=self.width or recipe.width, plan=plan), "; ".join(words)


def _whole_steps(episodes: int, plan: Plan) -> int:
    return -(-episodes // plan.episodes_per_step) * plan.episodes_per_step


UNCHANGED = Departures()


@dataclass(frozen=True)
class Job:
    """A run to make: a named recipe with a seed and possibly changes, and its folder."""

    name: str
    recipe: Recipe
    planned: int
    changes: str
    folder: Path
    altered: bool = False
    """Whether the changes include another network or another learning rate schedule."""

    def __str__(self) -> str:
        return f"{self.name}, seed {self.recipe.seed}"

    @property
    def whole_plan(self) -> Plan:
        """The plan that the run is measured against."""
        return whole_plan(self.recipe.plan, self.planned)

    @property
    def key(self) -> str:
        """A key that is equal for all runs of one recipe and seed, under any name."""
        return _short_hash(self.recipe)


def job(name: str, seed: int, out: Path, departures: Departures = UNCHANGED) -> Job:
    """The run of a named recipe."""
    named = NAMED[name].recipe
    recipe, changes = departures.applied(name, replace(named, seed=seed))
    changes = "; ".join(words for words in (changes, _instance_norm(recipe)) if words)
    altered = (recipe.width, recipe.plan.schedule) != (named.width, named.plan.schedule)
    return Job(name, recipe, named.plan.episodes, changes, _folder(out / "runs", name, recipe), altered)


def _instance_norm(recipe: Recipe) -> str:
    """A warning if group norm has one channel per group, with 32 groups of 32 channels."""
    alone = recipe.norm.startswith("group") and recipe.width == "32C"
    return "one channel per group, so that group norm is instance norm" if alone else ""


def _folder(runs: Path, name: str, recipe: Recipe) -> Path:
    """The folder of the run: under its own name, or any folder with the same recipe, or where it will be created."""
    own = runs / f"{name.replace('/', '--')}-{_short_hash(recipe)}"
    if (own / RECIPE).exists():
        return own
    return next((path.parent for path in sorted(runs.glob(f"*/{RECIPE}")) if _has(path.parent, recipe)), own)


def _has(folder: Path, recipe: Recipe) -> bool:
    try:
        return read_recipe(folder) == recipe
    except CheckpointError:  # a run of another version, which cannot be a run of this recipe
        return False


def _short_hash(recipe: Recipe) -> str:
    """Eight hexadecimal digits of the values that are not defaults, so that a new option does not rename old runs."""
    plain, default = recipe.as_json(), Recipe().as_json()
    plan = {key: value for key, value in plain["plan"].items() if value != default["plan"][key]}
    chosen = {key: value for key, value in plain.items() if value != default[key]} | {"plan": plan}
    return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Standing:
    """How far a run has got."""

    episodes: int = 0
    over: bool = False
    """Whether nothing is left to train: all episodes are done, or patience is exhausted."""
    complete: bool = False
    """Whether it may end here: it is over, or less than 0.5% of the summed learning rate is left."""

    def stops(self, until: Until) -> bool:
        """Whether nothing is left to train for a run that is to go on until then."""
        return until == "now" or self.over or (self.complete and until == "complete")


def standing(job: Job) -> Standing:
    """How far a run has got, according to its last checkpoint."""
    try:
        facts = read_checkpoint(job.folder / LAST)[1]["training"]
        episode, improved = int(facts["episode"]), int(facts["last_improvement"])
        over = job.recipe.plan.is_over(episode, improved if facts["best"] else None)
        return Standing(episode, over, over or _may_end(job, episode))
    except (CheckpointError, KeyError):
        return Standing()


def _may_end(job: Job, episode: int) -> bool:
    """Whether a run at this episode is complete and its last weights have been validated."""
    every = job.recipe.plan.validate_every
    return episode >= complete_at(job.whole_plan) and not (every and episode % every)


def train_job(
    job: Job,
    benchmark: Benchmark,
    content: str,
    seconds: float,
    engine: Engine,
    watch: Watch,
    until: Until = "complete",
    wait: bool = False,
) -> Manifest:
    """Continue the run until it is complete, or for this many seconds (0: no limit); returns its manifest.

    `until` "end" continues to the last episode or the end of patience, and "now" trains nothing. A loss that is not
    finite ends the run; that is a result too, and the manifest says so. If another process is training the run, wait
    for it or raise an error.
    """
    with held(job.folder, wait):
        run = Run(job.folder, job.recipe, benchmark, engine)
        _resume(run) if (job.folder / RECIPE).exists() else run.start()
        facts = (job.name, job.recipe, job.planned, benchmark.name, content)
        record = Record(Manifest(*facts, changes=job.changes, altered=job.altered), run)
        if until == "now":
            record.failure = recorded_failure(job.folder)
            return record.manifest
        if until == "end" or not _may_end(job, run.state.episode):
            _train(job, run, record, seconds, watch, until)
        return record.write()


def _train(job: Job, run: Run, record: Record, seconds: float, watch: Watch, until: Until) -> None:
    noted = 0.0
    try:
        for progress in watch(job.name, job.recipe.plan.episodes, steps := run.train()):
            if progress.scores or progress.seconds - noted > NOTE_SECONDS:
                record.write()
                noted = progress.seconds
            done = until == "complete" and _may_end(job, progress.episode)
            if done or (seconds and progress.seconds > seconds):
                steps.close()
    except DivergedError as error:
        record.fail(error)
    finally:  # interrupted runs are recorded too
        if run.state.episode > record.first:
            record.write()


def _resume(run: Run) -> None:
    if read_recipe(run.folder) != run.recipe:
        raise CheckpointError(
            f"{run.folder} holds a run of another recipe than its name says. Give it another name, or remove it."
        )
    run.resume()
