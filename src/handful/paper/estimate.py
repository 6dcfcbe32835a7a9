"""What an experiment would take: a short measurement of each run on this machine, and arithmetic for a GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import torch
from torch.utils.flop_counter import FlopCounterMode

from handful.data.table import Benchmark, ImageTable
from handful.episodes import EpisodeSampler, FixedShots
from handful.meta.completeness import complete_at
from handful.meta.config import Recipe
from handful.meta.evaluate import evaluate
from handful.meta.features import embed_rows, folded
from handful.meta.run import Run, validation_queries
from handful.meta.train import train
from handful.paper.jobs import Job, Standing, standing
from handful.paper.recipes.settings import NEAREST

SHAPES = {"mini-imagenet": (3, 84, 84), "cifar-fs": (3, 32, 32), "omniglot": (1, 28, 28)}
IMAGES = {"mini-imagenet": (64, 16, 600), "cifar-fs": (64, 16, 600), "omniglot": (4112, 688, 20)}
"""Training classes, validation classes, images a class."""
GPU_FLOPS = 5e12
"""Operations a second that a mid-range GPU sustains on small convolutions; an assumption, told with every use."""
SECONDS = 2.0
"""Longest that a run's updates are timed, after the first."""
MOST_PIXELS = 2_000_000
"""Updates of several episodes with more pixels than this are timed one episode at a time."""
VAL_IMAGES = 200
"""Images that are embedded to time a validation."""
QUICK_PIXELS = 60_000
"""Pixels of an episode that a quick estimate aims at; more are scaled up."""
QUICK_VAL_IMAGES = 40
ADAPTING = ("maml", "anil", "meta-lstm")
"""Learners whose time is not in proportion to an episode's images: support and query cost differently."""


