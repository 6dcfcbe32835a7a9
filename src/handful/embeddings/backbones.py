"""Networks by name from other packages: `timm:NAME`, `hf:NAME`, `open_clip:NAME/WEIGHTS` and `onnx:FILE`.

The package provides the image size, mean and standard deviation, and downloads the weights into its own cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

from torch import Tensor, nn

from handful._io import MEGABYTE, read_bytes
from handful.embeddings.preprocessing import Preprocessing
from handful.embeddings.runtime import RuntimeNetwork
from handful.errors import DataError, HandfulError, InvalidOptionError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
USUAL_SIDE = 224
MOST_ONNX = 2048 * MEGABYTE
"""The size limit of protocol buffers."""


@dataclass(frozen=True)
class Backbone:
    """A network, its preprocessing, and its full name, from which another process can load the same network."""

    network: Callable[[Tensor], Any]
    preprocessing: Preprocessing
    name: str
    digest: str = ""
    """Identifies the weights if the network is not an `nn.Module`."""


def is_backbone(name: str) -> bool:
    """Whether this is the name of a network in another package."""
    return name.partition(":")[0] in _PACKAGES and ":" in name


def backbone(name: str) -> Backbone:
    """The network called `PACKAGE:NAME`; errors say what to install or what is wrong with the name."""
    package, _, which = name.partition(":")
    if not which:
        raise InvalidOptionError(f"The embedding {package}: needs the name of a model after the colon.")
    module, install, build = _PACKAGES[package]
    if find_spec(module) is None:
        raise DataError(f"The embedding {name} needs the package {module}. Install it: pip install {install}.")
    try:
        return build(which)
    except HandfulError:
        raise
    except Exception as error:  # a download, an unknown name, a missing dependency: each package has its own errors
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{module} cannot load the embedding {name}: {first}") from error


class Output(nn.Module):
    """Takes the features from one method, or one part of the output, of a network."""

    def __init__(self, network: nn.Module, method: str = "") -> None:
        super().__init__()
        self.network = network
        self.method = method

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, e), or tokens (n, t, e) if the network does not pool them."""
        if self.method == "encode_image":
            return cast("Tensor", self.network.encode_image(images))  # type: ignore[operator]
        compute = getattr(self.network, self.method) if self.method else self.network
        output = compute(pixel_values=images)
        if isinstance(output, Tensor):
            return output
        pooled = getattr(output, "pooler_output", None)
        return cast("Tensor", output.last_hidden_state if pooled is None else pooled)


def _timm(name: str) -> Backbone:
    timm = import_module("timm")
    model = timm.create_model(name, pretrained=True, num_classes=0)
    config = timm.data.resolve_model_data_config(model)
    return Backbone(model, _preprocessing(config["input_size"][-1], config["mean"], config["std"]), f"timm:{name}")


def _transformers(name: str) -> Backbone:
    transformers = import_module("transformers")
    # nothing is unpickled, and code that comes with the weights is refused without a question
    model = transformers.AutoModel.from_pretrained(name, use_safetensors=True, trust_remote_code=False)
    config, _ = transformers.ImageProcessingMixin.get_image_processor_dict(name)
    size = config.get("crop_size") if config.get("do_center_crop") else None
    side = _side(size or config.get("size"))
    mean, std = config.get("image_mean", IMAGENET_MEAN), config.get("image_std", IMAGENET_STD)
    method = "get_image_features" if hasattr(model, "get_image_features") else ""
    full = f"hf:{Path(name).absolute()}" if Path(name).is_dir() else f"hf:{name}"
    return Backbone(Output(model, method), _preprocessing(side, mean, std), full)


def _open_clip(name: str) -> Backbone:
    open_clip = import_module("open_clip")
    which, _, weights = name.partition("/")
    if not weights and not name.startswith("hf-hub:"):
        known = [tag for model, tag in open_clip.list_pretrained() if model == which]
        raise InvalidOptionError(
            f"Name the weights as well: open_clip:{which}/WEIGHTS. "
            + (f"Known weights: {', '.join(known[:8])}." if known else f"open_clip has no weights for {which}.")
        )
    hub = name.startswith("hf-hub:")
    model = open_clip.create_model(name if hub else which, pretrained=None if hub else weights)
    config = model.visual.preprocess_cfg
    preprocessing = _preprocessing(_side(config["size"]), config["mean"], config["std"])
    return Backbone(Output(model, "encode_image"), preprocessing, f"open_clip:{name}")


def _onnx(name: str) -> Backbone:
    """An ONNX graph from images to features; `?size=224&mean=0.5&std=0.25&fit=squash` sets the preprocessing.

    By default images have the size of the graph's input, or 224, and ImageNet's mean and standard deviation.
    """
    file, _, query = name.partition("?")
    path = Path(file).expanduser().absolute()
    try:
        content = read_bytes(path, MOST_ONNX)
    except DataError as error:
        raise DataError(f"The ONNX file {path} {error}.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"The ONNX file {path} cannot be read: {getattr(error, 'strerror', error)}.") from error
    network = RuntimeNetwork(content, f"The ONNX file {path}")
    shape = network.input_shape
    if len(shape) != 4 or shape[1] not in (1, 3):
        raise InvalidOptionError(
            f"The input of {path} has shape {shape}, but must be (n, channels, height, width) with 1 or 3 channels."
        )
    options = _stated(query, path)
    declared = shape[2] if isinstance(shape[2], int) else USUAL_SIDE
    side = int(options.get("size", declared))
    preprocessing = _preprocessing(
        side,
        _triple(options.get("mean"), IMAGENET_MEAN, shape[1]),
        _triple(options.get("std"), IMAGENET_STD, shape[1]),
        shape[1],
        cast("Literal['crop', 'squash']", options.get("fit", "crop")),
    )
    digest = hashlib.sha256(content).hexdigest()
    return Backbone(network, preprocessing, f"onnx:{path}" + (f"?{query}" if query else ""), digest)


def _stated(query: str, path: Path) -> Mapping[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = set(options) - {"size", "mean", "std", "fit"}
    if unknown or (query and not options) or not options.get("size", "1").isdecimal():
        raise InvalidOptionError(
            f"Give the preprocessing of {path} as ?size=224&mean=0.5,0.5,0.5&std=0.25&fit=crop, but got '?{query}'."
        )
    return options


def _triple(text: str | None, usual: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if text is None:
        return usual if channels == 3 else (sum(usual) / 3,)
    try:
        values = tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise InvalidOptionError(f"'{text}' should be numbers joined by commas.") from error
    return values * channels if len(values) == 1 else values


def _preprocessing(
    side: int, mean: Any, std: Any, channels: Literal[1, 3] = 3, fit: Literal["crop", "squash"] = "crop"
) -> Preprocessing:
    return Preprocessing(int(side), int(side), channels, fit, False, tuple(map(float, mean)), tuple(map(float, std)))


def _side(size: Any) -> int:
    """The side of a square size, in any notation that configurations use."""
    if isinstance(size, Mapping):
        size = size.get("height") or size.get("shortest_edge") or USUAL_SIDE
    if isinstance(size, list | tuple):
        size = size[-1]
    return int(size or USUAL_SIDE)


_PACKAGES: dict[str, tuple[str, str, Callable[[str], Backbone]]] = {
    "timm": ("timm", "timm", _timm),
    "hf": ("transformers", "transformers", _transformers),
    "open_clip": ("open_clip", "open_clip_torch", _open_clip),
    "onnx": ("onnxruntime", "onnxruntime", _onnx),
}
"""The module of each package, what to install for it, and the function that loads its networks."""
PACKAGES = tuple(_PACKAGES)
