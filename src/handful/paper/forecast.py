"""The dry run: every row of an experiment with the time that its runs would take, or why it cannot run now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from handful.errors import HandfulError
from handful.meta.config import Recipe
from handful.meta.run import build
from handful.paper.cost import ADAPTING, GPU_FLOPS, IMAGES, SHAPES, Estimate, cost_of, duration, effort, estimate
from handful.paper.experiments import Experiment
from handful.paper.jobs import Job, Until, standing
from handful.paper.recipes.own import NEAREST
from handful.paper.reproduce import Options, Planned, load_data, plan_cells, why_not

SECONDS = 30.0
"""Seconds that a dry run spends on measurements; the remaining runs are scaled from those timed."""


class Prices:
    """Quick estimates of runs, one per distinct cost, as time allows; the rest is scaled from them."""

    def __init__(self, jobs: Iterable[Job], until: Until = "complete") -> None:
        self.until = until
        jobs = sorted(jobs, key=_expense)  # cheap ones first in case time runs out, starting with one for each learner
        first = {job.recipe.learner: job.key for job in reversed(jobs)}
        jobs.sort(key=lambda job: job.key != first[job.recipe.learner])
        self.benchmarks, self.missing = load_data(jobs)
        self.known: dict[tuple[object, ...], Estimate] = {}
        end = time.perf_counter() + SECONDS
        for job in jobs:
            if time.perf_counter() < end and cost_of(job.recipe) not in self.known:
                self._measure(job)

    def _measure(self, job: Job) -> None:
        if job.recipe.data in self.benchmarks or _shape(job.recipe):
            try:
                found = estimate(job, self.benchmarks.get(job.recipe.data), quick=True)
            except (HandfulError, RuntimeError):
                return  # too large for this machine, for example; scaled from others instead
            self.known[cost_of(job.recipe)] = found

    def of(self, job: Job) -> Estimate | None:
        """The cost of a run; None if it cannot be scaled from anything known."""
        found = self.known.get(cost_of(job.recipe)) or self._scaled(job)
        return replace(found, job=job, done=standing(job), until=self.until) if found else None

    def _scaled(self, job: Job) -> Estimate | None:
        """The cost scaled by the embedding's operations, from a run with the same learner if there is one."""
        recipe = job.recipe
        if not self.known or not _shape(recipe):
            return None
        others = sorted(self.known.values(), key=lambda each: each.job.recipe.width == recipe.width)
        like = ([each for each in others if each.job.recipe.learner == recipe.learner] or others)[-1]
        other = like.job.recipe
        images = _forward(recipe) / _forward(other)
        looked = images * _validated_images(recipe) / _validated_images(other)
        work = images * effort(recipe) * recipe.plan.episodes_per_step
        work /= effort(other) * other.plan.episodes_per_step
        return replace(
            like,
            update=work * like.update,
            validation=looked * like.validation,
            operations=work * like.operations,
            on_noise=recipe.data not in self.benchmarks,
            rough=True,
        )


def _shape(recipe: Recipe) -> tuple[int, int, int] | None:
    return SHAPES.get(recipe.data.removesuffix(NEAREST))


def _expense(job: Job) -> tuple[bool, int, bool]:
    """What makes a run slow to time: inner steps, large images, a wide network."""
    return job.recipe.learner in ADAPTING, (_shape(job.recipe) or (0,))[-1], job.recipe.width == "wide"


def _validated_images(recipe: Recipe) -> int:
    if recipe.learner in ADAPTING:  # each episode adapts
        return recipe.val_episodes * len(recipe.val_shots) * recipe.way
    _, classes, per_class = IMAGES[recipe.data.removesuffix(NEAREST)]
    return classes * per_class


def _forward(recipe: Recipe) -> float:
    """Operations for embedding one image."""
    return _embedding_operations(recipe.width, recipe.concatenate, _shape(recipe) or SHAPES["cifar-fs"])


@lru_cache
def _embedding_operations(width: Any, concatenate: bool, shape: tuple[int, int, int]) -> float:
    model = build(Recipe(width=width, concatenate=concatenate, learner="protonet"), shape).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.embedding(torch.zeros(1, *shape))
    return float(counter.get_total_flops())


def forecast(experiment: Experiment, options: Options) -> Iterator[str]:
    """One line per row, data set and run: the time it still needs, how far it has got, and why it cannot run now."""
    options = options.of(experiment)
    planned = plan_cells(experiment, options)
    jobs = {job.folder: job for _, own in planned for job in own}
    rows = dict.fromkeys(cell.row.label for cell, _ in planned)
    yield f"{experiment.title}: {len(rows)} rows, {len(jobs)} runs"
    prices = Prices(jobs.values(), options.until)
    for label in rows:
        yield label
        lines = _row([each for each in planned if each[0].row.label == label], options, prices)
        yield from (f"  {line}" for line in dict.fromkeys(lines))
    costs = [cost for job in jobs.values() if (cost := prices.of(job))]
    yield from _totals(costs, options)
    yield from (f"Data that is not there: {reason}" for reason in prices.missing.values())


def _row(planned: list[Planned], options: Options, prices: Prices) -> Iterator[str]:
    for cell, own in planned:
        if not own:
            yield f"{cell.column.group}: cannot run: {why_not(cell, options)}"
        for job in own:
            name = str(job) if len(options.seeds) > 1 else job.name
            absent = f"; cannot run now: {job.recipe.data} is not there" if job.recipe.data in prices.missing else ""
            yield f"{name}: {prices.of(job) or 'not timed: nothing is known to scale it from'}{absent}"


def _totals(costs: list[Estimate], options: Options) -> Iterator[str]:
    total, absent = (sum(each.seconds for each in costs if each.on_noise is noise) for noise in (False, True))
    yield f"In total: {duration(total)} of training at most; runs stop sooner when validation stalls."
    if absent:
        yield f"Another {duration(absent)} for data sets that are not there: their runs are left out."
    if options.minutes:
        yield from _within([each for each in costs if each.seconds and not each.on_noise], 60 * options.minutes)
        part = duration(min(total, 60 * options.minutes))
        yield f"With --budget {options.minutes:g}, {part} of it now, the rest when called again."
    if any(each.rough for each in costs):
        yield "Times with 'about' are scaled from runs of other kinds; narrow the rows with --only to have them timed."
    yield (
        f"Times are scaled up from one small update of each kind. GPU times are counted operations at an assumed "
        f"{GPU_FLOPS / 1e12:g} TFLOP/s: a lower bound, not a measurement."
    )


def _within(costs: list[Estimate], budget: float) -> Iterator[str]:
    """How many episodes of each cosine run fit into its share of the budget, so that its rate falls to 0 in time."""
    share = budget / max(1, len(costs))
    for here in costs:
        if here.job.recipe.plan.schedule == "cosine" and here.seconds > share:
            yield f"  {here.job.name} would stop before its rate is 0; about --episodes {here.within(share)} would fit"
