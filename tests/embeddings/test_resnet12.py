"""ResNet-12: sizes, parameter count, DropBlock's statistics."""

import pytest
import torch
from torch import nn

from handful.embeddings import ResNet12
from handful.embeddings.registry import build_embedding
from handful.embeddings.resnet12 import DropBlock
from handful.errors import InvalidOptionError, ShapeError
from handful.learners import MAML

SMALL = (4, 6, 8, 10)


@pytest.mark.parametrize(("side", "positions"), [(84, 25), (32, 4), (28, 1)])
def test_four_blocks_halve_the_image_four_times(side: int, positions: int):
    images = torch.zeros(1, 3, side, side)
    assert ResNet12(widths=SMALL).eval()(images).shape == (1, 10 * positions)
    assert ResNet12(widths=SMALL, pool=True).eval()(images).shape == (1, 10)


def test_the_full_network_has_the_published_12_4_million_weights():
    network = ResNet12()
    convolutions, before = 0, 3
    for width in (64, 160, 320, 640):
        # 3x3 convolutions, the 1x1 shortcut, and four batch norms of two numbers a channel
        convolutions += 9 * (before * width + 2 * width * width) + before * width + 8 * width
        before = width
    assert sum(p.numel() for p in network.parameters()) == convolutions == 12_424_320


def test_a_block_without_its_body_is_the_shortcut_pooled():
    network = ResNet12(widths=SMALL).eval()
    block = network.blocks[0]
    torch.nn.init.zeros_(block.body[-1].weight)
    images = torch.randn(2, 3, 8, 8)
    plain = torch.nn.functional.conv2d(images, block.shortcut[0].weight) / (1 + block.shortcut[1].eps) ** 0.5
    expected = torch.nn.functional.max_pool2d(torch.nn.functional.leaky_relu(plain, 0.1), 2)
    torch.testing.assert_close(block(images), expected, rtol=1e-4, atol=1e-5)


def test_dropblock_drops_whole_squares_and_keeps_the_sum():
    torch.manual_seed(0)
    drop = DropBlock(0.1, 3, annealing=1).train()
    maps = torch.ones(1, 2000, 9, 9)
    out = drop(maps)
    torch.testing.assert_close(out.sum(), maps.sum())
    gone = out == 0
    # squares that overlap take a little off the share: 0.094 over many maps
    assert gone.float().mean() == pytest.approx(0.1, abs=0.01)
    lone = torch.nn.functional.avg_pool2d(gone.float(), 3, stride=1)
    covered = torch.nn.functional.max_pool2d(torch.nn.functional.pad((lone > 0.999).float(), (2,) * 4), 3, stride=1)
    assert torch.equal(covered.bool(), gone)


@pytest.mark.parametrize(
    ("side", "size", "share"),
    [(10, 5, 0.1 / 25 * 100 / 36), (5, 5, 0.1), (4, 2, 0.1 / 4 * 16 / 9), (2, 2, 0.1)],
    ids=["miniImageNet-3", "miniImageNet-4", "CIFAR-3", "CIFAR-4"],
)
def test_corners_are_drawn_as_often_as_in_the_original(side: int, size: int, share: float):
    """The published gamma, (1 - keep) / size^2 * side^2 / (side - size + 1)^2, read off where it shows by itself.

    Only one square covers the first position of a map, so that it is dropped as often as that square is drawn.
    """
    torch.manual_seed(0)
    out = DropBlock(0.1, size, annealing=1).train()(torch.ones(20, 2000, side, side))
    # 40,000 maps: the standard deviation of the share is at most 0.0015
    assert (out[..., 0, 0] == 0).float().mean() == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(("side", "size"), [(84, 5), (32, 2), (28, 2)])
def test_squares_are_smaller_on_small_images(side: int, size: int):
    network = build_embedding("resnet12", dropout=0.1, side=side)
    assert [m.size for m in network.modules() if isinstance(m, DropBlock)] == [size, size]


def test_the_dropped_share_rises_with_training_and_is_zero_in_evaluation():
    torch.manual_seed(0)
    drop = DropBlock(0.4, 1, annealing=100).train()
    maps = torch.ones(1, 100, 20, 20)
    early = (drop(maps) == 0).float().mean()
    for _ in range(98):
        drop(maps)
    late = (drop(maps) == 0).float().mean()
    # 40,000 positions: the standard deviation of the share is below 0.0025
    assert early == pytest.approx(0.004, abs=0.005)
    assert late == pytest.approx(0.4, abs=0.01)
    assert torch.equal(drop.eval()(maps), maps)


def test_a_map_smaller_than_the_block_is_dropped_as_a_whole_or_not_at_all():
    torch.manual_seed(0)
    out = DropBlock(0.3, 5, annealing=1).train()(torch.ones(1, 500, 2, 2))
    dropped = (out == 0).flatten(2).float().mean(-1)
    assert set(dropped.unique().tolist()) == {0.0, 1.0}


def test_it_is_built_by_name_and_gives_feature_maps():
    network = build_embedding("resnet12", 1, dropout=0.2)
    assert isinstance(network, ResNet12)
    assert network.feature_maps() is network.blocks
    with pytest.raises(InvalidOptionError, match="norm = 'group'"):
        build_embedding("resnet12", norm="group")


def test_bad_values_and_small_images_are_refused():
    with pytest.raises(InvalidOptionError):
        ResNet12(dropout=1.0)
    with pytest.raises(InvalidOptionError):
        DropBlock(0.1, 0)
    with pytest.raises(ShapeError, match="8x8"):
        ResNet12(widths=SMALL)(torch.zeros(1, 3, 8, 8))


def test_maml_trains_it_with_dropblock_and_counts_the_passes_outside_its_inner_loop():
    network = nn.Sequential(ResNet12(widths=(4, 4, 4, 4), block_size=2), nn.Linear(4, 3))
    learner = MAML(network, 3, steps=1)
    drops = [module for module in learner.modules() if isinstance(module, DropBlock)]
    targets = torch.eye(3).repeat(2, 1)
    learner.fit(torch.rand(6, 3, 16, 16), targets)(torch.rand(4, 3, 16, 16)).sum().backward()
    assert drops
    assert all(int(drop.passes) == 1 for drop in drops)