@dataclass(frozen=True)
class Estimate:
    """Expected costs of one run."""

    job: Job
    done: Standing
    update: float
    """Seconds an update."""
    validation: float
    """Seconds a validation."""
    operations: float
    """Floating-point operations of an update."""
    on_noise: bool
    """Whether noise stood in for a data set that is not there."""

    def of(self, job: Job) -> Estimate:
        """The same costs for another run that costs the same an update."""
        return replace(self, job=job, done=standing(job))

    @property
    def seconds(self) -> float:
        """Expected seconds until the run is complete, if patience does not end it sooner."""
        return 0.0 if self.done.complete or self.done.over else self._seconds(max(0, self.end - self.done.episodes))

    @property
    def end(self) -> int:
        """The episode at which the run is complete, or at which it was asked to end."""
        plan = self.job.recipe.plan
        complete = complete_at(self.job.whole_plan)
        every = plan.validate_every or 1
        return min(plan.episodes, -(-complete // every) * every)

    @property
    def whole(self) -> float:
        """Expected seconds of the whole run."""
        return self._seconds(self.job.recipe.plan.episodes)

    def _seconds(self, episodes: int) -> float:
        plan = self.job.recipe.plan
        validations = episodes / plan.validate_every if plan.validate_every else 0
        return episodes / plan.episodes_per_step * self.update + validations * self.validation

    def within(self, seconds: float) -> int:
        """Episodes that fit into so many seconds, with the validation at their end."""
        plan = self.job.recipe.plan
        episode = self._seconds(plan.episodes) / plan.episodes
        return max(plan.episodes_per_step, int((seconds - self.validation) / episode))

    @property
    def gpu_hours(self) -> float:
        """Hours of the whole recipe, uncut, on a GPU that sustains `GPU_FLOPS`."""
        updates = self.job.planned / self.job.recipe.plan.episodes_per_step
        return self.operations * updates / GPU_FLOPS / 3600

    @property
    def measured_on(self) -> str:
        """What was timed, in words."""
        return "noise of the same size, for the data set is not there" if self.on_noise else "the data set itself"


def estimate(job: Job, benchmark: Benchmark | None, quick: bool = False) -> Estimate:
    """Time a few updates and a validation of a run in a folder that is never written.

    A `quick` one takes a single pass over a small episode and scales it up by the number of images.
    """
    data = benchmark if benchmark is not None else stand_in(job.recipe.data)
    if quick:
        return _quick(job, data, benchmark is None)
    at_once = _at_once(job.recipe, data)
    quiet = replace(job.recipe, plan=replace(job.recipe.plan, validate_every=0, episodes_per_step=at_once))
    run = Run(job.folder, quiet, data)
    operations = _operations(run)
    steps = train(run.model, run.episodes, state=run.state)
    next(steps)
    begun, count = time.perf_counter(), 0
    while not count or (count < 5 and time.perf_counter() - begun < SECONDS):
        if next(steps, None) is None:
            break
        count += 1
    parts = job.recipe.plan.episodes_per_step / at_once
    update = parts * (time.perf_counter() - begun) / max(1, count)
    return Estimate(job, standing(job), update, _validation(run, data), parts * operations, benchmark is None)


def _quick(job: Job, data: Benchmark, noise: bool) -> Estimate:
    """One pass forward and back over a small episode, scaled up to an update; the optimiser's own time is left out."""
    recipe = _smaller(job.recipe, data)
    run = Run(job.folder, replace(recipe, plan=replace(recipe.plan, validate_every=0, episodes_per_step=1)), data)
    operations = _operations(run)  # and a first pass, which warms up
    begun = time.perf_counter()
    _pass(run)
    scale = job.recipe.plan.episodes_per_step * _effort(job.recipe) / _effort(recipe)
    update = scale * (time.perf_counter() - begun)
    if not job.recipe.plan.validate_every:
        validation = 0.0
    elif recipe.learner in ADAPTING:  # each validation episode adapts, without the second pass of a gradient of it
        episodes = recipe.val_episodes * len(recipe.val_shots)
        validation = episodes * update / job.recipe.plan.episodes_per_step / 3
    else:
        validation = _validation(run, data, QUICK_VAL_IMAGES)
    return Estimate(job, standing(job), update, validation, scale * operations, noise)


def _smaller(recipe: Recipe, data: Benchmark) -> Recipe:
    """The recipe with fewer images in an episode."""
    _, height, width = data.train.image_shape
    most = QUICK_PIXELS // (height * width)
    images = max(recipe.max_shot + 1, min(recipe.images_per_class, most // recipe.way))
    way = recipe.way if "way" in recipe.options else max(2, min(recipe.way, most // images))
    # validation keeps its size, which may follow from that of a whole training episode
    query = validation_queries(recipe, max(recipe.val_ways), max(recipe.val_shots), int(data.val.counts.min()))
    return replace(recipe, way=way, images_per_class=images, val_query=query)


def _effort(recipe: Recipe) -> float:
    """What the time of an episode is in proportion to: its images, each support image once more for each inner step."""
    if recipe.learner not in ADAPTING:
        return recipe.way * recipe.images_per_class
    steps = float(recipe.options.get("steps", 5))
    return recipe.way * (2 * steps * recipe.max_shot + recipe.images_per_class - recipe.max_shot)


def _at_once(recipe: Recipe, data: Benchmark) -> int:
    """Episodes of one timed update: one at a time where all would take too much memory, for times add up."""
    _, height, width = data.train.image_shape
    per_step = recipe.plan.episodes_per_step
    pixels = per_step * recipe.way * recipe.images_per_class * height * width
    return per_step if pixels <= MOST_PIXELS else 1


def _operations(run: Run) -> float:
    """Floating-point operations of one update, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        _pass(run)
    return float(counter.get_total_flops())


def _pass(run: Run) -> None:
    """Forward and back over the episodes of one update."""
    model, count = run.model, run.recipe.plan.episodes_per_step
    episode = model.learner.pose(run.episodes.batch(0, count))
    model.train()
    model.learner.objective(model(episode), episode.query.targets).backward()
    model.zero_grad(set_to_none=True)


def _validation(run: Run, data: Benchmark, images: int = VAL_IMAGES) -> float:
    """Seconds to embed the validation split and solve its episodes, scaled up from some 200 images and 2 episodes."""
    recipe, model = run.recipe, run.model.eval()
    part = replace(data.val, members=data.val.members[: max(recipe.val_ways)])
    network = folded(model.embedding)
    begun = time.perf_counter()
    features = embed_rows(network, part, part.rows[:images])
    embedding = (time.perf_counter() - begun) * _val_images(recipe.data, data) / len(features)
    pool = features[torch.arange(len(part.rows)) % len(features)]  # what they show does not matter for the time
    images = int(part.counts.min())
    begun = time.perf_counter()
    for way, shot in product(recipe.val_ways, recipe.val_shots):
        query = min(validation_queries(recipe, way, shot, images), images - shot)
        evaluate(model, EpisodeSampler(part, FixedShots(way, shot, query)), 2, pool=pool)
    return embedding + (time.perf_counter() - begun) / 2 * recipe.val_episodes


def _val_images(name: str, data: Benchmark) -> int:
    known = IMAGES.get(name.removesuffix(NEAREST))
    return known[1] * known[2] if known else len(data.val.rows)


@lru_cache
def stand_in(name: str, per_class: int = 60) -> Benchmark:
    """Noise in the shape of a benchmark that is not there: as many training classes, fewer images."""
    channels, height, width = SHAPES[name.removesuffix(NEAREST)]
    train_classes, _, _ = IMAGES[name.removesuffix(NEAREST)]
    classes = min(train_classes, 80) + 40
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (classes * per_class, height, width, channels), dtype=torch.uint8, generator=generator)
    names = tuple(f"noise{number}" for number in range(classes))
    table = ImageTable(pixels.permute(0, 3, 1, 2), names, (per_class,) * classes)
    return Benchmark(
        name, table.split("train", names[:-40]), table.split("val", names[-40:-20]), table.split("test", names[-20:])
    )
