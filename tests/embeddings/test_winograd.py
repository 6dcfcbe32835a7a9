"""Winograd's convolution: equal to the plain one, and out of the way wherever it cannot be used."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.utils.flop_counter import FlopCounterMode

from handful.embeddings import conv4
from handful.embeddings import winograd as module
from handful.embeddings.winograd import ALIKE, SLOW_PRODUCTS, Conv3x3, faster_tile, winograd_conv2d
from handful.meta.features import folded

TOLERANCE = 4e-5
"""Of the largest entry. Float32 tiles of 6 lose about 1e-5 (tiles of 4 half of it); a wrong border is off by 0.1."""


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())


def uses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tile sizes of all calls of the fast path from now on, on a machine where wide layers take it."""
    seen: list[int] = []
    monkeypatch.setattr(module, "this_machine", lambda: ALIKE)

    def watched(images: Tensor, weight: Tensor, bias: Tensor | None = None, tile: int = 4) -> Tensor:
        seen.append(tile)
        return winograd_conv2d(images, weight, bias, tile)

    monkeypatch.setattr(module, "winograd_conv2d", watched)
    return seen


@pytest.mark.parametrize("tile", [2, 3, 4, 5, 6])
@pytest.mark.parametrize(
    ("n", "fan_in", "fan_out", "height", "width"),
    [
        (1, 1, 1, 1, 1),
        (1, 3, 5, 5, 5),
        (7, 8, 4, 4, 4),
        (3, 16, 24, 10, 10),
        (2, 5, 3, 21, 21),
        (90, 4, 4, 7, 9),
        (2, 6, 8, 28, 28),
        (3, 4, 4, 42, 40),
    ],
)
def test_values_and_gradients_equal_those_of_the_plain_convolution(
    tile: int, n: int, fan_in: int, fan_out: int, height: int, width: int
) -> None:
    inputs = [random(n, fan_in, height, width), random(fan_out, fan_in, 3, 3), random(fan_out)]
    exact = [each.double().requires_grad_() for each in inputs]
    inputs = [each.requires_grad_() for each in inputs]
    expected, found = conv2d(*exact, padding=1), winograd_conv2d(*inputs, tile=tile)
    weights = random(*expected.shape)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert distance(found, expected) < TOLERANCE
    right = torch.autograd.grad(expected, exact, weights.double())
    for gradient, truth in zip(torch.autograd.grad(found, inputs, weights), right, strict=True):
        assert distance(gradient, truth) < TOLERANCE


@pytest.mark.parametrize("tile", [4, 6])
@pytest.mark.parametrize("with_bias", [True, False])
def test_gradcheck_in_float64(tile: int, with_bias: bool) -> None:
    images = random(2, 2, 5, 7, dtype=torch.float64).requires_grad_()
    weight = random(3, 2, 3, 3, dtype=torch.float64).requires_grad_()
    bias = random(3, dtype=torch.float64).requires_grad_() if with_bias else None
    assert torch.autograd.gradcheck(lambda *given: winograd_conv2d(*given, tile=tile), (images, weight, bias))


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "sliced", "transposed"])
def test_any_layout_of_images_and_gradients_is_accepted(layout: str) -> None:
    images = {
        "contiguous": random(4, 6, 9, 9),
        "channels last": random(4, 6, 9, 9).contiguous(memory_format=torch.channels_last),
        "sliced": random(8, 12, 18, 9)[::2, 3:9, ::2],
        "transposed": random(4, 6, 9, 9).mT,
    }[layout].requires_grad_()
    weight = random(5, 6, 3, 3)
    expected, found = conv2d(images, weight, padding=1), winograd_conv2d(images, weight)
    assert distance(found, expected) < TOLERANCE
    upstream = random(4, 5, 9, 9).mT
    (truth,) = torch.autograd.grad(expected, images, upstream)
    assert distance(torch.autograd.grad(found, images, upstream)[0], truth) < TOLERANCE
    (truth,) = torch.autograd.grad(conv2d(images, weight, padding=1).sum(), images)  # a gradient of stride 0
    assert distance(torch.autograd.grad(winograd_conv2d(images, weight).sum(), images)[0], truth) < TOLERANCE


