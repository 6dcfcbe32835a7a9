"""Checkpoints: one safetensors file with tensors and JSON facts, written completely or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from handful._io import read_tensors, write_tensors
from handful.errors import CheckpointError, NewerFormatError

FORMAT = 1


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors, facts and their checksum to one file; a reader sees the old file or the new one, never a mix."""
    write_tensors(path, tensors, {"format": FORMAT, **facts})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint; raises if the file is missing, truncated, damaged or not a checkpoint.

    A file without a checksum was written by handful 0.1 and is read without that check.
    """
    if not path.exists():
        raise CheckpointError(f"There is no checkpoint {path}.")
    tensors, facts = read_tensors(path)
    version = facts.pop("format", None)
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormatError(
            f"{path} was written by a newer version of handful: it has format {version}, and this version reads format "
            f"{FORMAT}. Update handful (pip install --upgrade handful) and try again."
        )
    if version != FORMAT:
        raise CheckpointError(f"{path} has format {version}, but this version of handful reads format {FORMAT}.")
    return tensors, facts
