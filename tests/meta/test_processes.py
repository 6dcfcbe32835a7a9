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

from handful.errors import InvalidOptionError
from handful.meta.checkpoint import read_checkpoint
from handful.meta.engine import Engine
from handful.meta.steps import Branch, grown, joined
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
    with pytest.raises(InvalidOptionError, match="cannot be shared evenly by 3 processes"):
        shared_run.run_in(tmp_path / "run", Engine(rank=1, world=3))
    assert not (tmp_path / "run").exists()


def test_statistics_of_the_whole_step_cannot_be_shared(tmp_path: Path) -> None:
    whole = replace(shared_run.RECIPE.plan, statistics="step")
    with pytest.raises(InvalidOptionError, match="cannot be shared"):
        Engine(rank=0, world=2).share(whole.parts, "passes per update")
