"""The GNN's embeddings: the original's parameter counts and order of layers, and the image sizes they work for."""

import pytest
import torch
from torch import nn

from handful.embeddings import build_embedding
from handful.errors import InvalidOptionError, ShapeError


def test_the_colour_net_has_the_original_s_parameters():
    counted = [
        3 * 64 * 9 + 2 * 64,  # convolutions have no bias; batch norm has two numbers a channel
        64 * 96 * 9 + 2 * 96,
        96 * 128 * 9 + 2 * 128,
        128 * 256 * 9 + 2 * 256,
        256 * 5 * 5 * 128 + 128 + 2 * 128,  # 84 -> 42 -> (40) 20 -> 10 -> 5 positions a side
    ]
    assert sum(p.numel() for p in build_embedding("gnn-net").parameters()) == sum(counted) == 1_283_200


def test_the_omniglot_net_has_the_original_s_parameters():
    counted = [
        1 * 64 * 9 + 2 * 64,
        *[64 * 64 * 9 + 2 * 64] * 3,
        64 * 3 * 3 * 64 + 2 * 64,  # no bias here either; 28 -> 14 -> 7 -> 5 -> 3 positions a side
    ]
    network = build_embedding("gnn-net", 1, side=28)
    assert sum(p.numel() for p in network.parameters()) == sum(counted) == 148_672


@pytest.mark.parametrize(("shape", "features"), [((3, 84, 84), 128), ((3, 32, 32), 128), ((1, 28, 28), 64)])
def test_it_works_for_the_images_of_all_three_data_sets(shape: tuple[int, int, int], features: int):
    network = build_embedding("gnn-net", shape[0], side=shape[-1]).eval()
    assert network(torch.rand(2, *shape)).shape == (2, features)


def test_whole_channels_are_dropped_after_blocks_3_and_4_only():
    network = build_embedding("gnn-net")
    drops = [[m.p for m in block if isinstance(m, nn.Dropout2d)] for block in network.blocks]
    assert drops == [[], [], [0.4], [0.5]]
    third = network.blocks[2].train()(torch.rand(20, 96, 20, 20) + 1)
    gone = (third == 0).flatten(2).float().mean(-1)
    assert set(gone.unique().tolist()) == {0.0, 1.0}
    # 2560 channels: the standard deviation of the share is below 0.01
    assert gone.mean() == pytest.approx(0.4, abs=0.04)


def test_blocks_pool_before_the_leaky_relu_whose_slopes_are_the_original_s():
    for channels, side, slope in ((3, 84, 0.2), (1, 28, 0.1)):
        first = build_embedding("gnn-net", channels, side=side).blocks[0]
        assert [type(layer) for layer in first] == [nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d, nn.LeakyReLU]
        assert first[-1].negative_slope == slope


def test_other_sizes_and_options_are_refused():
    with pytest.raises(ShapeError, match=r"84x84 pixels.* 32x32"):
        build_embedding("gnn-net")(torch.rand(1, 3, 32, 32))
    with pytest.raises(ShapeError, match="20x20"):
        build_embedding("gnn-net", side=16)
    with pytest.raises(ShapeError, match="20x20"):
        build_embedding("gnn-net", 1, side=16)
    with pytest.raises(InvalidOptionError, match=r"dropout = 0\.1"):
        build_embedding("gnn-net", dropout=0.1)
    with pytest.raises(InvalidOptionError, match="norm = 'group'"):
        build_embedding("gnn-net", norm="group")
