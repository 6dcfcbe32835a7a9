"""Embedding and head as one ONNX graph, from an image tensor to probabilities, checked against PyTorch on export."""

from __future__ import annotations

import json
import logging
import os
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from handful.classifier.embedder import AnyEmbedder, Embedder, torch_network
from handful.classifier.examples import State
from handful.embeddings.preprocessing import Preprocessing
from handful.errors import DataError, HandfulError, InvalidOptionError

NEEDED = ("onnx", "onnxruntime", "onnxscript")
TOLERANCE = 1e-4
"""Largest difference of a probability that two runtimes may have in float32."""


class Graph(nn.Module):
    """What is exported: images (n, channels, height, width) in [0, 1], or features (n, e) -> probabilities (n, way)."""

    def __init__(self, state: State, embedder: Embedder | None) -> None:
        super().__init__()
        self.prepare = None if embedder is None else Prepare(embedder.preprocessing)
        self.network = None if embedder is None else _module(embedder)
        head = state.head.linear()
        weights = state.scale * head.weights
        self.weights = nn.Buffer(torch.from_numpy(weights).float())
        self.bias = nn.Buffer(torch.from_numpy(state.scale * head.bias - state.origin @ weights).float())

    def forward(self, inputs: Tensor) -> Tensor:
        """Prepare, embed, scale to length 1, then a linear map and softmax."""
        features = inputs
        if self.prepare is not None and self.network is not None:
            features = self.network(self.prepare(inputs))
            if features.ndim == 4:
                features = features.mean((-2, -1))
            features = nn.functional.normalize(features, dim=1)
        return torch.softmax(features @ self.weights + self.bias, dim=1)


class Prepare(nn.Module):
    """The preprocessing that does not change an image's size: ink made bright, mean and deviation."""

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        channels = preprocessing.channels
        self.bright_ink = preprocessing.bright_ink
        self.mean = nn.Buffer(torch.tensor(preprocessing.mean or (0.0,) * channels)[:, None, None])
        self.std = nn.Buffer(torch.tensor(preprocessing.std or (1.0,) * channels)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Images in [0, 1] as the network wants them."""
        if self.bright_ink:
            border = torch.cat(
                [images[..., 0, :], images[..., -1, :], images[..., :, 0], images[..., :, -1]], dim=-1
            ).mean((-2, -1))
            images = torch.where((border > 0.5)[:, None, None, None], 1 - images, images)
        return (images - self.mean) / self.std


def export(path: Path, state: State, embedder: AnyEmbedder | None) -> None:
    """Write the graph, once it has been found to agree with PyTorch; its metadata name classes and preprocessing."""
    if embedder is not None and not isinstance(embedder, Embedder):
        raise InvalidOptionError(
            f"The embedding {embedder} takes each image in several sizes, which one graph cannot do. Fit with a single "
            f"embedding to export."
        )
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise DataError(f"Exporting to ONNX needs {', '.join(missing)}. Type pip install 'handful[onnx]'.")
    graph = Graph(state, embedder).eval()
    samples = [_sample(state, embedder, n) for n in (2, 5)]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(graph, samples[0], temporary, _facts(state, embedder))
        worst = max(_difference(graph, temporary, sample) for sample in samples)
        if not worst <= TOLERANCE:
            raise DataError(
                f"The exported graph differs from PyTorch by {worst:.2g} in a probability, more than {TOLERANCE:g}, so "
                f"it was not kept. The embedding does something that ONNX cannot express; report it with its name."
            )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _module(embedder: Embedder) -> nn.Module:
    network = torch_network(embedder)
    if network is None:
        raise InvalidOptionError(
            f"The embedding '{embedder.origin or embedder.network!r}' is a function, which cannot be exported. "
            f"Wrap it in an nn.Module."
        )
    return network.cpu()


def _sample(state: State, embedder: Embedder | None, n: int) -> Tensor:
    generator = torch.Generator().manual_seed(n)
    if embedder is None:
        return torch.randn(n, len(state.origin), generator=generator) + torch.from_numpy(state.origin).float()
    wanted = embedder.preprocessing
    return torch.rand(n, wanted.channels, wanted.height, wanted.width, generator=generator)


def _write(graph: Graph, sample: Tensor, path: Path, facts: dict[str, str]) -> None:
    import onnx

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                graph,
                (sample,),
                input_names=["images" if graph.network is not None else "features"],
                output_names=["probabilities"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
    except HandfulError:
        raise
    except Exception as error:  # the exporter raises what the network's operators make it raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"This embedding cannot be exported to ONNX: {first}") from error
    if program is None:
        raise DataError("The exporter of PyTorch gave no graph.")
    model = program.model_proto
    for key, value in facts.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save_model(model, path)


def _difference(graph: Graph, path: Path, sample: Tensor) -> float:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: sample.numpy()})
    with torch.no_grad():
        expected = graph(sample).numpy()
    return float(np.abs(found - expected).max())


def _facts(state: State, embedder: Embedder | None) -> dict[str, str]:
    return {
        "classes": json.dumps([str(name) for name in state.classes]),
        "preprocessing": json.dumps(None if embedder is None else embedder.preprocessing.as_json()),
    }
