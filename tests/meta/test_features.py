"""Embedding a split once: in order, without touching the network, the same in any batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from handful.data.table import Benchmark
from handful.learners import R2D2
from handful.meta.features import embed_pool, embed_pool_within, embed_rows, folded, pool_bytes
from tests.meta.engines import Apart, model_of


@pytest.fixture
def network() -> nn.Module:
    """A convolution whose batch norm has seen data, twice, and a norm that keeps no statistics."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Sequential(nn.Conv2d(4, 3, 3), nn.BatchNorm2d(3)),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        ).train()
        made(torch.rand(16, 1, 28, 28))
    return made


def test_features_are_those_of_the_network_in_evaluation_mode(network: nn.Module, tiny: Benchmark) -> None:
    features = embed_pool(network, tiny.test)
    assert network.training
    with torch.no_grad():
        wanted = network.eval()(tiny.test.inputs(tiny.test.rows))
    # folding multiplies the weights first: float32 rounding of two layers
    torch.testing.assert_close(features, wanted, rtol=1e-4, atol=1e-5)


def test_folding_leaves_no_batch_norm_behind_a_convolution_and_the_network_as_it_is(network: nn.Module) -> None:
    before = {name: value.clone() for name, value in network.state_dict().items()}
    copy = folded(network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in copy.modules())
    assert not copy.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_norm_without_statistics_is_not_folded() -> None:
    kept = folded(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False)))
    assert any(isinstance(module, nn.BatchNorm2d) for module in kept.modules())


def test_rows_are_embedded_in_the_order_asked_for(network: nn.Module, tiny: Benchmark) -> None:
    fast = folded(network)
    rows = tiny.test.rows[[5, 0, 17, 5]]
    whole = embed_rows(fast, tiny.test, rows)
    singly = torch.cat([embed_rows(fast, tiny.test, rows[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(whole, singly, rtol=1e-5, atol=1e-6)
    assert torch.equal(whole[0], whole[3])
    assert not whole.requires_grad


def test_a_pool_beyond_the_memory_is_not_embedded(network: nn.Module, tiny: Benchmark) -> None:
    size = pool_bytes(network, tiny.test)
    assert size == 6 * 20 * 12 * 4  # classes, images, features, bytes
    assert embed_pool_within(network, tiny.test, size - 1) is None
    assert embed_pool_within(network, tiny.test, size) is not None


def test_processes_embed_disjoint_batches_of_the_pool(tiny: Benchmark) -> None:
    embedding = model_of(R2D2()).embedding
    parts = [embed_pool(embedding, tiny.test, Apart(rank=rank, world=3), batch=7) for rank in range(3)]
    whole = embed_pool(embedding, tiny.test, batch=7)
    assert torch.equal(parts[0] + parts[1] + parts[2], whole)
    assert all(0 < int((part != 0).any(1).sum()) < len(whole) for part in parts)
