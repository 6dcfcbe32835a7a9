"""Training shared by processes that torchrun starts ends in the bits of one process, whatever dies in between."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from handful.data.table import Benchmark
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import InvalidOptionError
from handful.learners import R2D2, BaseLearner, Predictor, ProtoNet
from handful.meta.checkpoint import read_checkpoint
from handful.meta.config import Plan
from handful.meta.engine import Engine
from handful.meta.evaluate import evaluate
from handful.meta.features import embed_pool
from handful.meta.gram import Route
from handful.meta.model import FewShotModel
from handful.meta.steps import Branch, grown, joined
from handful.meta.train import seeded, train
from tests.meta import shared_run

ROOT = Path(__file__).parents[2]


def torchrun(processes: int, folder: Path, kill_at: int, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--standalone", "--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command += ["-m", "tests.meta.shared_run", str(folder), str(kill_at)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every tensor of every checkpoint: weights, running statistics, averages, moments of Adam."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors, _ = read_checkpoint(path)
        found |= {f"{path.name}/{name}": hashlib.sha256(each.numpy()).hexdigest() for name, each in tensors.items()}
    return found


@pytest.mark.slow
def test_a_run_killed_with_two_processes_and_resumed_with_four_ends_in_the_bits_of_one(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = shared_run.run_in(tmp_path / "one", Engine())
        alone.start()
        list(alone.train())
    finally:
        torch.set_num_threads(threads)
    folder = tmp_path / "many"
    killed = torchrun(2, folder, kill_at=17)
    assert "SIGKILL" in killed.stderr
    _, facts = read_checkpoint(folder / "last.safetensors")
    assert facts["training"]["episode"] == 15 * shared_run.PER_STEP
    done = torchrun(4, folder, kill_at=0)
    assert done.returncode == 0, done.stderr[-2000:]
    assert hashes(folder) == hashes(tmp_path / "one")
    assert len((folder / "log.jsonl").read_text().splitlines()) == shared_run.STEPS


@pytest.mark.parametrize("count", [1, 2, 6, 7, 8])
def test_any_cut_of_a_step_into_processes_sums_in_the_same_order(count: int) -> None:
    values = torch.randn(count, 1000, generator=torch.Generator().manual_seed(count))

    def total(world: int) -> torch.Tensor:
        leaves, each = [Branch(place, 1, values[place]) for place in range(count)], count // world
        held = [grown(leaves[rank * each : (rank + 1) * each]) for rank in range(world)]
        return joined(grown(branch for branches in held for branch in branches))

    sums = [total(world) for world in range(1, count + 1) if count % world == 0]
    assert all(torch.equal(each, sums[0]) for each in sums)
    torch.testing.assert_close(sums[0], values.sum(0))


def test_a_number_of_processes_that_does_not_divide_the_episodes_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidOptionError, match=r"4 passes .*3 processes"):
        shared_run.run_in(tmp_path / "run", Engine(rank=1, world=3))
    assert not (tmp_path / "run").exists()


def test_statistics_of_the_whole_step_cannot_be_shared(tmp_path: Path) -> None:
    whole = replace(shared_run.RECIPE.plan, statistics="step")
    with pytest.raises(InvalidOptionError, match=r"1 passes .*2 processes"):
        Engine(rank=0, world=2).share(whole.parts, "passes per update")


class Apart(Engine):
    """A process that is shown only what it computed itself."""

    def total(self, mine: torch.Tensor) -> torch.Tensor:
        return mine


def model_of(learner: BaseLearner) -> FewShotModel:
    with seeded(0):
        return FewShotModel(nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 5)), learner)


def test_processes_embed_disjoint_batches_of_the_pool(tiny: Benchmark) -> None:
    embedding = model_of(R2D2()).embedding
    parts = [embed_pool(embedding, tiny.test, Apart(rank=rank, world=3), batch=7) for rank in range(3)]
    whole = embed_pool(embedding, tiny.test, batch=7)
    assert torch.equal(parts[0] + parts[1] + parts[2], whole)
    assert all(0 < int((part != 0).any(1).sum()) < len(whole) for part in parts)


@pytest.mark.parametrize(("learner", "route"), [(R2D2(), "auto"), (ProtoNet(), "episodes")])
def test_processes_solve_disjoint_episodes(
    tiny: Benchmark, learner: BaseLearner, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handful.meta.evaluate.MOST_EPISODES", 4)
    monkeypatch.setattr("handful.meta.evaluate.CHUNK_BYTES", 1000)
    model, episodes = model_of(learner), EpisodeSampler(tiny.test, FixedShots(3, 1, 2))
    pool = embed_pool(model.embedding, tiny.test)
    whole = evaluate(model, episodes, 12, route=route, pool=pool).accuracies
    parts = [
        evaluate(model, episodes, 12, engine=Apart(rank=rank, world=2), route=route, pool=pool).accuracies
        for rank in range(2)
    ]
    assert torch.equal(parts[0] + parts[1], whole)
    assert all(0 < float(part.sum()) < float(whole.sum()) for part in parts)


def test_half_precision_is_for_the_embedding_alone(tiny: Benchmark) -> None:
    seen = []

    class Watched(ProtoNet):
        def fit(self, support: torch.Tensor, targets: torch.Tensor) -> Predictor:
            seen.append((support.dtype, torch.is_autocast_enabled("cpu")))
            return super().fit(support, targets)

    model = model_of(Watched())
    kinds = []
    model.embedding.register_forward_hook(lambda module, inputs, output: kinds.append(output.dtype))
    sampler = EpisodeSampler(tiny.train, FixedShots(3, 1, 2))
    next(train(model, sampler, Plan(episodes=1, validate_every=0), engine=Engine(precision="bf16")))
    assert seen == [(torch.float32, False)]
    assert kinds == [torch.bfloat16]


def test_episodes_drawn_ahead_and_losses_read_seldom_change_no_bit(tiny: Benchmark) -> None:
    plan, ends = Plan(episodes=12, episodes_per_step=2, validate_every=0), []
    for engine in (Engine(), Engine(prefetch=2, read_every=4)):
        model, sampler = model_of(ProtoNet()), EpisodeSampler(tiny.train, FixedShots(3, 1, 2))
        steps = list(train(model, sampler, plan, engine=engine))
        ends.append((model.state_dict(), [step.episode for step in steps], steps))
    for name, value in ends[0][0].items():
        assert torch.equal(value, ends[1][0][name]), name
    assert [each[1] for each in ends] == [[2, 4, 6, 8, 10, 12], [8, 12]]
    assert ends[1][2][0].loss == pytest.approx(sum(step.loss for step in ends[0][2][:4]) / 4)
