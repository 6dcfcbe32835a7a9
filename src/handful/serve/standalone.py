"""Export a classifier as one HTML file that works without a server and runs the network in plain JavaScript."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from torch import nn

from handful.classifier.embedder import AnyEmbedder, Embedder, torch_network
from handful.classifier.estimate import score_estimate
from handful.classifier.examples import State
from handful.classifier.heads import LinearMap
from handful.classifier.inputs import Matrix
from handful.classifier.selection import FAMILIARITY
from handful.embeddings.conv4 import Conv4
from handful.embeddings.efficientnet import EfficientNetLite, InvertedResidual
from handful.errors import InvalidOptionError
from handful.serve.studio_model import REJECTIONS, USUAL_REJECTION, thresholds

PAGE = Path(__file__).parent / "static" / "standalone.html"
LARGEST = 12_000_000
"""The most weights in a page; at two bytes each it then has 32 MB, and takes a few seconds per image."""
LARGEST_MATRIX = 1_000_000
"""The most numbers in the matrix for "None of these", which are 5.3 MB as text; it is left out if it has more.

This is enough, for example, for any number of images with one network for photographs, and for 425 with both."""


def standalone_page(name: str, state: State, embedder: AnyEmbedder, share: float = USUAL_REJECTION) -> str:
    """The page, for the paper's four-layer networks with batch norm and for EfficientNet-Lite, single or joined.

    `share` is the share of known images that the page rejects until its slider is moved, one of `REJECTIONS`.
    """
    parts = [_part(each) for each in embedder.parts]
    if not all(parts) or sum(_size(each) for each in embedder.parts) > LARGEST:
        raise InvalidOptionError(
            f"The exported page cannot run the embedding '{embedder.name}', only the networks for drawings and "
            f"photographs that come with handful. Export a .handful or ONNX file, or switch to one of those."
        )
    head, score = state.head.linear(), score_estimate(state)
    model = {
        "name": name,
        "classes": [str(label) for label in state.classes],
        "parts": parts,
        "head": _linear(head, state.scale, state.origin),
        "rejection": _rejection(state, share),
        "accuracy": score.accuracy if score.examples else None,
        "low": score.low if score.examples else None,
        "high": score.high if score.examples else None,
    }
    text = json.dumps(model).replace("<", "\\u003c")  # so that no name can end the script element
    return PAGE.read_text(encoding="utf-8").replace("MODEL_AS_JSON", text)


def _rejection(state: State, share: float) -> dict[str, Any] | None:
    """What the page needs for the unknown score of an image; None without a threshold or if it would be too large.

    With a free bias, ridge regression equals the one on centred examples X. So the predictive variance of a query whose
    difference from their mean is y is lam / n + lam y^T (X^T X + lam I)^-1 y, which is lam / n + |y|^2 - |T y|^2.
    """
    n, e = state.features.shape
    limits, rows = thresholds(state), min(n, e)
    if not limits or rows * e - rows * (rows - 1) // 2 > LARGEST_MATRIX:
        return None
    mean, lam = state.features.mean(0), float(state.factor.lam)
    explained = _explained(state.features - mean, lam)
    ridge = replace(state.ridge, balance=True).linear()  # unknown scores always balance the classes
    return {
        "mean": _packed(mean + state.origin),
        "explained": _packed(explained[np.triu_indices_from(explained)]),
        "least": lam / n,
        "size": state.size,
        "ridge": _linear(ridge, FAMILIARITY / np.sqrt(len(state.classes)), state.origin),
        "shares": REJECTIONS,
        "thresholds": limits,
        "share": share,
    }


def _explained(centred: Matrix, lam: float) -> Matrix:
    """An upper trapezoidal T with at most e rows and T^T T = I - lam (X^T X + lam I)^-1, for X (n, e)."""
    _, short = np.linalg.qr(centred)
    system = short @ short.T + lam * np.eye(len(short))
    root = scipy.linalg.solve_triangular(np.linalg.cholesky(system), short, lower=True)
    _, explained = np.linalg.qr(root)
    return explained


def _linear(found: LinearMap, scale: float, origin: Matrix) -> dict[str, str]:
    """The map times `scale`, for features from which the origin was not subtracted."""
    weights = scale * found.weights
    return {"weights": _packed(weights), "bias": _packed(scale * found.bias - origin @ weights)}


def _part(embedder: Embedder) -> dict[str, Any] | None:
    """One network with its preprocessing; None for a kind that the page does not support."""
    network = torch_network(embedder)
    modules = [] if network is None else [*network.modules()]
    four = next((each for each in modules if isinstance(each, Conv4)), None)
    lite = next((each for each in modules if isinstance(each, EfficientNetLite)), None)
    layers: list[dict[str, Any] | None] = []
    if four is not None:
        layers = [_block(each) for each in four.blocks]
    elif lite is not None:
        layers = [*_efficientnet(lite)]
    if not layers or not all(layers):
        return None
    found = {"preprocessing": embedder.preprocessing.as_json(), "layers": layers}
    if four is None:
        return {"network": "EfficientNet-Lite", **found, "half": True}
    shrink = isinstance(four.shrink, nn.MaxPool2d)
    return {"network": "four blocks", **found, "concatenate": four.concatenate, "shrink": shrink}


def _size(embedder: Embedder) -> int:
    network = torch_network(embedder)
    return 0 if network is None else sum(each.numel() for each in network.parameters())


def _block(block: nn.Module) -> dict[str, Any] | None:
    """Convolution, pooling and leak of a block with folded norm; None for any other block."""
    conv, *rest = [each for each in block.children() if not isinstance(each, nn.Identity | nn.Dropout)]
    match rest:
        case [nn.MaxPool2d() as pool, nn.LeakyReLU() as leaky] if isinstance(conv, nn.Conv2d) and conv.bias is not None:
            stride = int(np.atleast_1d(np.asarray(pool.stride))[0])
            return {**_convolution(conv, 1, 1, np.float32), "pool": stride, "leak": leaky.negative_slope}
        case _:
            return None


def _efficientnet(network: EfficientNetLite) -> Iterator[dict[str, Any]]:
    """Its convolutions in order: which are clipped, which end a block, and which add the block's input."""
    yield {**_padded(network.stem), "clip": True, "last": True}
    for block in network.blocks:
        if isinstance(block, InvertedResidual):
            for each in [block.expand, block.depthwise] if block.expands else [block.depthwise]:
                yield {**_padded(each), "clip": True}
            yield {**_padded(block.project), "skip": block.skips, "last": True}
    yield {**_padded(network.head), "clip": True}


