"""Run an experiment: load and check data, train what is missing, and test all runs on the same episodes.

Runs are trained in this process, or as separate jobs on this machine or a SLURM cluster, through submitit. Each job
continues one run in its folder. A lock keeps two jobs from training one run at once, so the same experiment may be
submitted twice; submitting it again after an interruption continues the runs that are not complete.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Literal

from handful import data
from handful.data.table import Benchmark
from handful.errors import DataError, HandfulError, InvalidOptionError, NotFiniteError, NotPositiveDefiniteError
from handful.meta.engine import CPU, Engine, prepare
from handful.meta.lock import BusyError
from handful.meta.manifest import Manifest, content_hash, machine, now, versions
from handful.meta.run import RECIPE
from handful.paper.experiments import Experiment
from handful.paper.jobs import UNCHANGED, Departures, Job, Until, Watch, job, standing, train_job
from handful.paper.published import Column, Row
from handful.paper.recipes import NAMED
from handful.paper.report import minutes_of
from handful.paper.results import Cell, Results, Score, Sets
from handful.paper.testing import Checkpoint, check_splits, draw_set, measure

Say = Callable[[str], None]


_FOR_VALIDATION = 0x7E57
"""Makes the seed of test episodes on validation classes different from that of validation."""


@dataclass(frozen=True)
class Options:
    """What to train and test, for how long, and where to write."""

    out: Path
    variants: tuple[str, ...] = ()
    """Variants to train; empty for those of the experiment."""
    seeds: range = range(1)
    """Seeds of the training runs."""
    minutes: float = 0.0
    until: Until = "complete"
    wait: bool = False
    """Whether to wait for runs that other processes are training; otherwise they are left out."""
    departures: Departures = UNCHANGED
    test_episodes: int = 10_000
    test_episodes_of: tuple[tuple[str, int], ...] = ()
    """Smaller numbers of test episodes for recipes whose name contains a word."""
    test_seed: int = 0
    checkpoint: Checkpoint = "shot"
    engine: Engine = CPU

    def of(self, experiment: Experiment) -> Options:
        """These options with the experiment's variants, if none were chosen."""
        return replace(self, variants=self.variants or experiment.variants)


@dataclass(frozen=True)
class Source:
    """A benchmark that was loaded and checked for leaks, with the hash of its content."""

    benchmark: Benchmark
    content: str


def reproduce(experiment: Experiment, options: Options, command: str, say: Say, watch: Watch) -> Results:
    """Train as far as the time allows, then test every run and compare."""
    options = options.of(experiment)
    planned = plan_cells(experiment, options)
    sources, missing = load_sources(planned, say)
    if missing and not sources:
        raise DataError(f"There is no data for {experiment.name}, so nothing was done. {' '.join(missing.values())}")
    jobs = wanted_jobs(planned, sources)
    manifests = train_all(jobs, sources, options, say, watch)
    sets = draw_sets(planned, sources, options, say, experiment.split)
    untested: list[str] = []
    cells = tuple(
        replace(cell, scores=_scores(cell, own, sets, manifests, options, untested.append)) for cell, own in planned
    )
    absent = [f"{name}: {reason}" for name, reason in missing.items()]
    absent += [why_not(cell, options) for cell, own in planned if not own]
    absent += [f"{each}: {manifests[each.folder].failure}" for each in jobs if _failed(manifests.get(each.folder))]
    why = "not trained" if options.until == "now" else "trained elsewhere"
    absent += [f"{each}: {why}" for each in jobs if each.folder not in manifests] + untested
    return Results(experiment, cells, sets, tuple(dict.fromkeys(absent)), command, now(), versions(), machine())


def _failed(manifest: Manifest | None) -> bool:
    return manifest is not None and bool(manifest.failure)


def why_not(cell: Cell, options: Options) -> str:
    """Why a cell has no run."""
    if not cell.row.stems:
        return f"{cell.row.label}: quoted by the paper from elsewhere, not rerun"
    return f"{cell.row.label}: no recipe on {cell.column.group} in the variants {', '.join(options.variants)}"


Planned = tuple[Cell, tuple[Job, ...]]


