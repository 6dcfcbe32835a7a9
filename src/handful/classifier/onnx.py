"""Embedding and head as one ONNX graph, from an image tensor to probabilities, checked against PyTorch on export."""

from __future__ import annotations

import json
import logging
import warnings
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from handful._io import replacing
from handful.classifier.embedder import AnyEmbedder, Embedder, pooled, torch_network
from handful.classifier.examples import State
from handful.embeddings.preprocessing import Preprocessing
from handful.errors import DataError, HandfulError, InvalidOptionError

NEEDED = ("onnx", "onnxruntime", "onnxscript")
TOLERANCE = 1e-4
"""Largest difference of a probability between two runtimes in float32."""


class Graph(nn.Module):
    """The graph from images (n, channels, height, width) in [0, 1], or features (n, e), to probabilities (n, way).

    Joined embeddings take the images once each, in their own sizes.
    """

    def __init__(self, state: State, embedder: AnyEmbedder | None) -> None:
        super().__init__()
        parts = () if embedder is None else embedder.parts
        self.prepare = nn.ModuleList(Prepare(part.preprocessing) for part in parts)
        self.networks = nn.ModuleList(_module(part) for part in parts)
        head = state.head.linear()
        weights = state.scale * head.weights
        self.weights = nn.Buffer(torch.from_numpy(weights).float())
        self.bias = nn.Buffer(torch.from_numpy(state.scale * head.bias - state.origin @ weights).float())

    def forward(self, *inputs: Tensor) -> Tensor:
        """Prepare, embed, scale to length 1, then a linear map and softmax."""
        features = inputs[0]
        if len(self.networks):
            columns = []
            for prepare, network, images in zip(self.prepare, self.networks, inputs, strict=True):
                column = network(prepare(images))
                columns.append(nn.functional.normalize(pooled(column), dim=1))
            features = nn.functional.normalize(torch.cat(columns, dim=1), dim=1)
        return torch.softmax(features @ self.weights + self.bias, dim=1)


class Prepare(nn.Module):
    """The preprocessing that does not change an image's size: bright ink, mean and standard deviation."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        channels = preprocessing.channels
        self.bright_ink = preprocessing.bright_ink
        self.mean = nn.Buffer(torch.tensor(preprocessing.mean or (0.0,) * channels)[:, None, None])
        self.std = nn.Buffer(torch.tensor(preprocessing.std or (1.0,) * channels)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Images in [0, 1] as network inputs."""
        if self.bright_ink:
            border = torch.cat(
                [images[..., 0, :], images[..., -1, :], images[..., :, 0], images[..., :, -1]], dim=-1
            ).mean((-2, -1))
            images = torch.where((border > 0.5)[:, None, None, None], 1 - images, images)
        return (images - self.mean) / self.std


def export(path: Path, state: State, embedder: AnyEmbedder | None) -> None:
    """Write the graph if it agrees with PyTorch; its metadata describe the classes and the preprocessing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise DataError(f"Exporting to ONNX needs {', '.join(missing)}. Install it: pip install 'handful[onnx]'.")
    graph = Graph(state, embedder).eval()
    samples = [_sample(state, embedder, n) for n in (2, 5)]
    with replacing(path) as temporary:
        _write(graph, samples[0], input_names(embedder), temporary, _facts(state, embedder))
        worst = max(_difference(graph, temporary, sample) for sample in samples)
        if not worst <= TOLERANCE:
            raise DataError(
                f"The exported graph differs from PyTorch by {worst:.2g} in a probability, more than {TOLERANCE:g}, so "
                f"it was not kept. ONNX cannot express this embedding; please report its name."
            )


def _module(embedder: Embedder) -> nn.Module:
    network = torch_network(embedder)
    if network is None:
        raise InvalidOptionError(
            f"The embedding '{embedder.origin or embedder.network!r}' is a function, which cannot be exported. "
            f"Wrap it in an nn.Module."
        )
    return deepcopy(network).cpu()  # the classifier may use it on another device


def _sample(state: State, embedder: AnyEmbedder | None, n: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(n)
    if embedder is None:
        return (torch.randn(n, len(state.origin), generator=generator) + torch.from_numpy(state.origin).float(),)
    sizes = [part.preprocessing for part in embedder.parts]
    return tuple(torch.rand(n, each.channels, each.height, each.width, generator=generator) for each in sizes)


def input_names(embedder: AnyEmbedder | None) -> list[str]:
    """The names of the graph's inputs: features, images, or images0, images1 and so on."""
    parts = () if embedder is None else embedder.parts
    return ["features", "images"][len(parts) :][:1] or [f"images{number}" for number in range(len(parts))]


def _write(graph: Graph, sample: tuple[Tensor, ...], names: list[str], path: Path, facts: dict[str, str]) -> None:
    import onnx

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph,
                sample,
                input_names=names,
                output_names=["probabilities"],
                dynamic_shapes=(({0: torch.export.Dim("n")},) * len(sample),),
                dynamo=True,
                verbose=False,
            )
    except HandfulError:
        raise
    except Exception as error:  # the exporter may raise anything, depending on the network
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"This embedding cannot be exported to ONNX: {first}") from error
    if program is None:
        raise DataError("PyTorch's exporter returned no graph.")
    model = program.model_proto
    for key, value in facts.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save_model(model, path)


def _difference(graph: Graph, path: Path, sample: tuple[Tensor, ...]) -> float:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    inputs = {each.name: images.numpy() for each, images in zip(session.get_inputs(), sample, strict=True)}
    (found,) = session.run(None, inputs)
    with torch.no_grad():
        expected = graph(*sample).numpy()
    return float(np.abs(found - expected).max())


def _facts(state: State, embedder: AnyEmbedder | None) -> dict[str, str]:
    wanted = [] if embedder is None else [part.preprocessing.as_json() for part in embedder.parts]
    return {
        "classes": json.dumps([str(name) for name in state.classes]),
        "preprocessing": json.dumps(wanted if len(wanted) > 1 else wanted[0] if wanted else None),
    }
