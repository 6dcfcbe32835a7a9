"""SNAIL's embeddings: parameter counts, sizes, and the mean that is taken before the wide convolution."""

import pytest
import torch
from torch import nn

from handful.embeddings import build_embedding
from handful.errors import InvalidOptionError, ShapeError


def test_the_resnet_has_the_published_layers_parameters():
    counted, before = 0, 3
    for width in (64, 96, 128, 256):
        # three 3x3 convolutions, three batch norms of two numbers a channel, and the 1x1 shortcut
        counted += 9 * (before * width + 2 * width * width) + 3 * 2 * width + before * width
        before = width
    counted += 256 * 2048 + 2048 * 384
    assert sum(p.numel() for p in build_embedding("snail-resnet").parameters()) == counted == 3_542_080


def test_the_omniglot_net_has_the_parameters_of_four_plain_blocks():
    counted = 64 * 9 + 3 * 64 + 3 * (64 * 64 * 9 + 3 * 64)  # weights, biases, and two numbers a channel of batch norm
    network = build_embedding("snail-resnet", 1)
    assert sum(p.numel() for p in network.parameters()) == counted == 111_936


@pytest.mark.parametrize(("shape", "features"), [((3, 84, 84), 384), ((3, 32, 32), 384), ((1, 28, 28), 64)])
def test_it_works_for_the_images_of_all_three_data_sets(shape: tuple[int, int, int], features: int):
    assert build_embedding("snail-resnet", shape[0]).eval()(torch.rand(2, *shape)).shape == (2, features)


def test_the_mean_over_the_published_6x6_positions_commutes_with_the_convolution_before_it():
    network = build_embedding("snail-resnet").eval()
    images = torch.rand(2, 3, 84, 84)
    maps = network.blocks(images)
    assert maps.shape[-2:] == (6, 6)
    published = nn.functional.avg_pool2d(network.widen(maps), 6).flatten(1)
    # the same sums in another order, in single precision
    torch.testing.assert_close(network(images), network.project(published), rtol=1e-4, atol=1e-5)


def test_a_block_without_its_body_is_the_shortcut_pooled():
    block = build_embedding("snail-resnet").eval().blocks[0]
    nn.init.zeros_(block.body[-2].weight)  # the last batch norm, whose bias starts at zero
    images = torch.randn(2, 3, 9, 9)
    expected = nn.functional.max_pool2d(nn.functional.conv2d(images, block.shortcut.weight), 2, ceil_mode=True)
    assert expected.shape[-2:] == (5, 5)
    torch.testing.assert_close(block(images), expected)


def test_dropout_follows_every_block_and_comes_before_the_last_layer():
    network = build_embedding("snail-resnet", dropout=0.1)
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.1] * 5


def test_bad_values_are_refused():
    with pytest.raises(InvalidOptionError, match=r"dropout = 0\.1"):
        build_embedding("snail-resnet", 1, dropout=0.1)
    with pytest.raises(InvalidOptionError, match="probability"):
        build_embedding("snail-resnet", dropout=1.0)
    with pytest.raises(ShapeError, match=r"16x16 pixels.* 12x12"):
        build_embedding("snail-resnet", 1)(torch.rand(1, 1, 12, 12))
