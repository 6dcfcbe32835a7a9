"""How long an experiment would take: a short measurement of each run on this machine, and arithmetic for a GPU.

`handful reproduce estimates` writes a table with the distinct costs of all experiments.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from handful.data.table import Benchmark, ImageTable
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import InvalidOptionError
from handful.meta.config import Recipe, complete_at
from handful.meta.evaluate import evaluate
from handful.meta.features import embed_rows, folded
from handful.meta.manifest import machine, now, versions
from handful.meta.run import Run, validation_queries
from handful.paper.experiments import EXPERIMENTS
from handful.paper.jobs import Job, Standing, Until, standing
from handful.paper.recipes.own import NEAREST
from handful.paper.report import Block, Lines, markdown, write_files
from handful.paper.reproduce import Options, load_data, plan_cells

SHAPES = {"mini-imagenet": (3, 84, 84), "cifar-fs": (3, 32, 32), "omniglot": (1, 28, 28)}
IMAGES = {"mini-imagenet": (64, 16, 600), "cifar-fs": (64, 16, 600), "omniglot": (4112, 688, 20)}
"""Training classes, validation classes, images per class."""
GPU_FLOPS = 5e12
"""Operations per second that we assume a mid-range GPU sustains on small convolutions; stated with every use."""
SECONDS = 2.0
"""How long the updates of one run are timed, at most."""
MOST_PIXELS = 2_000_000
"""Updates of several episodes with more pixels than this are timed one episode at a time."""
VAL_IMAGES, QUICK_VAL_IMAGES = 200, 40
"""Images that are embedded to time a validation."""
QUICK_PIXELS = 60_000
"""Quick estimates use episodes of about this many pixels, and scale up the time of larger ones."""
ADAPTING = ("maml", "anil", "meta-lstm")
"""Learners whose time is not proportional to an episode's images, because support and query cost differently."""