def test_the_same_call_gives_the_same_bits() -> None:
    images, weight, bias = random(40, 64, 16, 16).requires_grad_(), random(64, 64, 3, 3).requires_grad_(), random(64)
    runs = []
    for _ in range(2):
        out = winograd_conv2d(images, weight, bias)
        runs.append([out, *torch.autograd.grad(out.square().sum(), (images, weight))])
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


def test_only_the_wanted_gradients_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    images, weight = random(4, 8, 8, 8), random(8, 8, 3, 3)

    def refuse(*given: object) -> None:
        raise AssertionError("nobody asked for the gradient of the images")

    monkeypatch.setattr(module._Work, "_overlap_add", refuse)
    winograd_conv2d(images, weight.requires_grad_()).sum().backward()
    assert weight.grad is not None
    with pytest.raises(AssertionError, match="nobody asked"):
        winograd_conv2d(images.requires_grad_(), weight).sum().backward()


def test_wide_layers_take_tiles_and_layers_of_few_channels_or_tiles_do_not() -> None:
    wide = (96, 192, 384, 512)
    for size in (16, 42):
        for (fan_in, fan_out), side in zip(pairwise(wide), (size, size // 2, size // 4), strict=True):
            assert faster_tile(240, fan_in, fan_out, side, side, training=True) is not None
    assert faster_tile(240, 3, 96, 32, 32, training=True) is None
    assert faster_tile(240, 32, 32, 16, 16, training=False) is None
    assert faster_tile(5, 384, 512, 4, 4, training=True) is None
    assert faster_tile(32, 384, 512, 4, 4, training=True) == 4
    assert faster_tile(32, 384, 512, 4, 4, training=False) is None
    assert faster_tile(240, 64, 64, 42, 42, training=True) == 6
    assert faster_tile(240, 64, 64, 16, 16, training=True) == 4


def test_few_layers_take_tiles_where_only_convolutions_use_avx512() -> None:
    for training in (True, False):
        for side in (4, 8, 10, 16, 21, 42):
            assert faster_tile(240, 64, 64, side, side, training, SLOW_PRODUCTS) is None
    assert faster_tile(240, 192, 384, 8, 8, training=True, costs=SLOW_PRODUCTS) == 4
    assert faster_tile(240, 384, 512, 4, 4, training=True, costs=SLOW_PRODUCTS) == 4
    assert faster_tile(240, 192, 384, 8, 8, training=False, costs=SLOW_PRODUCTS) is None


@pytest.mark.parametrize(
    ("capability", "processor", "preloaded", "slow"),
    [
        ("AVX512", "vendor_id : AuthenticAMD", False, True),
        ("AVX512", "AMD64 Family 26 Model 2 Stepping 1, AuthenticAMD", False, True),
        ("AVX512", "vendor_id : AuthenticAMD", True, False),
        ("AVX512", "vendor_id : GenuineIntel", False, False),
        ("AVX2", "vendor_id : AuthenticAMD", False, False),
    ],
)
def test_products_are_slow_on_amd_processors_with_avx512(
    monkeypatch: pytest.MonkeyPatch, capability: str, processor: str, preloaded: bool, slow: bool
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(module, "_processor", lambda: processor)
    monkeypatch.setattr(module, "_is_preloaded", lambda: preloaded)
    assert module.this_machine.__wrapped__() is (SLOW_PRODUCTS if slow else ALIKE)


def test_the_layer_takes_tiles_in_training_and_in_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, layer, images = uses(monkeypatch), Conv3x3(128, 128), random(8, 128, 16, 16)
    expected = conv2d(images, layer.weight, layer.bias, padding=1)
    assert distance(layer(images), expected) < TOLERANCE
    with torch.no_grad():
        assert distance(layer(images), expected) < TOLERANCE
    assert seen == [4, 4]


@pytest.mark.parametrize("reason", ["float64", "autocast", "func", "vmap", "forward mode", "tracing", "one map"])
def test_the_layer_falls_back_to_the_plain_convolution(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, layer, images = uses(monkeypatch), Conv3x3(128, 128), random(8, 128, 16, 16)
    if reason == "float64":
        layer.double()(images.double())
    elif reason == "autocast":
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(images).dtype == torch.bfloat16
    elif reason == "func":
        found = torch.func.grad(lambda x: layer(x).square().sum())(images)
        (expected,) = torch.autograd.grad(layer.forward(images.requires_grad_()).square().sum(), images)
        assert distance(found, expected) < TOLERANCE
        assert seen.pop() == 4  # the reference, outside torch.func
    elif reason == "vmap":
        found = torch.vmap(layer)(images.view(2, 4, 128, 16, 16)).flatten(0, 1)
        assert distance(found, conv2d(images, layer.weight, layer.bias, padding=1)) < TOLERANCE
    elif reason == "forward mode":
        with torch.autograd.forward_ad.dual_level():
            layer(torch.autograd.forward_ad.make_dual(images, images))
    elif reason == "tracing":
        torch.jit.trace(layer, images, check_trace=False)
    else:
        assert layer(images[0]).shape == (128, 16, 16)
    assert seen == []


def test_second_derivatives_through_conv4_are_those_of_plain_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    network = conv4("64C").double().train()
    images = random(32, 3, 32, 32, dtype=torch.float64)

    def twice() -> list[Tensor]:
        parameters = list(network.parameters())
        loss = network(images).square().mean()
        first = torch.autograd.grad(loss, parameters, create_graph=True)
        return list(torch.autograd.grad(sum(each.square().sum() for each in first), parameters))  # type: ignore[arg-type]

    expected = twice()
    # tiles in float64, because rounding in float32 changes which of two nearly equal entries max-pooling takes
    monkeypatch.setattr(module, "fast_path", lambda *given: True)
    seen = uses(monkeypatch)
    largest = max(float(each.abs().max()) for each in expected)
    for gradient, truth in zip(twice(), expected, strict=True):
        assert float((gradient - truth).abs().max()) < 1e-10 * largest
    assert seen


def test_a_folded_network_takes_tiles_and_gives_the_same_features(monkeypatch: pytest.MonkeyPatch) -> None:
    network = conv4("wide").train()
    with torch.no_grad():
        network(random(16, 3, 32, 32))  # running statistics that are not 0 and 1
    network.eval()
    images = random(64, 3, 32, 32)
    plain = folded(network)
    for name, layer in list(plain.named_modules()):
        if isinstance(layer, Conv3x3):
            block, _, index = name.rpartition(".")
            ordinary = nn.Conv2d(layer.in_channels, layer.out_channels, 3, padding=1)
            ordinary.load_state_dict(layer.state_dict())
            plain.get_submodule(block)[int(index)] = ordinary  # type: ignore[operator]
    seen = uses(monkeypatch)
    with torch.no_grad():
        found, expected = folded(network)(images), plain(images)
    assert len(seen) == 3
    assert distance(found, expected) < TOLERANCE


def test_weights_of_an_ordinary_convolution_load() -> None:
    ordinary, layer = nn.Conv2d(5, 7, 3, padding=1), Conv3x3(5, 7)
    assert isinstance(layer, nn.Conv2d)
    layer.load_state_dict(ordinary.state_dict())
    assert list(layer.state_dict()) == ["weight", "bias"]
    images = random(2, 5, 8, 8)
    assert torch.equal(layer(images), ordinary(images))
    assert list(Conv3x3(5, 7, bias=False).state_dict()) == ["weight"]


def test_counted_operations_are_those_of_plain_convolutions() -> None:
    network, images = conv4("64C").train(), random(32, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        network(images)
    filters = 64
    positions = 3 * 32**2 + filters * (16**2 + 8**2 + 4**2)
    assert counter.get_total_flops() == 2 * 9 * 32 * filters * positions
