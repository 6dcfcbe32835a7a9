"""What an experiment would take: a short measurement of each run on this machine, and arithmetic for a GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from handful.checkpoint import read_checkpoint
from handful.data.table import Benchmark, ImageTable
from handful.errors import CheckpointError
from handful.evaluation import evaluate
from handful.pool import embed_pool
from handful.reproduce.jobs import Job
from handful.runs import LAST, Run
from handful.training import train

SHAPES = {"mini-imagenet": (3, 84, 84), "cifar-fs": (3, 32, 32), "omniglot": (1, 28, 28)}
IMAGES = {"mini-imagenet": (64, 16, 600), "cifar-fs": (64, 16, 600), "omniglot": (4112, 688, 20)}
"""Training classes, validation classes, images a class."""
GPU_FLOPS = 5e12
"""Operations a second that a mid-range GPU sustains on small convolutions; an assumption, told with every use."""
SECONDS = 2.0
"""Longest that a run's updates are timed, after the first."""


@dataclass(frozen=True)
class Estimate:
    """Expected costs of one run."""

    job: Job
    done: int
    update: float
    """Seconds an update."""
    validation: float
    """Seconds a validation."""
    gpu_hours: float
    measured_on: str

    def of(self, job: Job) -> Estimate:
        """The same costs for another run that costs the same an update."""
        return replace(self, job=job, done=episodes_done(job))

    @property
    def seconds(self) -> float:
        """Expected seconds until the run is complete, if patience does not end it sooner."""
        plan = self.job.recipe.plan
        left = max(0, plan.episodes - self.done)
        validations = left / plan.validate_every if plan.validate_every else 0
        return left / plan.episodes_per_step * self.update + validations * self.validation


def estimate(job: Job, benchmark: Benchmark | None) -> Estimate:
    """Time a few updates and a validation of a run in a folder that is never written."""
    data = benchmark if benchmark is not None else stand_in(job.recipe.data)
    quiet = replace(job.recipe, plan=replace(job.recipe.plan, validate_every=0))
    run = Run(job.folder, quiet, data)
    operations = _operations(run)
    steps = train(run.model, run.episodes, state=run.state)
    next(steps)
    begun, count = time.perf_counter(), 0
    while not count or (count < 5 and time.perf_counter() - begun < SECONDS):
        if next(steps, None) is None:
            break
        count += 1
    update = (time.perf_counter() - begun) / max(1, count)
    whole = operations * job.planned / job.recipe.plan.episodes_per_step
    told = "the data set itself" if benchmark is not None else "noise of the same size, for the data set is not there"
    return Estimate(job, episodes_done(job), update, _validation(run, data), whole / GPU_FLOPS / 3600, told)


def episodes_done(job: Job) -> int:
    """Episodes that a run was already trained for."""
    try:
        _, facts = read_checkpoint(job.folder / LAST)
        return int(facts["training"]["episode"])
    except (CheckpointError, KeyError):
        return 0


def _operations(run: Run) -> float:
    """Floating-point operations of one update, as torch counts them."""
    model, count = run.model, run.recipe.plan.episodes_per_step
    episode = model.learner.pose(run.episodes.batch(0, count))
    model.train()
    with FlopCounterMode(display=False) as counter:
        model.learner.objective(model(episode), episode.query.targets).backward()
    model.zero_grad(set_to_none=True)
    return float(counter.get_total_flops())


def _validation(run: Run, data: Benchmark) -> float:
    """Seconds to embed the validation split and solve its episodes, scaled up from some 200 images and 2 episodes."""
    recipe = run.recipe
    few = max(recipe.val_way, 200 // int(data.val.counts[0]))
    part = replace(data.val, members=data.val.members[:few])
    begun = time.perf_counter()
    pool = embed_pool(run.model.embedding, part)
    embedding = (time.perf_counter() - begun) * _val_images(recipe.data, data) / len(pool)
    query = min(recipe.val_query, int(part.counts.min()) - max(recipe.val_shots))
    begun = time.perf_counter()
    for shot in recipe.val_shots:
        evaluate(run.model, part, recipe.val_way, shot, query, 2, pool=pool)
    return embedding + (time.perf_counter() - begun) / 2 * recipe.val_episodes


def _val_images(name: str, data: Benchmark) -> int:
    if name in IMAGES:
        _, classes, images = IMAGES[name]
        return classes * images
    return len(data.val.rows)


def stand_in(name: str, per_class: int = 60) -> Benchmark:
    """Noise in the shape of a benchmark that is not there: as many training classes, fewer images."""
    channels, height, width = SHAPES[name]
    train_classes, _, _ = IMAGES[name]
    classes = min(train_classes, 80) + 10
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (classes * per_class, height, width, channels), dtype=torch.uint8, generator=generator)
    names = tuple(f"noise{number}" for number in range(classes))
    table = ImageTable(pixels.permute(0, 3, 1, 2), names, (per_class,) * classes)
    return Benchmark(
        name, table.split("train", names[:-10]), table.split("val", names[-10:-5]), table.split("test", names[-5:])
    )