@dataclass(frozen=True)
class Estimate:
    """The expected cost of one run."""

    job: Job
    done: Standing
    update: float
    """Seconds per update."""
    validation: float
    """Seconds per validation."""
    operations: float
    """Floating-point operations per update."""
    on_noise: bool
    """Whether noise was used in place of a missing data set."""
    rough: bool = False
    """Whether it was scaled from another kind of run."""
    until: Until = "complete"
    """When the run is to stop."""

    @property
    def end(self) -> int:
        """The episode at which the run is complete, or at which it was told to end."""
        plan = self.job.recipe.plan
        if self.until == "end":
            return plan.episodes
        every = plan.validate_every or 1
        return min(plan.episodes, -(-complete_at(self.job.whole_plan) // every) * every)

    @property
    def seconds(self) -> float:
        """Expected seconds until the run stops, if patience does not end it sooner."""
        return 0.0 if self.done.stops(self.until) else self._seconds(max(0, self.end - self.done.episodes))

    @property
    def whole(self) -> float:
        """Expected seconds for the whole run."""
        return self._seconds(self.job.recipe.plan.episodes)

    def _seconds(self, episodes: int) -> float:
        plan = self.job.recipe.plan
        validations = episodes / plan.validate_every if plan.validate_every else 0
        return episodes / plan.episodes_per_step * self.update + validations * self.validation

    def within(self, seconds: float) -> int:
        """The number of episodes that fit into this time, including the validation at the end."""
        plan = self.job.recipe.plan
        return max(plan.episodes_per_step, int((seconds - self.validation) / (self.whole / plan.episodes)))

    @property
    def gpu_hours(self) -> float:
        """Hours for the whole recipe on a GPU that sustains `GPU_FLOPS`."""
        updates = self.job.planned / self.job.recipe.plan.episodes_per_step
        return self.operations * updates / GPU_FLOPS / 3600

    @property
    def measured_on(self) -> str:
        """A description of what was timed."""
        return "noise of the same size, because the data set is not there" if self.on_noise else "the data set itself"

    def __str__(self) -> str:
        if self.done.stops(self.until):
            return f"{'complete' if self.done.complete else 'stopped'} at {self.done.episodes:,} episodes"
        about = "about " if self.rough else ""
        each = "" if self.rough else f", {_seconds(self.update)} per update"
        each += f", {_seconds(self.validation)} per validation" if self.validation and not self.rough else ""
        part = f"{self.done.episodes:,} of {self.end:,} episodes done{each}"
        return f"{about}{duration(self.seconds)} to go ({part}); GPU about {duration(3600 * self.gpu_hours)} in all"


def duration(seconds: float) -> str:
    """A time in seconds, minutes, hours or days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:,.0f} days"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


# Measurements


def estimate(job: Job, benchmark: Benchmark | None, quick: bool = False) -> Estimate:
    """Time updates (without the optimiser's step) and a validation of a run; nothing is written to its folder.

    A `quick` estimate times a single pass over a small episode and scales it up by the number of images. Without a
    benchmark, it uses noise.
    """
    images = benchmark if benchmark is not None else stand_in(job.recipe.data)
    recipe = _smaller(job.recipe, images) if quick else job.recipe
    at_once = 1 if quick else _at_once(recipe, images)
    plan = replace(recipe.plan, validate_every=0, episodes_per_step=at_once)
    run = Run(job.folder, replace(recipe, plan=plan), images)
    scale = job.recipe.plan.episodes_per_step / at_once * effort(job.recipe) / effort(recipe)
    operations = scale * _operations(run)  # its pass is the warm-up
    update = scale * _timed(run, 1 if quick else 5)
    if not job.recipe.plan.validate_every:
        validation = 0.0
    elif quick and recipe.learner in ADAPTING:  # each episode is adapted to, without a backward pass
        validation = update / job.recipe.plan.episodes_per_step / 3 * recipe.val_episodes * len(recipe.val_shots)
    else:
        validation = _validation(run, images, QUICK_VAL_IMAGES if quick else VAL_IMAGES)
    return Estimate(job, standing(job), update, validation, operations, benchmark is None)


def _smaller(recipe: Recipe, images: Benchmark) -> Recipe:
    """The recipe with fewer images in an episode."""
    _, height, width = images.train.image_shape
    most = QUICK_PIXELS // (height * width)
    per_class = max(recipe.max_shot + 1, min(recipe.images_per_class, most // recipe.way))
    way = recipe.way if "way" in recipe.options else max(2, min(recipe.way, most // per_class))
    # validation keeps its size, which may depend on that of a full training episode
    query = validation_queries(recipe, max(recipe.val_ways), max(recipe.val_shots), int(images.val.counts.min()))
    return replace(recipe, way=way, images_per_class=per_class, val_query=query)


def effort(recipe: Recipe) -> float:
    """What the time of an episode is proportional to: its images, plus each support image once per inner step."""
    if recipe.learner not in ADAPTING:
        return recipe.way * recipe.images_per_class
    steps = float(recipe.options.get("steps", 5))
    return recipe.way * (2 * steps * recipe.max_shot + recipe.images_per_class - recipe.max_shot)


def _at_once(recipe: Recipe, images: Benchmark) -> int:
    """Episodes per timed update: one if all would take too much memory, because times add up."""
    _, height, width = images.train.image_shape
    per_step = recipe.plan.episodes_per_step
    return per_step if per_step * recipe.way * recipe.images_per_class * height * width <= MOST_PIXELS else 1


def _operations(run: Run) -> float:
    """Floating-point operations of one update, counted by torch."""
    with FlopCounterMode(display=False) as counter:
        _pass(run)
    return float(counter.get_total_flops())


def _timed(run: Run, most: int) -> float:
    """The mean seconds of up to this many updates."""
    begun, count = time.perf_counter(), 0
    while count < most and (not count or time.perf_counter() - begun < SECONDS):
        _pass(run)
        count += 1
    return (time.perf_counter() - begun) / count


def _pass(run: Run) -> None:
    """Forward and backward pass over the episodes of one update."""
    model, count = run.model, run.recipe.plan.episodes_per_step
    episode = model.learner.pose(run.episodes.batch(0, count))
    model.train()
    model.learner.objective(model(episode), episode.query.targets).backward()
    model.zero_grad(set_to_none=True)


def _validation(run: Run, images: Benchmark, most: int) -> float:
    """Seconds to embed the validation split and solve its episodes, scaled up from some images and two episodes."""
    recipe, model = run.recipe, run.model.eval()
    part = replace(images.val, members=images.val.members[: max(recipe.val_ways)])
    network = folded(model.embedding)
    begun = time.perf_counter()
    features = embed_rows(network, part, part.rows[:most])
    embedding = (time.perf_counter() - begun) * _val_images(recipe.data, images) / len(features)
    pool = features[torch.arange(len(part.rows)) % len(features)]  # their content does not affect the time
    count = int(part.counts.min())
    begun = time.perf_counter()
    for way, shot in product(recipe.val_ways, recipe.val_shots):
        query = min(validation_queries(recipe, way, shot, count), count - shot)
        evaluate(model, EpisodeSampler(part, FixedShots(way, shot, query)), 2, pool=pool)
    return embedding + (time.perf_counter() - begun) / 2 * recipe.val_episodes


def _val_images(name: str, images: Benchmark) -> int:
    known = IMAGES.get(name.removesuffix(NEAREST))
    return known[1] * known[2] if known else len(images.val.rows)


@lru_cache
def stand_in(name: str, per_class: int = 60) -> Benchmark:
    """Noise in the shape of a missing benchmark: the same number of training classes, but fewer images."""
    channels, height, width = SHAPES[name.removesuffix(NEAREST)]
    train_classes, _, _ = IMAGES[name.removesuffix(NEAREST)]
    classes = min(train_classes, 80) + 40
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (classes * per_class, height, width, channels), dtype=torch.uint8, generator=generator)
    names = tuple(f"noise{number}" for number in range(classes))
    table = ImageTable(pixels.permute(0, 3, 1, 2), names, (per_class,) * classes)
    parts = {"train": names[:-40], "val": names[-40:-20], "test": names[-20:]}
    return Benchmark(name, *(table.split(part, own) for part, own in parts.items()))


def cost_of(recipe: Recipe) -> tuple[object, ...]:
    """What a run's time depends on; learnt or fixed hyper-parameters do not matter."""
    options = tuple(
        sorted((key, recipe.options[key]) for key in ("steps", "prior", "test_steps") if key in recipe.options)
    )
    episodes = (recipe.way, recipe.images_per_class, recipe.plan.episodes_per_step, recipe.val_shots, recipe.augment)
    validated = bool(recipe.plan.validate_every)
    return (recipe.data, recipe.learner, recipe.width, recipe.norm, recipe.concatenate, options, episodes, validated)


# The table of all costs

NAME = "reproduce-estimates"
TITLE = "What the paper's experiments would take"
HEAD = ("Recipe", "and", "images", "s / update", "s / episode", "s / validation", "episodes", "here", "GFLOP", "GPU")


@dataclass(frozen=True)
class Priced:
    """Runs that cost the same, and the measurement of the first."""

    jobs: tuple[Job, ...]
    cost: Estimate

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        cost, recipe = self.cost, self.cost.job.recipe
        return {
            "recipes": [job.name for job in self.jobs],
            "images_per_update": recipe.way * recipe.images_per_class * recipe.plan.episodes_per_step,
            "seconds_per_update": cost.update,
            "seconds_per_episode": cost.update / recipe.plan.episodes_per_step,
            "seconds_per_validation": cost.validation,
            "episodes": recipe.plan.episodes,
            "hours_here": cost.whole / 3600,
            "operations_per_update": cost.operations,
            "gpu_hours_estimated": cost.gpu_hours,
            "measured_on": cost.measured_on,
        }

    def line(self) -> tuple[str, ...]:
        """A row in words."""
        facts, more = self.as_json(), len(self.jobs) - 1
        return (
            self.jobs[0].name,
            f"{more} more" if more else "",
            f"{facts['images_per_update']:,}",
            *(f"{facts[f'seconds_per_{each}']:.3g}" for each in ("update", "episode", "validation")),
            f"{facts['episodes']:,}",
            duration(self.cost.whole),
            f"{self.cost.operations / 1e9:,.0f}",
            duration(3600 * self.cost.gpu_hours),
        )


def price_all(options: Options, words: tuple[str, ...], say: Callable[[str], None]) -> list[Priced]:
    """Measure each distinct cost in all tables and figures, for recipes whose name contains one of the words."""
    costs: dict[tuple[object, ...], dict[str, Job]] = {}
    for experiment in EXPERIMENTS.values():
        for job in (job for _, own in plan_cells(experiment, options) for job in own[:1]):
            if not words or any(word.lower() in job.name.lower() for word in words):
                costs.setdefault(cost_of(job.recipe), {})[job.name] = job
    if not costs:
        raise InvalidOptionError(f"No recipe's name contains {' or '.join(words)}. `handful recipes` lists them.")
    groups = sorted((tuple(jobs.values()) for jobs in costs.values()), key=lambda jobs: jobs[0].name)
    benchmarks, _ = load_data(jobs[0] for jobs in groups)
    priced = []
    for number, jobs in enumerate(groups, 1):
        cost = estimate(jobs[0], benchmarks.get(jobs[0].recipe.data))
        priced.append(Priced(jobs, cost))
        say(f"[{number}/{len(groups)}] {jobs[0].name}: {cost.update:.3g} s per update, {duration(cost.whole)} in all")
    return priced


def write_estimates(priced: list[Priced], out: Path, command: str) -> list[Path]:
    """Write reproduce-estimates.json and .md; returns their paths."""
    here = machine()
    noise = sorted({each.cost.job.recipe.data for each in priced if each.cost.on_noise})
    facts: dict[str, Any] = {
        "title": TITLE,
        "created": now(),
        "command": command,
        "machine": here,
        "versions": versions(),
    }
    facts |= {"gpu_flops_assumed": GPU_FLOPS, "runs": [each.as_json() for each in priced]}
    blocks: list[Block] = [
        f"Measured on {here['processor']}, {here['threads']} threads of {here['cores']}: the mean of up to five "
        f"updates after the first, and a validation scaled up from a part of its images and episodes. 'Here' is the "
        f"whole recipe with its validations; 'and' counts recipes of equal cost. Runs may end sooner.",
        f"GPU times are an ESTIMATE, not a measurement: the operations that torch counts in an update, at an assumed "
        f"{GPU_FLOPS / 1e12:g} TFLOP/s sustained, without validation and without waiting for kernels or data.",
    ]
    if noise:
        blocks.append(f"{', '.join(noise)}: timed on noise images of the same size, because the data set is not there.")
    blocks += [Lines(HEAD, tuple(each.line() for each in priced)), f"Repeat it with `{command}` (made {now()})."]
    contents = {f"{NAME}.json": json.dumps(facts, indent=1, allow_nan=False), f"{NAME}.md": markdown(TITLE, blocks)}
    return write_files(out, contents)
