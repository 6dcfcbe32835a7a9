"""Shared batch norm equals PyTorch's; with one process here, with several in tests/meta/test_sharing.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from handful.embeddings import conv4
from handful.embeddings.shared_norm import SharedBatchNorm, shared_norms


@pytest.fixture(autouse=True)
def alone(tmp_path: Path) -> Iterator[None]:
    """A group of one process."""
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    yield
    distributed.destroy_process_group()


def maps(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3 + 2


def pair(norm: _BatchNorm) -> tuple[_BatchNorm, SharedBatchNorm]:
    """The norm, and a shared one with its own copies of the same weights."""
    norm = norm.double()
    shared = SharedBatchNorm(norm).double()
    shared.load_state_dict({name: value.clone() for name, value in norm.state_dict().items()})
    for name, value in list(shared.named_parameters()):
        setattr(shared, name, nn.Parameter(value.detach().clone()))
    for name, value in list(shared.named_buffers()):
        setattr(shared, name, value.clone())
    return norm, shared


NORMS = {
    "usual": (nn.BatchNorm2d(6), (5, 6, 3, 4)),
    "without weights": (nn.BatchNorm2d(6, affine=False), (5, 6, 3, 4)),
    "mean of all batches": (nn.BatchNorm2d(6, momentum=None), (5, 6, 3, 4)),
    "no running statistics": (nn.BatchNorm2d(6, track_running_stats=False), (5, 6, 3, 4)),
    "of vectors": (nn.BatchNorm1d(6), (8, 6)),
}


@pytest.mark.parametrize("name", NORMS)
def test_outputs_gradients_and_statistics_equal_those_of_pytorch(name: str) -> None:
    norm, shape = NORMS[name]
    theirs, ours = pair(norm)
    if theirs.affine:
        with torch.no_grad():
            for each in (theirs, ours):
                each.weight.copy_(torch.linspace(-1, 2, 6))
                each.bias.copy_(torch.linspace(1, -1, 6))
    for scale in (1.0, 0.5):
        given, other = (scale * maps(*shape)).requires_grad_(), (scale * maps(*shape)).requires_grad_()
        torch.testing.assert_close(ours(given), theirs(other))
        wanted = torch.sin(torch.arange(given.numel(), dtype=torch.float64)).view_as(given)
        ours(given).backward(wanted)
        theirs(other).backward(wanted)
        torch.testing.assert_close(given.grad, other.grad)
    torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    torch.testing.assert_close(ours.eval()(maps(*shape)), theirs.eval()(maps(*shape)))


def test_its_gradient_is_right() -> None:
    _, shared = pair(nn.BatchNorm2d(2, track_running_stats=False))
    assert torch.autograd.gradcheck(shared, maps(3, 2, 2, 2).requires_grad_())


def test_half_precision_maps_keep_statistics_in_single_precision() -> None:
    theirs, ours = pair(nn.BatchNorm2d(6))
    given, other = (maps(40, 6, 3, 4).bfloat16().requires_grad_() for _ in range(2))
    outputs = ours.float()(given), theirs.float()(other)
    assert outputs[0].dtype == torch.bfloat16
    for each in outputs:
        each.backward(maps(40, 6, 3, 4).bfloat16())
    torch.testing.assert_close(ours.running_mean, theirs.running_mean, rtol=1e-4, atol=1e-5)
    # bfloat16 has 8 bits, and ours rounds once more where it subtracts what flows through mean and variance
    torch.testing.assert_close(given.grad, other.grad, rtol=0.02, atol=0.02)


def test_a_large_mean_does_not_cancel_the_variance() -> None:
    _, shared = pair(nn.BatchNorm2d(6))
    shared.float()(maps(50, 6, 4, 4).float() + 1e4)
    # float32 resolves 1e-3 at 1e4, and running_var starts at 1 with a momentum of 0.1
    expected = 0.9 + 0.1 * maps(50, 6, 4, 4).var((0, 2, 3))
    torch.testing.assert_close(shared.running_var, expected.float(), rtol=1e-3, atol=0)


def test_a_network_shares_its_norms_only_within_the_block_and_keeps_weights_and_statistics() -> None:
    network = conv4("32C")
    norms = [each for each in network.modules() if isinstance(each, nn.BatchNorm2d)]
    names = list(network.state_dict())
    with shared_norms(network):
        inside = [each for each in network.modules() if isinstance(each, nn.BatchNorm2d)]
        assert [type(each) for each in inside] == 4 * [SharedBatchNorm]
        assert list(network.state_dict()) == names
        assert all(now.weight is was.weight for now, was in zip(inside, norms, strict=True))
        network(torch.rand(4, 3, 16, 16))
        network.eval()
    assert [each for each in network.modules() if isinstance(each, nn.BatchNorm2d)] == norms
    assert not any(each.training for each in norms)
    assert [int(each.get_buffer("num_batches_tracked")) for each in norms] == 4 * [1]