def plan_cells(experiment: Experiment, options: Options) -> list[Planned]:
    """Every row, column and variant with its runs; a published number without a recipe has none.

    Rows whose recipes are the same share a run.
    """
    folders: dict[str, Path] = {}
    options = options.of(experiment)
    return [
        (cell, tuple(replace(each, folder=folders.setdefault(each.key, each.folder)) for each in jobs))
        for row in experiment.rows
        for index, column in enumerate(experiment.columns)
        if row.only is None or column in row.only
        for cell, jobs in _cells(row, column, index, options)
    ]


def _cells(row: Row, column: Column, index: int, options: Options) -> list[Planned]:
    """One cell per variant; a cell whose network is not its row's has no published number."""
    planned: list[Planned] = []
    number, width = row.numbers[index], options.departures.width
    for variant in options.variants:
        name = row.recipe_name(column, variant)
        if name is None:
            continue
        jobs = tuple(job(name, seed, options.out, options.departures) for seed in options.seeds)
        other = width if width is not None and width != NAMED[name].recipe.width else ""
        planned.append((Cell(row, column, variant, name, None if other else number, (), other), jobs))
    if not planned and number is not None:
        planned.append((Cell(row, column, "", "", number, ()), ()))
    return planned


def load_data(jobs: Iterable[Job]) -> tuple[dict[str, Benchmark], dict[str, str]]:
    """The installed data sets of these runs by name, and the commands to get the missing ones."""
    found: dict[str, Benchmark] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(each.recipe.data for each in jobs):
        try:
            found[name] = data.load(name)
        except DataError as error:
            missing[name] = str(error)
    return found, missing


def load_sources(planned: list[Planned], say: Say) -> tuple[dict[str, Source], dict[str, str]]:
    """The installed data sets, checked for leaks, and the commands to get the missing ones."""
    found, missing = load_data(each for _, own in planned for each in own)
    for name, reason in missing.items():
        say(f"{name}: {reason}")
    for benchmark in found.values():
        check_splits(benchmark)
    return {name: Source(benchmark, content_hash(benchmark)) for name, benchmark in found.items()}, missing


def wanted_jobs(planned: list[Planned], sources: dict[str, Source]) -> list[Job]:
    """The distinct runs with installed data, in the order of their first use; all first seeds come first."""
    runs = {each.folder: each for _, own in planned for each in own if each.recipe.data in sources}
    return sorted(runs.values(), key=lambda each: each.recipe.seed)


def train_all(
    jobs: list[Job], sources: dict[str, Source], options: Options, say: Say, watch: Watch
) -> dict[Path, Manifest]:
    """Train each run; unfinished runs share the budget, and time that one does not need goes to the next ones."""
    end = time.perf_counter() + 60 * options.minutes
    left = [not standing(each).stops(options.until) for each in jobs]
    manifests: dict[Path, Manifest] = {}
    busy: list[str] = []
    for number, each in enumerate(jobs):
        if options.until == "now" and not (each.folder / RECIPE).exists():
            continue
        source = sources[each.recipe.data]
        share = max(1e-3, (end - time.perf_counter()) / max(1, sum(left[number:]))) if options.minutes else 0.0
        name = f"[{number + 1}/{len(jobs)}] {each}"
        terms = (share, options.engine, watch, options.until, options.wait)
        try:
            manifest = manifests[each.folder] = train_job(each, source.benchmark, source.content, *terms)
        except BusyError as error:
            busy.append(str(error))
            say(f"{name}: {error}")
            continue
        changes = f"{manifest.changes}; " if manifest.changes else ""
        say(f"{name}: {changes}{manifest.completion} (minutes of training: {minutes_of(manifest)})")
    if busy and not manifests:
        raise BusyError(f"All runs are being trained already. {busy[0]}")
    return manifests


def draw_sets(
    planned: list[Planned], sources: dict[str, Source], options: Options, say: Say, split: Literal["test", "val"]
) -> Sets:
    """The test episodes of each column: the same images for all rows, in the pixels that a row was trained on.

    On validation classes they are other episodes than those that chose the checkpoints.
    """
    sets: Sets = {}
    for kind in dict.fromkeys((cell.column, each.recipe.data) for cell, own in planned for each in own):
        column, name = kind
        if name not in sources:
            continue
        benchmark, content = sources[name].benchmark, sources[name].content
        classes = benchmark.test if split == "test" else benchmark.val
        query = column.query(int(classes.counts.min()))
        count, seed = options.test_episodes, options.test_seed ^ (_FOR_VALIDATION if split == "val" else 0)
        sets[kind] = draw_set(classes, content, column.way, column.shot, query, count, seed)
        pixels = "" if name == column.data else f" of {name}"
        say(f"{column.title}: {count:,} episodes{pixels}, {query} queries per class, hash {sets[kind].digest[:12]}")
    return sets


