"""Checkpoints: one safetensors file with tensors and JSON facts, written whole or not at all, never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from handful._io import write_atomically
from handful.errors import CheckpointError, NewerFormatError

_KEY = "handful"
FORMAT = 1


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and facts to one file: to a temporary name first, then renamed, so that no reader sees a half."""
    header = {_KEY: json.dumps({"format": FORMAT, **facts})}
    payload = save({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, metadata=header)
    write_atomically(path, payload)


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the facts of a checkpoint; a missing, truncated or foreign file is refused with the reason."""
    if not path.is_file():
        raise CheckpointError(f"There is no checkpoint {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({error}). It may have been cut short or be of another kind; "
            f"take another checkpoint of the run."
        ) from error
    if _KEY not in metadata:
        raise CheckpointError(f"{path} is a safetensors file, but handful did not write it: its header has no facts.")
    try:
        facts = json.loads(metadata[_KEY])
        version = facts.pop("format")
    except (json.JSONDecodeError, AttributeError, KeyError) as error:
        raise CheckpointError(f"The header of {path} cannot be read: {error}.") from error
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormatError(
            f"{path} was written by a newer version of handful: it has format {version}, and this version reads format "
            f"{FORMAT}. Update handful (pip install --upgrade handful) and try again."
        )
    if version != FORMAT:
        raise CheckpointError(f"{path} has format {version}, but this version of handful reads format {FORMAT}.")
    return tensors, facts
