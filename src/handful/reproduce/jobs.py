"""The runs that an experiment needs: one folder a recipe and seed, trained as far as the time allows, resumable."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from handful.data.table import Benchmark
from handful.errors import DivergedError
from handful.recipes import NAMED, Recipe
from handful.recipes.settings import Width
from handful.reproduce.manifest import Manifest, Session, machine, now, read_sessions, versions, write_manifest
from handful.runs import RECIPE, Run
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


def job(name: str, seed: int, out: Path, episodes: int = 0, width: Width | None = None) -> Job:
    """The run of a named recipe; `episodes` cuts it short, `width` takes another embedding, and both are told."""
    named = NAMED[name].recipe
    recipe = replace(named, seed=seed)
    changes = ""
    if width is not None and width != named.width:
        recipe, changes = replace(recipe, width=width), f"{width} in place of {named.width}"
    if episodes and episodes < named.plan.episodes:
        per_step = named.plan.episodes_per_step
        episodes = -(-episodes // per_step) * per_step
        recipe = replace(recipe, plan=replace(recipe.plan, episodes=episodes))
    folder = f"{name.replace('/', '--')}-{_short_hash(recipe)}"
    return Job(name, recipe, named.plan.episodes, changes, out / "runs" / folder)


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
    run.resume() if (job.folder / RECIPE).exists() else run.start()
    base = Manifest(job.name, job.recipe, job.planned, benchmark.name, content, changes=job.changes)
    record = _Record(base, job.folder, read_sessions(job.folder, content), run)
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


class _Record:
    """Keeps the manifest of a run up to date while it trains."""

    def __init__(self, base: Manifest, folder: Path, sessions: tuple[Session, ...], run: Run) -> None:
        self.base, self.folder, self.sessions, self.run = base, folder, sessions, run
        self.first, self.begun, self.clock = run.state.episode, now(), time.perf_counter()
        self.failure = ""

    def write(self) -> Manifest:
        """Write and return the manifest as things stand."""
        last, seconds = self.run.state.episode, time.perf_counter() - self.clock
        here = Session(self.begun, round(seconds, 2), self.first, last, versions(), machine())
        sessions = (*self.sessions, here) if last > self.first else self.sessions
        manifest = replace(self.base, sessions=sessions, finished=self.run.state.finished, failure=self.failure)
        write_manifest(self.folder, manifest)
        return manifest
