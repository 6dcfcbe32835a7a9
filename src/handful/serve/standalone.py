"""A classifier as one HTML file that works anywhere, without a server: a small network in a few lines of JavaScript."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from handful.classifier.embedder import AnyEmbedder, Embedder
from handful.classifier.estimate import score_estimate
from handful.classifier.examples import State
from handful.embeddings.conv4 import Conv4
from handful.errors import InvalidOptionError

PAGE = Path(__file__).parent / "static" / "standalone.html"
LARGEST = 2_000_000
"""Weights of a network that a page may carry: 8 MB, and a second per image."""


def standalone_page(name: str, state: State, embedder: AnyEmbedder) -> str:
    """The page; only the paper's four-layer networks with batch norm are small and simple enough for it."""
    conv4 = _conv4(embedder)
    blocks = [_layer(block) for block in conv4.blocks] if conv4 is not None else []
    size = 0 if conv4 is None else sum(each.numel() for each in conv4.parameters())
    if conv4 is None or not all(blocks) or size > LARGEST or not isinstance(embedder, Embedder):
        raise InvalidOptionError(
            f"The embedding '{embedder.name}' is too large for a page of its own. Take the .handful or the ONNX file, "
            f"or switch to the embedding for drawings."
        )
    head, score = state.head.linear(), score_estimate(state)
    weights = state.scale * head.weights
    model = {
        "name": name,
        "classes": [str(label) for label in state.classes],
        "preprocessing": embedder.preprocessing.as_json(),
        "layers": blocks,
        "concatenate": conv4.concatenate,
        "shrink": isinstance(conv4.shrink, nn.MaxPool2d),
        "weights": _packed(weights),
        "bias": _packed(state.scale * head.bias - state.origin @ weights),
        "accuracy": score.accuracy if score.examples else None,
        "low": score.low if score.examples else None,
        "high": score.high if score.examples else None,
    }
    text = json.dumps(model).replace("<", "\\u003c")  # so that no name ends the script
    return PAGE.read_text(encoding="utf-8").replace("MODEL_AS_JSON", text)


def _conv4(embedder: AnyEmbedder) -> Conv4 | None:
    if not isinstance(embedder, Embedder) or not isinstance(embedder.network, nn.Module):
        return None
    return next((each for each in embedder.network.modules() if isinstance(each, Conv4)), None)


def _layer(block: nn.Module) -> dict[str, Any] | None:
    """Convolution, pooling and leak of a block whose norm has been folded away; None for any other block."""
    conv, *rest = [each for each in block.children() if not isinstance(each, nn.Identity | nn.Dropout)]
    match rest:
        case [nn.MaxPool2d() as pool, nn.LeakyReLU() as leaky] if isinstance(conv, nn.Conv2d) and conv.bias is not None:
            return {
                "weights": _packed(conv.weight.detach().numpy()),
                "bias": _packed(conv.bias.detach().numpy()),
                "filters": conv.out_channels,
                "stride": int(np.atleast_1d(np.asarray(pool.stride))[0]),
                "leak": leaky.negative_slope,
            }
        case _:
            return None


def _packed(values: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
