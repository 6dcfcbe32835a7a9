"""Embeddings by name: each takes images of its channels, and refuses options that it cannot follow."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import nn

from handful.embeddings.registry import EMBEDDINGS, Reduced, build_embedding
from handful.errors import InvalidOptionError
from handful.meta.config import Network


def test_recipes_know_every_embedding_by_name() -> None:
    assert set(get_args(Network)) == set(EMBEDDINGS)


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_every_embedding_tells_two_grey_images_apart(name: str) -> None:
    network = build_embedding(name, 1, side=28).eval()
    with torch.no_grad():
        features = network(torch.rand(2, 1, 28, 28))
    assert len(features) == 2
    assert torch.isfinite(features).all()
    assert not torch.equal(features[0], features[1])


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidOptionError, match=r"'resnet50'.*32C.*resnet12"):
        build_embedding("resnet50")


@pytest.mark.parametrize("name", ["gnn-net", "relation-net", "snail-resnet", "resnet12"])
def test_networks_of_batch_norm_refuse_another_norm(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"{name} .*norm = 'group'"):
        build_embedding(name, norm="group")


@pytest.mark.parametrize("name", ["gnn-net", "relation-net"])
def test_networks_with_the_dropout_of_their_original_refuse_another(name: str) -> None:
    with pytest.raises(InvalidOptionError, match=rf"{name} .*dropout = 0\.2"):
        build_embedding(name, dropout=0.2)


def test_a_reduced_embedding_has_features_of_mean_0_and_variance_1_over_a_batch() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        reduced = Reduced(nn.Flatten(), 16, 5).train()
        features = reduced(torch.randn(64, 1, 4, 4) + 3)
    assert features.shape == (64, 5)
    # float32; batch norm adds 1e-5 to the variance
    torch.testing.assert_close(features.mean(0), torch.zeros(5), rtol=0, atol=1e-5)
    torch.testing.assert_close(features.var(0, correction=0), torch.ones(5), rtol=1e-3, atol=0)
