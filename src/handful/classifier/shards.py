"""Features of more images than fit into memory: a folder of float16 shards with an index, which can be filled in parts.

A shard is one tensor file with a checksum, written completely or not at all. Existing shards are skipped, so that an
interrupted job continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from handful._io import from_json, read_json, write_atomically
from handful.classifier.inputs import Labels, Matrix
from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.checkpoint import read_checkpoint, write_checkpoint

INDEX, FORMAT = "index.json", 1


@dataclass(frozen=True)
class Block:
    """Some examples: features (n, e), their class numbers (-1 if unknown), and their names."""

    features: Matrix
    codes: Labels
    names: Sequence[str] = ()


class Blocks(Protocol):
    """Examples in numbered blocks, each small enough for one worker's memory; workers read them directly."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of their numbers."""
        ...

    def __len__(self) -> int: ...

    def read(self, number: int) -> Block:
        """One of the blocks."""
        ...


@dataclass(frozen=True)
class FeatureShards:
    """A folder of shards, made by `write_index` and `write_shard`."""

    folder: Path

    @cached_property
    def index(self) -> dict[str, Any]:
        """The content of the index: classes, rows of each shard, and the embedding."""
        try:
            facts: dict[str, Any] = read_json(self.folder / INDEX)
            version = from_json(int, facts["format"], "format")
            rows = from_json(tuple[int, ...], facts["rows"], "rows")
            from_json(tuple[str, ...], facts["classes"], "classes")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.folder} has no readable index of feature shards: {error}.") from error
        if version != FORMAT:
            raise CheckpointError(f"{self.folder} has format {version}, but this version reads format {FORMAT}.")
        if not rows or min(rows) < 1:
            raise CheckpointError(f"The index of {self.folder} names no shards, or shards without rows.")
        return facts

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of their numbers."""
        return tuple(self.index["classes"])

    def __len__(self) -> int:
        return len(self.index["rows"])

    def path(self, number: int) -> Path:
        """The file of a shard."""
        return self.folder / f"{number:06d}.safetensors"

    def missing(self) -> list[int]:
        """Shards that are still to be written."""
        return [number for number in range(len(self)) if not self.path(number).exists()]

    def read(self, number: int) -> Block:
        """One shard; raises if it is missing, truncated or changed."""
        tensors, facts = read_checkpoint(self.path(number))
        try:
            features, codes = tensors["features"], tensors["codes"]
            names = from_json(tuple[str, ...], facts["names"], "names")
            n = self.index["rows"][number]
            if (features.dtype, codes.dtype) != (torch.float16, torch.int64) or features.ndim != 2:
                raise ValueError(f"its features are {features.dtype} of shape {tuple(features.shape)}")
            if not (len(features) == n == len(names) and codes.shape == (n,)):
                raise ValueError("its parts differ in length from the index")
            if not bool(torch.isfinite(features).all()):
                raise ValueError("its features are not finite")
            if n and not -1 <= int(codes.min()) <= int(codes.max()) < len(self.classes):
                raise ValueError("it names a class that the index does not have")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CheckpointError(
                f"{self.path(number)} is not a complete shard: {error}. Delete it, and run the same command again."
            ) from error
        return Block(features.double().numpy(), codes.numpy(), names)


def write_index(
    folder: Path, classes: Sequence[str], rows: Sequence[int], embedding: str, digest: str
) -> FeatureShards:
    """Start a folder of shards, or continue one with the same examples and embedding."""
    facts = {"format": FORMAT, "classes": list(classes), "rows": list(rows), "embedding": embedding, "digest": digest}
    shards = FeatureShards(folder)
    if (folder / INDEX).exists():
        if shards.index != facts:
            raise InvalidOptionError(
                f"{folder} holds features of other images or another embedding. Choose another folder for the shards."
            )
        return shards
    write_atomically(folder / INDEX, json.dumps(facts).encode())
    return shards


def write_shard(shards: FeatureShards, number: int, block: Block) -> None:
    """Write one shard, in float16."""
    if not np.isfinite(block.features).all() or np.abs(block.features).max(initial=0) > np.finfo(np.float16).max:
        raise InvalidOptionError(
            f"Features of shard {number} do not fit into float16: they are not finite or above 65,504."
        )
    tensors = {"features": torch.from_numpy(block.features).half(), "codes": torch.from_numpy(block.codes)}
    write_checkpoint(shards.path(number), tensors, {"names": list(block.names)})


def digest_of_names(names: Sequence[str], codes: NDArray[np.int64], embedding: str) -> str:
    """Identifies examples and embedding, so that their shards are not confused with others."""
    digest = hashlib.sha256(embedding.encode())
    for name in names:
        digest.update(name.encode(errors="surrogateescape") + b"\0")
    digest.update(codes.tobytes())
    return digest.hexdigest()
