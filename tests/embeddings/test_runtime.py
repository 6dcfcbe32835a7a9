"""Networks in ONNX Runtime: the graph written here has the features of PyTorch, and damage is one clear error."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from handful.classifier.embedder import unit_rows
from handful.embeddings import efficientnet, runtime
from handful.embeddings.efficientnet import EfficientNetLite
from handful.embeddings.runtime import RuntimeNetwork, _varint, has_runtime, lite_graph
from handful.errors import DataError
from handful.meta.features import folded

needs_runtime = pytest.mark.skipif(not has_runtime(), reason="needs onnxruntime")


@pytest.fixture(scope="module")
def small() -> nn.Module:
    """A photo network of random weights whose batch norms are folded."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return folded(EfficientNetLite(width=0.3).eval())


@pytest.mark.parametrize(("value", "encoded"), [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02")])
def test_numbers_are_encoded_as_protocol_buffers_have_them(value: int, encoded: str) -> None:
    assert _varint(value).hex() == encoded


@needs_runtime
def test_the_graph_of_a_network_has_its_features_for_images_of_any_number_and_size(small: nn.Module) -> None:
    network = RuntimeNetwork(lite_graph(small), "the test")
    assert network.input_shape == ["n", 3, "height", "width"]
    for shape in ((1, 3, 64, 64), (3, 3, 48, 80)):
        images = torch.rand(shape, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            expected = small(images)
        # float32 through fifty layers
        torch.testing.assert_close(network(images), expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


@needs_runtime
@pytest.mark.parametrize("which", [efficientnet.LITE0, efficientnet.LITE2])
def test_published_networks_have_the_same_features_in_onnx_runtime(which: efficientnet.Published) -> None:
    pytest.importorskip(which.package, reason="needs the extra handful[images]")
    network = folded(efficientnet.published_efficientnet(which))
    images = torch.rand(2, 3, 96, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = unit_rows(network(images).double().numpy())
    found = unit_rows(RuntimeNetwork(lite_graph(network), "the test")(images).double().numpy())
    # float32 through fifty layers, on features of length 1; engines that agree so well share a cache
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-6)


@needs_runtime
def test_images_that_the_graph_cannot_take_are_one_clear_error(small: nn.Module) -> None:
    with pytest.raises(DataError, match=r"\(2, 1, 64, 64\)") as refused:
        RuntimeNetwork(lite_graph(small), "the test")(torch.zeros(2, 1, 64, 64))
    assert "\n" not in str(refused.value)


@needs_runtime
def test_a_damaged_graph_is_one_clear_error(small: nn.Module) -> None:
    with pytest.raises(DataError, match="the test ") as refused:
        RuntimeNetwork(lite_graph(small)[:1000], "the test")
    assert "\n" not in str(refused.value)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    assert not has_runtime()
    with pytest.raises(DataError, match=r"the test .*pip install onnxruntime"):
        RuntimeNetwork(b"", "the test")


def test_only_a_folded_photo_network_has_a_graph(small: nn.Module) -> None:
    with pytest.raises(TypeError, match="Linear"):
        lite_graph(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="folded"):
        lite_graph(EfficientNetLite(width=0.3).eval())
