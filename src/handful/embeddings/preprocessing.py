"""How pixels are prepared for an embedding, as plain values that a file can hold."""

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

    With `bright_ink`, an image whose border is bright is inverted, so that drawings are bright on black whatever they
    were drawn on.
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
            raise InvalidOptionError(f"Images are at most 4096 pixels a side, but got {self.height}x{self.width}.")
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
        """What the image decoder needs to know."""
        return Decoding(self.height, self.width, self.channels, self.fit)

    def oriented(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Pixels (h, w, c) with ink brighter than paper, if that is wanted."""
        if not self.bright_ink:
            return pixels
        border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
        return 255 - pixels if border.mean() > 127.5 else pixels

    def tensor(self, pixels: NDArray[np.uint8]) -> Tensor:
        """Pixels (n, h, w, c) as the network wants them: float (n, c, h, w), in channels-last memory."""
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)
        if self.mean:
            images = images - torch.tensor(self.mean)[:, None, None]
        if self.std:
            images = images / torch.tensor(self.std)[:, None, None]
        return images

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def preprocessing_from_json(values: Mapping[str, Any]) -> Preprocessing:
    """What `as_json` gave."""
    try:
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return Preprocessing(**plain)
    except (TypeError, InvalidOptionError) as error:
        raise CheckpointError(f"The preprocessing of the images cannot be read: {error}") from error
