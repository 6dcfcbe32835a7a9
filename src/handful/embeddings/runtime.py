"""Networks in ONNX Runtime: ONNX files, and the photo networks, which run two to three times as fast there.

The graph of a photo network needs only four kinds of operators, so it is encoded here, without PyTorch's exporter and
the packages that it requires. A message of the ONNX format (protocol buffers) is a sequence of numbered fields; the
numbers below are from onnx.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from handful.embeddings.efficientnet import HEAD, EfficientNetLite, InvertedResidual
from handful.errors import DataError

FLOAT, INT, INTS = 1, 2, 7
"""Types of tensors and attributes."""
IR_VERSION, OPSET = 8, 17


def has_runtime() -> bool:
    """Whether ONNX Runtime is installed."""
    return find_spec("onnxruntime") is not None


class RuntimeNetwork:
    """An ONNX graph from images (n, c, h, w) to features, called like a PyTorch network; it uses the first output."""

    def __init__(self, graph: bytes, what: str, cuda: bool = False) -> None:
        if not has_runtime():
            raise DataError(f"{what} needs ONNX Runtime. Install it: pip install onnxruntime.")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # errors are raised too, so there is no need to log them
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CUDAExecutionProvider"] * cuda + ["CPUExecutionProvider"]
        try:
            self.session = onnxruntime.InferenceSession(graph, options, providers=providers)
        except Exception as error:  # the runtime has a separate exception class for each kind of damage
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"{what} cannot be opened by ONNX Runtime: {first}") from error
        self.name = self.session.get_inputs()[0].name

    @property
    def input_shape(self) -> list[Any]:
        """The declared shape of the images; a variable dimension is a name or None."""
        return list(self.session.get_inputs()[0].shape)

    def __call__(self, images: Tensor) -> Tensor:
        """The graph's features; a graph for single images is run once per image."""
        pixels = images.cpu().contiguous().numpy()
        batches = np.split(pixels, len(pixels)) if self.input_shape[0] == 1 else [pixels]
        try:
            outputs = [self.session.run(None, {self.name: batch})[0] for batch in batches]
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(f"ONNX Runtime cannot run the graph on images of shape {pixels.shape}: {first}") from error
        return torch.from_numpy(np.concatenate(outputs))


def lite_graph(network: nn.Module) -> bytes:
    """The ONNX file of a photo network; its batch norms must already be folded into its convolutions."""
    if not isinstance(network, EfficientNetLite):
        raise TypeError(f"expected an EfficientNetLite, but got {type(network).__name__}")
    graph = _Graph()
    hidden = graph.shifted("images", 255 / 128, -127 / 128)
    hidden = graph.relu6(graph.convolution(hidden, network.stem))
    for block in network.blocks:
        hidden = _block(graph, hidden, block)
    hidden = graph.relu6(graph.convolution(hidden, network.head))
    pooled = graph.node("GlobalAveragePool", [hidden])
    graph.node("Flatten", [pooled], output="features")
    return graph.model(inputs=("images", ("n", 3, "height", "width")), outputs=("features", ("n", HEAD)))


def _block(graph: _Graph, inputs: str, block: nn.Module) -> str:
    if not isinstance(block, InvertedResidual):
        raise TypeError(f"expected an InvertedResidual as a block, but got {type(block).__name__}")
    hidden = graph.relu6(graph.convolution(inputs, block.expand)) if block.expands else inputs
    hidden = graph.relu6(graph.convolution(hidden, block.depthwise))
    hidden = graph.convolution(hidden, block.project)
    return graph.node("Add", [inputs, hidden]) if block.skips else hidden


class _Graph:
    """Collects nodes and constants, encoded as they are added."""

    def __init__(self) -> None:
        self.nodes: list[bytes] = []
        self.constants: list[bytes] = []

    def node(self, kind: str, inputs: Iterable[str], attributes: bytes = b"", output: str = "") -> str:
        output = output or f"hidden{len(self.nodes)}"
        self.nodes.append(b"".join(_text(1, each) for each in inputs) + _text(2, output) + _text(4, kind) + attributes)
        return output

    def constant(self, values: NDArray[np.float32]) -> str:
        name = f"constant{len(self.constants)}"
        dims = b"".join(_number(1, size) for size in values.shape)
        content = np.ascontiguousarray(values, dtype="<f4").tobytes()
        self.constants.append(dims + _number(2, FLOAT) + _text(8, name) + _field(9, content))
        return name

    def shifted(self, inputs: str, factor: float, shift: float) -> str:
        scaled = self.node("Mul", [inputs, self.constant(np.array(factor, dtype=np.float32))])
        return self.node("Add", [scaled, self.constant(np.array(shift, dtype=np.float32))])

    def relu6(self, inputs: str) -> str:
        bounds = [self.constant(np.array(bound, dtype=np.float32)) for bound in (0, 6)]
        return self.node("Clip", [inputs, *bounds])

    def convolution(self, inputs: str, layer: nn.Module) -> str:
        """Add a layer of padding and a convolution with a folded batch norm."""
        padding, convolution = layer.get_submodule("0"), layer.get_submodule("1")
        if not isinstance(convolution, nn.Conv2d) or convolution.bias is None:
            raise TypeError("the batch norms of the network must be folded into its convolutions first")
        if isinstance(padding, nn.ZeroPad2d):
            left, right, top, bottom = padding.padding
        else:
            left = right = top = bottom = int(convolution.padding[0])
        weights = [self.constant(each.detach().numpy()) for each in (convolution.weight, convolution.bias)]
        attributes = (
            _integers("kernel_shape", convolution.kernel_size)
            + _integers("strides", convolution.stride)
            + _integers("pads", (top, left, bottom, right))
            + _field(5, _text(1, "group") + _number(3, convolution.groups) + _number(20, INT))
        )
        return self.node("Conv", [inputs, *weights], attributes)

    def model(self, inputs: tuple[str, tuple[int | str, ...]], outputs: tuple[str, tuple[int | str, ...]]) -> bytes:
        graph = b"".join(_field(1, node) for node in self.nodes) + _text(2, "handful")
        graph += b"".join(_field(5, constant) for constant in self.constants)
        graph += _field(11, _value(*inputs)) + _field(12, _value(*outputs))
        return _number(1, IR_VERSION) + _field(8, _number(2, OPSET)) + _field(7, graph)


def _value(name: str, shape: tuple[int | str, ...]) -> bytes:
    dims = b"".join(_field(1, _text(2, each) if isinstance(each, str) else _number(1, each)) for each in shape)
    return _text(1, name) + _field(2, _field(1, _number(1, FLOAT) + _field(2, dims)))


def _integers(name: str, values: Iterable[int]) -> bytes:
    return _field(5, _text(1, name) + b"".join(_number(8, value) for value in values) + _number(20, INTS))


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode())


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + struct.pack("B", value)
