"""Engines, models and processes that tests of shared work have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from handful.learners import BaseLearner
from handful.meta.engine import Engine
from handful.meta.model import FewShotModel
from handful.meta.train import seeded


class Apart(Engine):
    """A process that is shown only what it computed itself."""

    def total(self, mine: torch.Tensor) -> torch.Tensor:
        return mine


def model_of(learner: BaseLearner) -> FewShotModel:
    with seeded(0):
        return FewShotModel(nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 5)), learner)


def torchrun(processes: int, module: str, *arguments: object, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a module of the tests in several processes with one thread each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--standalone", "--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command += ["-m", module, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
