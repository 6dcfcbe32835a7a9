"""The paper's embedding: its feature sizes, its block order, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from handful.embeddings import conv4
from handful.embeddings.conv4 import Norm
from handful.embeddings.dropout import Dropout
from handful.embeddings.winograd import Conv3x3
from handful.errors import InvalidOptionError, ShapeError
from handful.meta.features import folded


@pytest.mark.parametrize(
    ("shape", "size"), [((1, 28, 28), 3584), ((3, 32, 32), 8064), ((3, 84, 84), 72576)], ids=["28", "32", "84"]
)
def test_the_wide_net_has_the_papers_feature_sizes(shape: tuple[int, int, int], size: int) -> None:
    with torch.no_grad():
        assert conv4("wide", shape[0]).eval()(torch.rand(1, *shape)).shape == (1, size)


def test_blocks_are_convolution_norm_pool_leaky_relu_then_dropout() -> None:
    net = conv4("64C", 3, dropout=0.4)
    kinds = [[type(layer) for layer in block] for block in net.blocks]
    plain = [Conv3x3, nn.BatchNorm2d, nn.MaxPool2d, nn.LeakyReLU]
    assert kinds == [plain, plain, [*plain, Dropout], [*plain, Dropout]]
    assert [block[2].stride for block in net.blocks] == [2, 2, 2, 1]


def test_features_are_block_3_pooled_once_more_then_block_4() -> None:
    net = conv4("32C", 1).eval()
    images = torch.rand(2, 1, 28, 28)
    third = net.blocks[2](net.blocks[1](net.blocks[0](images)))
    by_hand = torch.cat([nn.functional.max_pool2d(third, 2, 1).flatten(1), net.blocks[3](third).flatten(1)], 1)
    assert torch.equal(net(images), by_hand)
    alone = conv4("32C", 1, concatenate=False)
    alone.load_state_dict(net.state_dict())
    assert torch.equal(alone.eval()(images), by_hand[:, 128:])


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_folding_batch_norm_changes_no_feature(norm: Norm) -> None:
    net = conv4("32C", 3, norm)
    net(torch.rand(16, 3, 32, 32))  # moves the running statistics away from their start
    net.eval()
    images = torch.rand(4, 3, 32, 32)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    # float32 rounding of the folded weights, on features of order 1
    torch.testing.assert_close(folded(net)(images), net(images), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert sum(isinstance(module, nn.BatchNorm2d) for module in folded(net).modules()) == 0


def test_wrong_options_and_tiny_images_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"dropout .*1\.0"):
        conv4("64C", 3, dropout=1.0)
    with pytest.raises(InvalidOptionError, match="32C, 64C, wide"):
        conv4("65C")  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"16x16 pixels.* 15x20"):
        conv4("32C", 1)(torch.rand(1, 1, 15, 20))


def test_the_smallest_image_has_one_position_in_both_maps() -> None:
    assert conv4("32C", 1).eval()(torch.rand(2, 1, 16, 16)).shape == (2, 64)
