"""A process that trains for a few updates of one episode each, to be started by torchrun or called alone."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from handful.embeddings import conv4
from handful.episodes import EpisodeSampler, RandomShots
from handful.learners import R2D2
from handful.meta.config import Plan
from handful.meta.engine import Engine, prepare
from handful.meta.manifest import machine
from handful.meta.model import FewShotModel
from handful.meta.state import TrainingState
from handful.meta.train import seeded, train
from tests.conftest import blobs

UPDATES = 3


def trained(engine: Engine, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """All weights and running statistics after three updates, with an auxiliary classifier and no dropout.

    35 images can only be divided unequally. Plain gradient descent, because Adam would turn the rounding of gradients
    that are 0 into whole steps.
    """
    with seeded(0):
        model = FewShotModel(conv4("32C", channels=1), R2D2()).to(dtype)
        model.embedding.register_forward_pre_hook(lambda network, inputs: (inputs[0].to(dtype),))
        size = model.eval().embed(torch.zeros(1, 1, 24, 24)).numel()
        classifier = nn.Linear(size, 8).to(dtype)
    plan = Plan(
        episodes=UPDATES,
        optimiser="sgd",
        rate=0.01,
        momentum=0.0,
        classify=0.5,
        validate_every=UPDATES,
        average="uniform",
    )
    state = TrainingState(model, plan, classifier)
    table = blobs(classes=8, images=8, size=24)
    shape = RandomShots(way=5, images_per_class=7, max_shot=5)
    episodes = EpisodeSampler(table.split("train", table.classes), shape, seed=0)
    losses = [
        progress.loss
        for progress in train(model, episodes, validate=lambda judged: {"1-shot": 0.5}, state=state, engine=engine)
    ]
    return {
        **{
            f"{name}.{dtype}": value.clone()
            for name, value in (*model.state_dict().items(), *classifier.state_dict().items())
        },
        **{f"average.{name}.{dtype}": value.clone() for name, value in state.judged.state_dict().items()},
        f"losses.{dtype}": torch.tensor(losses, dtype=torch.float64),
    }


def main(folder: Path) -> None:
    """Train in double and single precision, and let every process save what it has."""
    engine = prepare("cpu", threads=1)
    tensors = trained(engine, torch.float64) | trained(engine, torch.float32)
    tensors["processes"] = torch.tensor(machine()["processes"])
    save_file(tensors, folder / f"{engine.rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
