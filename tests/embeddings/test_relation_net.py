"""The embedding of relation networks: the original's parameters, map sizes and initial weights."""

import pytest
import torch
from torch import nn

from handful.embeddings import build_embedding
from handful.errors import ShapeError


@pytest.mark.parametrize(("channels", "total"), [(3, 113_088), (1, 111_936)], ids=["miniImageNet", "Omniglot"])
def test_it_has_the_original_s_parameters(channels: int, total: int):
    block = 64 * 64 * 9 + 64 + 2 * 64  # weights, biases, batch norm
    counted = channels * 64 * 9 + 64 + 2 * 64 + 3 * block
    assert sum(p.numel() for p in build_embedding("relation-net", channels).parameters()) == counted == total


@pytest.mark.parametrize(("shape", "side"), [((3, 84, 84), 19), ((3, 32, 32), 6), ((1, 28, 28), 5)])
def test_maps_have_the_original_s_sizes(shape: tuple[int, int, int], side: int):
    assert build_embedding("relation-net", shape[0]).eval()(torch.rand(2, *shape)).shape == (2, 64, side, side)


def test_convolutions_start_as_in_the_original():
    torch.manual_seed(0)
    for module in build_embedding("relation-net").modules():
        if isinstance(module, nn.Conv2d) and module.in_channels == 64:
            # sqrt(2 / (9 * 64)) over 36,864 weights: one standard error is 0.4%
            assert module.weight.std().item() == pytest.approx((2 / 576) ** 0.5, rel=0.02)
            assert not module.bias.any()


def test_tiny_images_are_refused():
    with pytest.raises(ShapeError, match=r"10x10 pixels.* 8x8"):
        build_embedding("relation-net")(torch.rand(1, 3, 8, 8))
