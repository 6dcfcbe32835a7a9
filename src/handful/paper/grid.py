"""Runs of an experiment as jobs of their own, on this machine or on a SLURM cluster, through submitit.

Each job trains one run in its folder from where it stands. A run's lock keeps two jobs from training it at once, so
that the same grid may be submitted twice; submitting it again after an interruption goes on with what is not complete.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any

from handful.errors import HandfulError, InvalidOptionError
from handful.meta.engine import prepare
from handful.meta.lock import BusyError
from handful.meta.manifest import content_hash
from handful.paper.jobs import Job, Until, standing, train_job
from handful.paper.reproduce import Options, Say, load_data

POLL = 0.5
"""Seconds between two looks at the jobs."""
MINUTES = 24 * 60
"""Time that a SLURM job asks for, where no budget is given; a run that needs more is submitted again."""


def train_on(on: str, jobs: list[Job], options: Options, say: Say) -> None:
    """Train the runs that are not complete as jobs, `local:N` at a time or all in SLURM's queue, and wait for them."""
    at_once = _at_once(on)
    if find_spec("submitit") is None:
        raise HandfulError("--on needs submitit: pip install 'handful[slurm]'.")
    import submitit

    executor = submitit.AutoExecutor(options.out / "jobs", cluster="slurm" if on == "slurm" else "local")
    executor.update_parameters(timeout_min=int(options.minutes) or MINUTES, name="handful", cpus_per_task=1)
    waiting = [job for job in {each.folder: each for each in jobs}.values() if not standing(job).complete]
    say(f"{len(waiting)} runs to train on {on}; logs are in {options.out / 'jobs'}")
    running: list[tuple[Job, Any]] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            running.append((job, executor.submit(train_alone, job, 60 * options.minutes, options.until)))
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
        raise InvalidOptionError(f"--on takes slurm, or local:N with N jobs at a time, but got '{on}'.")
    return int(count)


def train_alone(job: Job, seconds: float, until: Until) -> str:
    """Train one run in this process; what became of it, in words."""
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