def _scores(
    cell: Cell, runs: tuple[Job, ...], sets: Sets, manifests: dict[Path, Manifest], options: Options, note: Say
) -> tuple[Score, ...]:
    """The result of each run that can be tested; `note` gets the others with the error of their test."""
    found = []
    for each in runs:
        kind = (cell.column, each.recipe.data)
        if each.folder in manifests and kind in sets:
            first = next((count for word, count in options.test_episodes_of if word in each.name), 0)
            try:
                measured = measure(each.folder, sets[kind], options.checkpoint, options.engine, first)
            except (NotFiniteError, NotPositiveDefiniteError) as error:
                note(f"{each}: {error}")
                continue
            if measured is not None:
                run = manifests[each.folder]  # it may be used in another row too, under another name
                own = replace(run, name=each.name, planned=each.planned, changes=each.changes, altered=each.altered)
                found.append(Score(own, measured, each.folder))
    return tuple(found)


POLL = 0.5
"""Seconds between checks of the jobs."""
MINUTES = 24 * 60
"""Time that a SLURM job requests if no budget is given; a run that needs more is submitted again."""
SPARE_MINUTES = 5
"""Time that a job gets beyond its training, to load its data before and to save afterwards."""


def train_on(on: str, jobs: list[Job], options: Options, say: Say) -> None:
    """Train the runs that are not complete as jobs, `local:N` at a time or all in SLURM's queue, and wait for them."""
    at_once = _at_once(on)
    if find_spec("submitit") is None:
        raise HandfulError("--on needs submitit. Install it: pip install 'handful[slurm]'.")
    if on == "slurm" and (absent := [each for each in ("sbatch", "srun", "sacct") if which(each) is None]):
        raise HandfulError(
            f"SLURM is not available: {', '.join(absent)} cannot be found. Submit from a machine of the cluster, or "
            f"use --on local:N."
        )
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    executor = submitit.AutoExecutor(options.out / "jobs", cluster="slurm" if on == "slurm" else "local")
    limit = math.ceil(options.minutes) + SPARE_MINUTES if options.minutes else MINUTES
    executor.update_parameters(timeout_min=limit, name="handful", cpus_per_task=1)
    distinct = {each.folder: each for each in jobs}.values()
    waiting = [job for job in distinct if not standing(job).stops(options.until)]
    say(f"{len(waiting)} runs to train on {on}; logs are in {options.out / 'jobs'}")
    running: list[tuple[Job, Any]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            try:
                running.append((job, executor.submit(train_alone, job, 60 * options.minutes, options.until)))
            except (FailedJobError, FailedSubmissionError) as error:
                raise HandfulError(
                    f"{job} could not be submitted to {on}: {str(error).strip().splitlines()[-1]}. Jobs that were "
                    f"already submitted keep running; run the same command again later to continue."
                ) from error
            say(f"{job}: job {running[-1][1].job_id}")
        time.sleep(POLL)
        for job, submitted in [each for each in running if each[1].done()]:
            running.remove((job, submitted))
            failed = submitted.exception()
            say(f"{job}: " + (f"FAILED, see {submitted.paths.stderr}" if failed else str(submitted.result())))


def _at_once(on: str) -> int:
    kind, _, count = on.partition(":")
    if on == "slurm":
        return 10**6
    if kind != "local" or not count.isdecimal() or not int(count):
        raise InvalidOptionError(f"--on must be slurm, or local:N for N jobs at a time, but got '{on}'.")
    return int(count)


def train_alone(job: Job, seconds: float, until: Until) -> str:
    """Train one run in this process; returns a description of the outcome."""
    engine = prepare("auto", 1)
    benchmarks, missing = load_data([job])
    if missing:
        return f"not trained: {next(iter(missing.values()))}"
    (benchmark,) = benchmarks.values()
    try:
        train_job(job, benchmark, content_hash(benchmark), seconds, engine, lambda name, count, steps: steps, until)
    except BusyError as error:
        return f"left to another process: {error}"
    reached = standing(job)
    return f"{reached.episodes:,} episodes" + (", complete" if reached.complete else "")
