"""How images are prepared for an embedding, as plain values that can be stored in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from handful.data.decode import Decoding
from handful.errors import CheckpointError, InvalidOptionError


@dataclass(frozen=True)
class Preprocessing:
    """Size, channels and fit of the images; `mean` and `std` shift and scale pixels in [0, 1].

    With `bright_ink`, an image with a bright border is inverted, so that all drawings are bright on black.
    """

    height: int = 224
    width: int = 224
    channels: Literal[1, 3] = 3
    fit: Literal["crop", "squash"] = "crop"
    bright_ink: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (1 <= self.height <= 4096 and 1 <= self.width <= 4096):
            raise InvalidOptionError(
                f"Images may have at most 4096 pixels per side, but got {self.height}x{self.width}."
            )
        if self.channels not in (1, 3) or self.fit not in ("crop", "squash"):
            raise InvalidOptionError(
                f"channels must be 1 or 3 and fit 'crop' or 'squash', but got {self.channels!r}, {self.fit!r}."
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (0, self.channels):
                raise InvalidOptionError(f"{name} has {len(values)} values for {self.channels} channels.")
        if any(not value > 0 for value in self.std):
            raise InvalidOptionError(f"std must be positive, but got {self.std}.")

    @property
    def decoding(self) -> Decoding:
        """The settings for the image decoder."""
        return Decoding(self.height, self.width, self.channels, self.fit)

    def oriented(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Pixels (h, w, c), inverted if `bright_ink` is set and the border is bright."""
        if not self.bright_ink:
            return pixels
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        return 255 - pixels if border.mean() > 127.5 else pixels

    def tensor(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Pixels (n, h, w, c) as network inputs: float (n, c, h, w) in channels-last memory."""
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
        if self.mean:
            images = images - torch.tensor(self.mean)[:, None, None]
        if self.std:
            images = images / torch.tensor(self.std)[:, None, None]
        return images

    def as_json(self) -> dict[str, Any]:
        """The values for a JSON file."""
        return asdict(self)


def preprocessing_from_json(values: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing that `as_json` returned."""
    try:
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return Preprocessing(**plain)
    except (TypeError, InvalidOptionError) as error:
        raise CheckpointError(f"The preprocessing of the images cannot be read: {error}") from error
