"""The numbers of correct answers behind a report: one small file beside it, from which every figure can be recomputed.

`NAME.counts.safetensors` holds two arrays of whole numbers for each column and run, `KEY/shared` over the test episodes
that all rows share and `KEY/apart` over the episodes that have no image in common; its header says how many queries an
episode has. The same counts give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save
from torch import Tensor

from handful._io import read_tensors
from handful.errors import CheckpointError, DataError
from handful.paper.measure import Measurement

KIND = "handful.counts"
SHARED, APART = "shared", "apart"


@dataclass(frozen=True)
class Counts:
    """Correct answers of one run on one column's episodes, and the queries of each episode."""

    correct: Tensor
    queries: int
    correct_apart: Tensor
    queries_apart: int

    @property
    def accuracies(self) -> Tensor:
        """Of the shared test episodes."""
        return self.correct.double() / self.queries

    @property
    def apart(self) -> Tensor:
        """Of episodes that have no image in common."""
        return self.correct_apart.double() / self.queries_apart


def counts_bytes(measured: Iterable[tuple[str, Measurement]]) -> bytes:
    """The file's content; of two measurements under one key, the one over more episodes stays."""
    kept: dict[str, Measurement] = {}
    for key, each in measured:
        if key not in kept or len(each.correct) > len(kept[key].correct):
            kept[key] = each
    arrays = {f"{key}/{SHARED}": _small(each.correct, each.queries) for key, each in kept.items()}
    arrays |= {f"{key}/{APART}": _small(each.correct_apart, each.queries_apart) for key, each in kept.items()}
    queries = {key: [each.queries, each.queries_apart] for key, each in sorted(kept.items())}
    return save(arrays, metadata={KIND: json.dumps({"format": 1, "queries": queries})})


def _small(correct: Tensor, queries: int) -> np.ndarray:
    """As the smallest unsigned kind of number that holds an episode's queries."""
    return correct.numpy().astype(np.min_scalar_type(queries))


def digest(payload: bytes) -> str:
    """SHA-256 of a counts file, which its report carries."""
    return hashlib.sha256(payload).hexdigest()


def read_counts(path: Path) -> dict[str, Counts]:
    """What a counts file holds, by key; one that is missing, cut short or of another kind is refused."""
    if not path.is_file():
        raise DataError(f"There is no file {path} with the per-episode counts of its report.")
    try:
        arrays, facts = read_tensors(path, KIND)
        return {
            key: Counts(arrays[f"{key}/{SHARED}"].long(), shared, arrays[f"{key}/{APART}"].long(), apart)
            for key, (shared, apart) in facts["queries"].items()
        }
    except (CheckpointError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a whole file of per-episode counts ({error}).") from error
