"""The per-episode counts behind a report, in a small file next to it, and the check that recomputes every figure.

`NAME.counts.safetensors` holds two integer arrays for each column and run, `KEY/shared` over the test episodes that all
rows share and `KEY/apart` over the episodes that share no image; its header gives the number of queries per episode.
The same counts give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save
from torch import Tensor

from handful._io import read_json, read_tensors
from handful.errors import CheckpointError, DataError
from handful.paper.published import Figure
from handful.paper.results import Outcome, Pair, compare, difference
from handful.paper.testing import Counts

KIND = "handful.counts"
MOST_COUNTS = 64 << 20
"""Largest counts file in bytes; a count takes up to 16 times as much space in memory as in the file."""
ROUNDING = 1e-9
"""Largest difference of accuracies between 0 and 1 that summing in another order could cause."""


def counts_bytes(counted: Iterable[tuple[str, Counts]]) -> bytes:
    """The content of the counts file; of two counts with the same key, the one with more episodes is kept."""
    kept: dict[str, Counts] = {}
    for key, each in counted:
        if key not in kept or len(each.correct) > len(kept[key].correct):
            kept[key] = each
    arrays = {f"{key}/shared": _small(each.correct, each.queries) for key, each in kept.items()}
    arrays |= {f"{key}/apart": _small(each.correct_apart, each.queries_apart) for key, each in kept.items()}
    queries = {key: [each.queries, each.queries_apart] for key, each in sorted(kept.items())}
    return save(arrays, metadata={KIND: json.dumps({"format": 1, "queries": queries})})


def _small(correct: Tensor, queries: int) -> np.ndarray:
    """The counts in the smallest unsigned integer type that can hold an episode's queries."""
    return correct.numpy().astype(np.min_scalar_type(queries))


def read_counts(path: Path) -> dict[str, Counts]:
    """The counts in a file by key; raises if the file is missing, truncated or of another kind."""
    if not path.is_file():
        raise DataError(f"There is no file {path} with the per-episode counts of its report.")
    if path.stat().st_size > MOST_COUNTS:
        raise DataError(f"{path} is larger than the {MOST_COUNTS >> 20} MB that per-episode counts may have.")
    try:
        arrays, facts = read_tensors(path, KIND)
        return {
            key: Counts(arrays[f"{key}/shared"].long(), shared, arrays[f"{key}/apart"].long(), apart)
            for key, (shared, apart) in facts["queries"].items()
        }
    except (CheckpointError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a complete file of per-episode counts ({error}).") from error


@dataclass(frozen=True)
class Verified:
    """The result of verifying one report."""

    path: Path
    figures: int = 0
    """Number of figures that were recomputed and agree."""
    complaint: str = ""
    """What is wrong with the report."""
    excuse: str = ""
    """Why it cannot be recomputed, if the report itself gives the reason."""

    def __str__(self) -> str:
        if self.complaint:
            return f"{self.path}: WRONG: {self.complaint}"
        if self.excuse:
            return f"{self.path}: cannot be recomputed: {self.excuse}"
        return f"{self.path}: {self.figures:,} figures recomputed, all the same"


def reports_below(path: Path) -> list[Path]:
    """The report itself, or all reports in a folder and its subfolders; other JSON files are skipped."""
    if not path.exists():
        raise DataError(f"There is no file or folder {path}.")
    paths = [path] if path.is_file() else sorted(path.rglob("*.json"))
    found = [each for each in paths if _is_report(each)]
    if not found:
        raise DataError(
            f"{path} is not, and does not contain, a report of `handful reproduce` (a JSON file with cells and pairs)."
        )
    return found


def _is_report(path: Path) -> bool:
    try:
        facts = read_json(path)
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and {"experiment", "cells", "pairs"} <= facts.keys()


def verify(path: Path) -> Verified:
    """Recompute all means, intervals, comparisons and paired differences of a report."""
    try:
        facts = read_json(path)
    except (OSError, ValueError) as error:
        return Verified(path, complaint=f"the report cannot be read: {error}")
    if "counts" not in facts:
        return Verified(path, complaint="no per-episode counts (made before they were kept)")
    if facts["counts"] is None:
        reason = facts.get("no_counts_because", "")
        return Verified(path, excuse=reason) if reason else Verified(path, complaint="no counts, and no reason given")
    try:
        name = facts["counts"]["file"]
        if Path(name).name != name:  # a report from someone else must not lead to another folder
            raise DataError(f"the counts of a report must be in its own folder, not in {str(name)[:80]!r}")
        return Verified(path, _checked(facts, path.parent / name))
    except DataError as error:
        return Verified(path, complaint=str(error))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, OSError) as error:
        return Verified(path, complaint=f"the report cannot be read: {type(error).__name__} {error}")


def _checked(facts: Mapping[str, Any], file: Path) -> int:
    """The number of figures that were recomputed; raises for the first that differs."""
    counts = read_counts(file)
    figures = 0
    for name, stated, found in _figures(facts, counts):
        if not _same(stated, found):
            raise DataError(f"{name} is {stated}, but the counts give {found}")
        figures += 1
    if hashlib.sha256(file.read_bytes()).hexdigest() != facts["counts"]["sha256"]:
        raise DataError(f"{file.name} is not the file that the report was made from: its hash differs")
    return figures


def _same(stated: Any, found: Any) -> bool:
    if isinstance(stated, int | float) and isinstance(found, int | float):
        return math.isclose(stated, found, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(stated == found)


def _figures(facts: Mapping[str, Any], counts: Mapping[str, Counts]) -> Iterator[tuple[str, Any, Any]]:
    """The name of each figure, the report's value, and the value from the counts."""
    known: dict[tuple[str, str], Outcome] = {}
    for cell in [*facts["cells"], *facts.get("beyond_the_paper", [])]:
        if cell["ours"] is None:
            continue
        name = f"{cell['column']}, {cell['label']}"
        again = known[cell["column"], cell["label"]] = _recomputed(cell["ours"], counts)
        yield from _leaves(name, cell["ours"], again.as_json())
        if (stated := cell["comparison"]) is not None:
            found = compare(again, Figure(**cell["published"])).as_json()
            if stated["verdict"] is None:  # runs in part have none
                del found["verdict"]
            yield from _leaves(f"{name}: comparison", stated, found)
    for stated in facts["pairs"]:
        column, first, second = stated["column"], stated["first"], stated["second"]
        intervals = difference(known[column, first], known[column, second])
        pair = Pair(column, first, second, *intervals, stated["published"], stated["published_half"])
        yield from _leaves(f"{column}, {first} less {second}", stated, pair.figures())


def _recomputed(ours: Mapping[str, Any], counts: Mapping[str, Counts]) -> Outcome:
    missing = [key for key in ours["counts"] if key not in counts]
    if missing:
        raise DataError(f"the counts file has nothing under '{missing[0]}'")
    return Outcome.of([counts[key] for key in ours["counts"]], ours["closed"]["n"], ours["open"]["n"])


def _leaves(name: str, stated: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(f"{name}: {key}", stated[key], value)
        else:
            yield f"{name}: {key}", stated[key], value
