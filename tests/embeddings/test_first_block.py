"""The first block in one pass: equal to its layers one by one, and out of the way wherever it cannot be used."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from handful.embeddings import conv4, first_block, winograd
from handful.embeddings.first_block import FirstBlock
from handful.embeddings.winograd import Conv3x3
from handful.meta.features import folded

TOLERANCE = 5e-6
"""Of the largest entry, in float32: outputs and statistics lose about 5e-7, sums over a batch some 1e-6."""


def block(channels: int, width: int, *more: nn.Module, bias: bool = True, seed: int = 0) -> FirstBlock:
    torch.manual_seed(seed)
    made = FirstBlock(
        Conv3x3(channels, width, bias), nn.BatchNorm2d(width), nn.MaxPool2d(2, stride=2), nn.LeakyReLU(0.1), *more
    )
    nn.init.uniform_(made[1].weight, -1, 1)  # negative scales turn the order of what is pooled
    nn.init.uniform_(made[1].bias, -1, 1)
    return made


def plain(given: FirstBlock) -> nn.Sequential:
    return nn.Sequential(*deepcopy(given).children())


def pictures(n: int, channels: int, height: int, width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(n, channels, height, width, dtype=dtype, generator=torch.Generator().manual_seed(n))


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found.detach() - expected.detach()).abs().max() / expected.detach().abs().max())


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images in each call of the short way."""
    seen: list[int] = []
    own = first_block._pooled

    def watched(images: Tensor, *given: object) -> Tensor:
        seen.append(len(images))
        return own(images, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(first_block, "_pooled", watched)
    return seen


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Float64 takes the short way too: in float32, rounding changes which of two nearly equal entries is pooled."""
    monkeypatch.setattr(winograd, "fast_path", lambda images, weight: images.dtype == torch.float64)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(
    ("n", "channels", "height", "width", "fan_out"),
    [(1, 1, 2, 2, 1), (3, 3, 8, 6, 5), (40, 1, 28, 28, 4), (9, 2, 32, 32, 7)],
)
@pytest.mark.parametrize("bias", [True, False])
def test_values_gradients_and_statistics_equal_those_of_the_layers(
    n: int, channels: int, height: int, width: int, fan_out: int, bias: bool, uses: list[int]
) -> None:
    ours = block(channels, fan_out, bias=bias).double()
    theirs, images = plain(ours), pictures(n, channels, height, width, torch.float64)
    found, expected = ours(images), theirs(images)
    weights = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert found.is_contiguous(memory_format=torch.channels_last)
    found.backward(weights), expected.backward(weights)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-8, atol=1e-8)
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    assert uses == [n]


@pytest.mark.usefixtures("in_float64")
def test_a_relu_is_a_leak_of_0(uses: list[int]) -> None:
    ours = FirstBlock(*list(block(3, 5).double())[:3], nn.ReLU())
    theirs, images = plain(ours), pictures(4, 3, 8, 8, torch.float64)
    found, expected = ours(images), theirs(images)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    found.square().sum().backward(), expected.square().sum().backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-8, atol=1e-8)
    assert uses == [4]


@pytest.mark.parametrize(("n", "channels", "side"), [(60, 3, 32), (60, 1, 28), (12, 3, 84)])
def test_float32_loses_no_more_than_rounding(n: int, channels: int, side: int, uses: list[int]) -> None:
    ours = block(channels, 16)
    exact, images = plain(ours).double(), pictures(n, channels, side, side)
    assert distance(ours(images), exact(images.double())) < TOLERANCE
    for one, other in zip(list(ours.buffers())[:2], list(exact.buffers())[:2], strict=True):
        assert distance(one, other) < TOLERANCE
    assert uses == [n]


def test_nearly_constant_images_keep_the_digits_of_their_variance() -> None:
    ours = block(3, 8)
    images = 0.9 + 1e-3 * pictures(50, 3, 16, 16)
    inner = images[:, :, 1:-1, 1:-1]
    exact = plain(ours).double()
    assert distance(ours(inner), exact(inner.double())) < 1e-4  # the border of zeros is most of the variance


@pytest.mark.usefixtures("in_float64")
def test_a_tie_sends_its_gradient_to_one_place_only() -> None:
    ours = block(1, 3).double()
    theirs, images = plain(ours), torch.ones(2, 1, 8, 8, dtype=torch.float64)
    for each in (ours, theirs):
        each(images).sum().backward()
    torch.testing.assert_close(ours[1].bias.grad, theirs[1].bias.grad)
    assert ours[1].bias.grad is not None
    assert float(ours[1].bias.grad.abs().max()) <= 2 * 16


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("activation", [nn.LeakyReLU(0.1), nn.ReLU()], ids=["leaky", "ReLU"])
def test_second_derivatives_equal_those_of_the_layers(activation: nn.Module) -> None:
    ours = FirstBlock(*list(block(2, 3).double())[:3], activation)
    theirs, images = plain(ours), pictures(4, 2, 8, 8, torch.float64)

    def twice(net: nn.Sequential) -> list[Tensor]:
        parameters = [net[0].weight, net[1].weight, net[1].bias]
        first = torch.autograd.grad(net(images).pow(3).mean(), parameters, create_graph=True)
        return list(torch.autograd.grad(sum(each.square().sum() for each in first), parameters))  # type: ignore[arg-type]

    for found, expected in zip(twice(ours), twice(theirs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("channels", [1, 3])
def test_in_evaluation_grey_images_alone_take_the_short_way(channels: int, uses: list[int]) -> None:
    ours = block(channels, 8, nn.Dropout(0.5))
    ours(pictures(20, channels, 16, 16))  # running statistics that are not 0 and 1
    ours.eval()
    images = pictures(5, channels, 16, 16)
    uses.clear()
    with torch.no_grad():
        for net in (ours, folded(ours)):
            assert distance(net(images), plain(ours).eval()(images)) < TOLERANCE
    assert uses == ([5, 5] if channels == 1 else [])


@pytest.mark.parametrize(
    "odd",
    [
        lambda net, images: (net, images[..., :-1]),
        lambda net, images: (net, images.requires_grad_()),
        lambda net, images: (FirstBlock(net[0], nn.GroupNorm(2, 8), *list(net)[2:]), images),
        lambda net, images: (FirstBlock(net[0], nn.BatchNorm2d(8, momentum=None), *list(net)[2:]), images),
        lambda net, images: (FirstBlock(*list(net)[:2], nn.MaxPool2d(2, stride=1), net[3]), images),
        lambda net, images: (FirstBlock(*list(net)[:3], nn.ELU()), images),
        lambda net, images: (net.double(), images.double()),
    ],
    ids=[
        "odd size",
        "images with gradient",
        "group norm",
        "cumulative averages",
        "overlapping pool",
        "ELU",
        "float64",
    ],
)
def test_everything_else_goes_through_the_layers(odd, uses: list[int]) -> None:
    net, images = odd(block(3, 8), pictures(4, 3, 16, 16).contiguous(memory_format=torch.channels_last))
    assert torch.equal(net(images), plain(net)(images))
    assert not uses


def test_conv4_begins_with_it_and_its_weights_keep_their_names() -> None:
    net = conv4("32C", 1)
    assert isinstance(net.blocks[0], FirstBlock)
    assert [name for name in net.state_dict() if name.startswith("blocks.0")][:2] == [
        "blocks.0.0.weight",
        "blocks.0.0.bias",
    ]


def test_the_order_of_colour_images_in_memory_makes_no_difference_in_evaluation() -> None:
    given = block(3, 16).eval()
    images = pictures(9, 3, 32, 32)
    with torch.no_grad():
        found = given(images)
        expected = given(images.contiguous(memory_format=torch.channels_last))
    assert torch.equal(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)  # the faster order, for all layers that follow


@pytest.mark.parametrize("training", [True, False])
def test_an_empty_batch_is_embedded_as_one_and_leaves_the_statistics_alone(training: bool) -> None:
    net = block(1, 4).train(training)
    before = {name: value.clone() for name, value in net[1].named_buffers() if name.startswith("running")}
    assert net(torch.zeros(0, 1, 8, 8)).shape == (0, 4, 4, 4)
    assert all(torch.equal(value, net[1].get_buffer(name)) for name, value in before.items())
