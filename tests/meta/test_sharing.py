"""A pass that is divided among processes gives the updates of a single process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from handful.errors import InvalidOptionError
from handful.meta.engine import Engine
from handful.meta.sharing import shared_images, sum_gradients
from handful.meta.train import seeded
from tests.meta import shared_pass
from tests.meta.engines import Apart, torchrun


class Mirrored(Engine):
    """A process that believes that all others computed the same as itself."""

    def gathered(self, mine: torch.Tensor) -> torch.Tensor:
        return mine.repeat(self.world, *[1] * (mine.ndim - 1))

    def total(self, mine: torch.Tensor) -> torch.Tensor:
        return mine.mul_(self.world)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_processes_that_share_the_images_of_an_episode_train_as_one_does(processes: int, tmp_path: Path) -> None:
    done = torchrun(processes, "tests.meta.shared_pass", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    first, *others = [load_file(tmp_path / f"{rank}.safetensors") for rank in range(processes)]
    assert int(first["processes"]) == processes  # as the manifest of a run records it
    for other in others:
        assert first.keys() == other.keys()
        assert all(torch.equal(first[name], other[name]) for name in first)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
        for name, expected in shared_pass.trained(Engine(), dtype).items():
            # relative to the largest entry: three updates add to the rounding, and float32 uses Winograd's algorithm
            scale = max(1e-3, float(expected.abs().max()))
            torch.testing.assert_close(first[name], expected, rtol=0, atol=tolerance * scale, msg=name)


def test_each_process_embeds_its_own_images_and_only_in_training() -> None:
    network, images = nn.Identity(), torch.arange(7)
    seen = []
    for rank in range(3):
        with shared_images(network.train(), Mirrored(rank=rank, world=3)):
            seen.append(network(images).tolist())
    assert seen == [[0, 1, 2, 0, 1, 0, 1], [3, 4, 0, 3, 4, 3, 4], [5, 6, 0, 5, 6, 5, 6]]  # 0 where the first has more
    with shared_images(network.eval(), Mirrored(rank=1, world=3)):
        assert torch.equal(network(images), images)
    assert torch.equal(network.train()(images), images)


def test_processes_have_different_dropout_masks_and_leave_the_same_random_state() -> None:
    network, images = nn.Dropout(0.5), torch.ones(400, 1)
    masks, after = [], []
    for rank in range(2):
        with shared_images(network, Mirrored(rank=rank, world=2)), seeded(0):
            masks.append(network(images)[:200] > 0)
            after.append(torch.rand(3))
    assert not torch.equal(*masks)
    assert torch.equal(*after)


def test_more_processes_than_images_are_refused() -> None:
    network = nn.Linear(2, 2)
    with (
        shared_images(network, Apart(rank=0, world=4)),
        pytest.raises(InvalidOptionError, match="3 images cannot be divided among 4 processes"),
    ):
        network(torch.zeros(3, 2))


def test_gradients_of_the_network_are_summed_and_those_of_the_learner_are_kept() -> None:
    network, learner, idle = nn.Linear(1, 1, bias=False), nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
    network.weight.grad, learner.grad = torch.full((1, 1), 3.0), torch.tensor([1.0, 2.0])
    sum_gradients(network, [network.weight, learner, idle], Mirrored(rank=0, world=2))
    assert network.weight.grad.tolist() == [[6.0]]
    assert learner.grad.tolist() == [1.0, 2.0]
    assert idle.grad is None