def _padded(layer: nn.Sequential) -> dict[str, Any]:
    padding, convolution = layer[0], layer[1]
    if not isinstance(convolution, nn.Conv2d):
        raise TypeError(f"expected padding and a convolution as a layer, but got {type(convolution).__name__}")
    if isinstance(padding, nn.ZeroPad2d):
        return _convolution(convolution, padding.padding[0], padding.padding[1], np.float16)
    border = int(convolution.padding[0])
    return _convolution(convolution, border, border, np.float16)


def _convolution(layer: nn.Conv2d, before: int, after: int, precision: type[np.floating[Any]]) -> dict[str, Any]:
    if layer.bias is None:
        raise TypeError("the batch norms of the network must be folded into its convolutions first")
    return {
        "weights": _packed(layer.weight.detach().numpy(), precision),
        "bias": _packed(layer.bias.detach().numpy()),
        "filters": layer.out_channels,
        "kernel": layer.kernel_size[0],
        "stride": layer.stride[0],
        "before": before,
        "after": after,
        "groups": layer.groups,
    }


def _packed(values: Any, precision: type[np.floating[Any]] = np.float32) -> str:
    little = np.dtype(precision).newbyteorder("<")
    return base64.b64encode(np.ascontiguousarray(values, dtype=little).tobytes()).decode()
