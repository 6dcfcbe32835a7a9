"""The originals' four-block networks: sizes, layers, the strided one's padding, and what they refuse."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from handful.embeddings.dropout import Dropout
from handful.embeddings.plain import Plain, PlainName, plain
from handful.errors import InvalidOptionError, ShapeError


@pytest.mark.parametrize(("pixels", "positions"), [(28, 1), (32, 4), (84, 25)])
@pytest.mark.parametrize(("name", "width"), [("plain-32C", 32), ("plain-64C", 64), ("maml-32C", 32)])
def test_features_are_block_4_alone(name: PlainName, width: int, pixels: int, positions: int) -> None:
    with torch.no_grad():
        assert plain(name, 3).eval()(torch.rand(2, 3, pixels, pixels)).shape == (2, width * positions)


@pytest.mark.parametrize("name", ["plain-64C", "maml-32C"])
@pytest.mark.parametrize("training", [True, False])
def test_blocks_are_convolution_norm_relu_and_a_pool_of_stride_2(name: PlainName, training: bool) -> None:
    net, images = plain(name, 3).train(training), torch.rand(6, 3, 32, 32)
    originals = [nn.Sequential(block[0], block[1], nn.ReLU(), nn.MaxPool2d(2)) for block in deepcopy(net).blocks]
    expected = nn.Sequential(*originals).train(training)(images)
    torch.testing.assert_close(net(images), expected.flatten(1), rtol=1e-4, atol=1e-5)  # float32 through four norms


def test_gradients_are_those_of_the_original_order() -> None:
    """In float64 the fused block is not used. Where the two orders pick different pixels, the gradient is 0."""
    net, images = plain("plain-32C", 3).double(), torch.rand(6, 3, 16, 16, dtype=torch.float64)
    original = deepcopy(net)
    original.blocks = nn.Sequential(
        *(nn.Sequential(block[0], block[1], nn.ReLU(), nn.MaxPool2d(2)) for block in original.blocks)
    )
    for each in (net, original):
        each(images).square().sum().backward()
    for one, other in zip(net.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-9, atol=1e-9)


def test_norm_and_dropout_are_as_asked() -> None:
    grouped = plain("plain-64C", 1, norm="group", dropout=0.1)
    assert [type(block[1]) for block in grouped.blocks] == [nn.GroupNorm] * 4
    assert [type(block[-1]) for block in grouped.blocks] == [nn.ReLU, nn.ReLU, Dropout, Dropout]


def test_mamls_networks_have_as_many_learnt_numbers_as_the_originals() -> None:
    """Convolutions with biases and one shift per channel; the linear layer is the learner's."""
    for name, channels, width in (("maml-32C", 3, 32), ("maml-64C-strided", 1, 64)):
        learnt = sum(p.numel() for p in plain(name, channels).parameters() if p.requires_grad)  # type: ignore[arg-type]
        assert learnt == (9 * channels + 1) * width + 3 * (9 * width + 1) * width + 4 * width


def test_a_strided_network_pads_as_tensorflow_does_and_averages_the_last_map() -> None:
    net = plain("maml-64C-strided", 1).eval()
    images = torch.rand(2, 1, 28, 28)
    maps = [images]
    for block in net.blocks:
        maps.append(block(maps[-1]))
    assert [tuple(each.shape[-2:]) for each in maps] == [(28, 28), (14, 14), (7, 7), (4, 4), (2, 2)]
    torch.testing.assert_close(net(images), maps[-1].mean((2, 3)))
    # "SAME": an even side gets its zeros at the end only, so output (0, 0) sees input rows and columns 0 to 2
    convolution = net.blocks[0][1]
    seen = (convolution.weight[:, 0] * images[0, 0, :3, :3]).sum((1, 2)) + convolution.bias
    torch.testing.assert_close(net.blocks[0][:2](images)[0, :, 0, 0], seen, rtol=1e-5, atol=1e-6)


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="dropout"):
        Plain(3, 32, dropout=1.0)
    with pytest.raises(ShapeError, match="16x16"):
        plain("plain-32C")(torch.rand(1, 3, 8, 8))
