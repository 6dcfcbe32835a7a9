"""Trainings that take less than a second: small images of noise, a small network, averages, a few checkpoints."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from handful.cli.main import main
from handful.data.table import Benchmark, ClassDataset, ImageTable
from handful.meta.config import Plan, Recipe
from handful.meta.run import RECIPE, Run

RECIPE_OF_A_TINY_RUN = Recipe(
    width="32C",
    way=4,
    images_per_class=4,
    max_shot=2,
    val_ways=(4,),
    val_shots=(1,),
    val_query=2,
    val_episodes=3,
    plan=Plan(episodes=6, validate_every=2, average="uniform"),
)


@cache
def tiny_benchmark() -> Benchmark:
    """Three splits of five classes with four images of 24 x 24 noise."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (60, 1, 24, 24), dtype=torch.uint8, generator=draw)
    table = ImageTable(images, tuple(f"class {number}" for number in range(15)), (4,) * 15)
    parts = [
        ClassDataset(name, table, tuple(range(5 * i, 5 * i + 5))) for i, name in enumerate(("train", "val", "test"))
    ]
    return Benchmark("noise", *parts)


def tiny_run(folder: Path, episodes: int = 6) -> Run:
    """Train from where the folder stands, for this many episodes."""
    run = Run(folder, RECIPE_OF_A_TINY_RUN, tiny_benchmark())
    run.resume() if (folder / RECIPE).exists() else run.start()
    for progress in (steps := run.train(save_every=1)):
        if progress.episode >= episodes:
            steps.close()
    return run


FLAGS_OF_A_TINY_RUN = {
    "width": "32C",
    "way": "4",
    "images-per-class": "4",
    "max-shot": "2",
    "val-ways": "4",
    "val-shots": "1",
    "val-query": "2",
    "val-episodes": "3",
    "validate-every": "2",
    "average": "uniform",
}


def tiny_command(folder: Path, episodes: int) -> int:
    """`handful train` into the folder, with --resume if it holds a run; `benchmark_of` must give `tiny_benchmark`."""
    flags = [word for name, value in FLAGS_OF_A_TINY_RUN.items() for word in (f"--{name}", value)]
    more = ["--resume"] if (folder / RECIPE).exists() else [*flags, "--episodes", str(episodes)]
    return main(["train", "--out", str(folder), "--save-every", "1", "--threads", "1", *more])
