"""The dry run: every run of an experiment with the time that it would take here, and a rough figure for a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from handful.recipes import Recipe
from handful.reproduce.conduct import Options, load_sources, plan_cells
from handful.reproduce.estimate import GPU_FLOPS, Estimate, estimate
from handful.reproduce.experiments import Experiment
from handful.reproduce.jobs import Job


def forecast(experiment: Experiment, options: Options) -> Iterator[str]:
    """Lines that say what would be done and how long it would take; runs of equal cost are measured once."""
    told: list[str] = []
    sources, _ = load_sources(experiment, told.append)
    yield from told
    jobs = list({job.folder: job for _, own in plan_cells(experiment, options) for job in own}.values())
    known: dict[tuple[object, ...], Estimate] = {}
    costs: list[Estimate] = []
    yield f"{experiment.title}: {len(jobs)} runs"
    for job in jobs:
        key = cost_of(job.recipe)
        if key not in known:
            source = sources.get(job.recipe.data)
            known[key] = estimate(job, source.benchmark if source else None)
        costs.append(known[key].of(job))
        yield _line(costs[-1])
    total, absent = (sum(each.seconds for each in costs if each.on_noise is noise) for noise in (False, True))
    yield f"All together: {time_told(total)} of training at most; runs stop sooner when validation stalls."
    if absent:
        yield f"Another {time_told(absent)} for data sets that are not there: their runs are left out."
    if options.minutes:
        yield from _within([each for each in costs if each.seconds and not each.on_noise], 60 * options.minutes)
        now = time_told(min(total, 60 * options.minutes))
        yield f"With --budget {options.minutes:g}, {now} of it now, the rest when called again."
    yield (
        f"GPU figures are counted operations at an assumed {GPU_FLOPS / 1e12:g} TFLOP/s: a lower bound, not a "
        f"measurement, for small networks wait for the launches of their kernels."
    )


def _within(costs: list[Estimate], budget: float) -> Iterator[str]:
    """How many episodes of each cosine run fit into its share: cut there, its rate would fall to 0 in time."""
    share = budget / max(1, len(costs))
    for here in costs:
        job = here.job
        if job.recipe.plan.schedule == "cosine" and here.seconds > share:
            yield f"  {job.name} would stop before its rate is 0; about --episodes {here.within(share)} would fit"


def cost_of(recipe: Recipe) -> tuple[object, ...]:
    """What a run's time depends on; learnt or fixed hyper-parameters do not matter."""
    options = tuple(
        sorted((key, value) for key, value in recipe.options.items() if key in ("steps", "prior", "test_steps"))
    )
    episodes = (recipe.way, recipe.images_per_class, recipe.plan.episodes_per_step, recipe.val_shots, recipe.augment)
    return (recipe.data, recipe.learner, recipe.width, recipe.norm, recipe.concatenate, options, episodes)


def _line(here: Estimate) -> str:
    job: Job = here.job
    plan = job.recipe.plan
    state = f"{here.done.episodes:,} of {plan.episodes:,} episodes done"
    return (
        f"  {job.name}, seed {job.recipe.seed}: {state}, {here.update:.2f} s an update, {here.validation:.1f} s a "
        f"validation, {time_told(here.seconds)} to go ({here.measured_on}); GPU about {here.gpu_hours:.1f} h in all"
    )


def time_told(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
