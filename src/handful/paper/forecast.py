"""The dry run: every row of an experiment with the time that its runs would take here, or why it cannot run now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from handful import data
from handful.data.table import Benchmark
from handful.errors import DataError, HandfulError
from handful.meta.config import Recipe
from handful.paper.estimate import ADAPTING, GPU_FLOPS, SHAPES, Estimate, estimate
from handful.paper.experiments import Experiment
from handful.paper.jobs import Job
from handful.paper.recipes.settings import NEAREST
from handful.paper.rerun import Options, Planned, plan_cells, why_not

SECONDS = 60.0
"""Time that a dry run may spend on measurements; runs whose turn has not come by then are not timed."""


class Prices:
    """Estimates of runs, measured once for each distinct cost; data sets that are not there are noise."""

    def __init__(self, names: Iterable[str]) -> None:
        self.benchmarks: dict[str, Benchmark] = {}
        self.missing: dict[str, str] = {}
        """What to type for each data set that is not there."""
        self.known: dict[tuple[object, ...], Estimate | str] = {}
        self.end = time.perf_counter() + SECONDS
        for name in dict.fromkeys(names):
            try:
                self.benchmarks[name] = data.load(name)
            except DataError as error:
                self.missing[name] = str(error)

    def of(self, job: Job) -> Estimate | str:
        """What a run costs, or why it could not be timed."""
        key = cost_of(job.recipe)
        if key not in self.known:
            self.known[key] = self._measured(job)
        found = self.known[key]
        return found if isinstance(found, str) else found.of(job)

    def _measured(self, job: Job) -> Estimate | str:
        name = job.recipe.data
        if time.perf_counter() > self.end:
            return f"not timed: {SECONDS:.0f} s of timing are over; narrow the rows with --only"
        if name not in self.benchmarks and name.removesuffix(NEAREST) not in SHAPES:
            return f"not timed: the images of {name} have no known size"
        try:
            return estimate(job, self.benchmarks.get(name), quick=True)
        except (HandfulError, RuntimeError) as error:
            return f"not timed: {str(error).partition('. ')[0]}"


def forecast(experiment: Experiment, options: Options) -> Iterator[str]:
    """A line for each row, data set and run: how far it is, the time to its completion, and why it cannot run now."""
    planned = plan_cells(experiment, options)
    jobs = {job.folder: job for _, own in planned for job in own}
    prices = Prices(job.recipe.data for job in jobs.values())
    rows = list(dict.fromkeys(cell.row.label for cell, _ in planned))
    yield f"{experiment.title}: {len(rows)} rows, {len(jobs)} runs"
    costs: dict[str, Estimate] = {}
    for job in sorted(jobs.values(), key=_expense):  # the dear ones last, in case time runs out
        prices.of(job)
    for label in rows:
        yield label
        for line in dict.fromkeys(
            _row([each for each in planned if each[0].row.label == label], options, prices, costs)
        ):
            yield f"  {line}"
    yield from _totals(list(costs.values()), options)
    yield from (f"Data that is not there: {reason}" for reason in prices.missing.values())


def _expense(job: Job) -> tuple[bool, int, bool]:
    """What makes a run dear to time: inner steps, large images, a wide network."""
    recipe = job.recipe
    return (
        recipe.learner in ADAPTING,
        SHAPES.get(recipe.data.removesuffix(NEAREST), (0, 0, 0))[-1],
        recipe.width != "64C",
    )


def _row(planned: list[Planned], options: Options, prices: Prices, costs: dict[str, Estimate]) -> Iterator[str]:
    for cell, own in planned:
        if not own:
            yield f"{cell.column.group}: cannot run: {why_not(cell, options)}"
        for job in own:
            cost = prices.of(job)
            if isinstance(cost, Estimate):
                costs[str(job.folder)] = cost
            absent = job.recipe.data in prices.missing
            yield _line(job, cost) + (f"; cannot run now: {job.recipe.data} is not there" if absent else "")


def _line(job: Job, cost: Estimate | str) -> str:
    name, plan = f"{job.name}, seed {job.recipe.seed}", job.recipe.plan
    if isinstance(cost, str):
        return f"{name}: {cost}"
    if cost.done.complete:
        return f"{name}: complete at {cost.done.episodes:,} episodes"
    return (
        f"{name}: {cost.done.episodes:,} of {plan.episodes:,} episodes done, complete at {cost.end:,}; "
        f"{time_told(cost.seconds)} to go at {cost.update:.2f} s per update and {cost.validation:.1f} s per validation "
        f"({cost.measured_on}); GPU about {cost.gpu_hours:.1f} h in all"
    )


def _totals(costs: list[Estimate], options: Options) -> Iterator[str]:
    total, absent = (sum(each.seconds for each in costs if each.on_noise is noise) for noise in (False, True))
    yield f"All together: {time_told(total)} of training at most; runs stop sooner when validation stalls."
    if absent:
        yield f"Another {time_told(absent)} for data sets that are not there: their runs are left out."
    if options.minutes:
        yield from _within([each for each in costs if each.seconds and not each.on_noise], 60 * options.minutes)
        now = time_told(min(total, 60 * options.minutes))
        yield f"With --budget {options.minutes:g}, {now} of it now, the rest when called again."
    yield (
        f"Times are scaled up from one small update of each kind. GPU figures are counted operations at an assumed "
        f"{GPU_FLOPS / 1e12:g} TFLOP/s: a lower bound, not a measurement."
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
    validated = bool(recipe.plan.validate_every)
    return (recipe.data, recipe.learner, recipe.width, recipe.norm, recipe.concatenate, options, episodes, validated)


def time_told(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
