"""An update from several episodes gives the same bits in any number of processes, whatever dies in between."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from torch import nn

from handful.errors import InvalidOptionError
from handful.meta.checkpoint import read_checkpoint
from handful.meta.engine import Engine
from handful.meta.steps import Branch, GradientMean, RunningStatistics, grown, joined
from tests.meta import shared_run
from tests.meta.engines import torchrun


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
    killed = torchrun(2, "tests.meta.shared_run", folder, 17)
    assert "SIGKILL" in killed.stderr
    _, facts = read_checkpoint(folder / "last.safetensors")
    assert facts["training"]["episode"] == 15 * shared_run.PER_STEP
    done = torchrun(4, "tests.meta.shared_run", folder, 0)
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


def test_the_mean_gradient_is_given_back_and_a_parameter_that_no_episode_reached_gets_none() -> None:
    used, sometimes, never = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    mean = GradientMean([used, sometimes, never], 4, Engine())
    for episode in range(4):
        used.grad = torch.full((2,), float(episode))
        sometimes.grad = torch.ones(2) if episode == 1 else None
        mean.take()
        assert used.grad is None
    mean.give()
    assert used.grad is not None
    assert sometimes.grad is not None
    assert used.grad.tolist() == [1.5, 1.5]
    assert sometimes.grad.tolist() == [0.25, 0.25]
    assert never.grad is None


def test_running_statistics_of_a_step_are_those_of_its_episodes_one_after_the_other() -> None:
    plain, shared = nn.BatchNorm1d(3, momentum=0.2), nn.BatchNorm1d(3, momentum=0.2)
    episodes = torch.randn(3, 8, 3, generator=torch.Generator().manual_seed(0))
    statistics, left = RunningStatistics(shared), []
    for inputs in episodes:
        plain(inputs)
        statistics.begin()
        shared(inputs)
        left.append(torch.cat(statistics.left(torch.float64)))
    statistics.take(torch.stack(left))
    assert shared.num_batches_tracked == plain.num_batches_tracked == 3
    # the same sums in single precision, in another order
    torch.testing.assert_close(shared.running_mean, plain.running_mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(shared.running_var, plain.running_var, rtol=1e-5, atol=1e-6)
    statistics.restore()
    assert shared.running_mean is not None
    assert shared.running_mean.tolist() == [0.0, 0.0, 0.0]


def test_a_norm_that_averages_over_all_batches_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="momentum=None"):
        RunningStatistics(nn.BatchNorm1d(3, momentum=None))
