"""A process of a short training run, to be started by torchrun: torchrun -m tests.meta.shared_run FOLDER 0."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from handful.data.table import Benchmark
from handful.meta.config import Plan, Recipe
from handful.meta.engine import Engine, prepare, restarted
from handful.meta.run import LAST, Run
from tests.conftest import blobs

STEPS, PER_STEP = 40, 4
RECIPE = Recipe(
    width="32C",
    dropout=0.2,
    way=3,
    images_per_class=3,
    max_shot=2,
    augment=("crop", "flip"),
    turned=0.5,
    mixed=0.5,
    plan=Plan(
        episodes=STEPS * PER_STEP,
        episodes_per_step=PER_STEP,
        validate_every=20 * PER_STEP,
        average="exponential",
        average_from=0.1,
    ),
    val_ways=(2,),
    val_shots=(1,),
    val_query=2,
    val_episodes=4,
)


def run_in(folder: Path, engine: Engine, recipe: Recipe = RECIPE) -> Run:
    """The run of the test, on images so small that its network is done with them at once."""
    table = blobs(classes=8, images=4, size=24)
    names = table.classes
    splits = table.split("train", names[:4]), table.split("val", names[4:6]), table.split("test", names[6:])
    return Run(folder, recipe, Benchmark("blobs", *splits), engine)


def main(folder: Path, kill_at: int) -> None:
    """Train to the end; the last process kills itself before update `kill_at`, unless it was started again."""
    engine = prepare("cpu", threads=1)
    run = run_in(folder, engine)
    run.resume() if (folder / LAST).exists() else run.start()
    for progress in run.train(save_every=5 * PER_STEP):
        if progress.episode == kill_at * PER_STEP and engine.rank == engine.world - 1 and not restarted():
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
