"""`handful reproduce verify`: every figure of a report again, from the per-episode counts beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from handful.errors import DataError
from handful.paper.counts import Counts, digest, read_counts
from handful.paper.intervals import Interval, closed_interval, compare, open_interval
from handful.paper.published import Figure

ROUNDING = 1e-9
"""Largest difference, of accuracies between 0 and 1, that adding up in another order could make."""


@dataclass(frozen=True)
class Verified:
    """What came of one report."""

    path: Path
    figures: int = 0
    """Figures that were recomputed and found the same."""
    complaint: str = ""
    """What is wrong with it."""
    excuse: str = ""
    """Why it cannot be recomputed, where the report itself gives the reason."""

    def __str__(self) -> str:
        if self.complaint:
            return f"{self.path}: WRONG: {self.complaint}"
        if self.excuse:
            return f"{self.path}: cannot be recomputed: {self.excuse}"
        return f"{self.path}: {self.figures:,} figures recomputed, all the same"


@dataclass(frozen=True)
class _Recomputed:
    accuracies: Tensor
    """Of each shared episode, the mean over seeds."""
    apart: Tensor
    seeds: Tensor


def reports_below(path: Path) -> list[Path]:
    """The report itself, or all reports in a folder and the folders below it; other JSON files are passed over."""
    if not path.exists():
        raise DataError(f"There is no file or folder {path}.")
    paths = [path] if path.is_file() else sorted(path.rglob("*.json"))
    found = [each for each in paths if _is_report(each)]
    if not found:
        raise DataError(f"{path} is or holds no report of `handful reproduce` (a JSON file with cells and pairs).")
    return found


def _is_report(path: Path) -> bool:
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(facts, dict) and {"experiment", "cells", "pairs"} <= facts.keys()


def verify(path: Path) -> Verified:
    """Recompute all means, intervals, comparisons and paired differences of a report."""
    facts = json.loads(path.read_text())
    if "counts" not in facts:
        return Verified(path, complaint="no per-episode counts (made before they were kept)")
    if facts["counts"] is None:
        reason = facts.get("no_counts_because", "")
        return Verified(path, excuse=reason) if reason else Verified(path, complaint="no counts, and no reason given")
    try:
        return Verified(path, _checked(facts, path.parent / facts["counts"]["file"]))
    except DataError as error:
        return Verified(path, complaint=str(error))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        return Verified(path, complaint=f"the report cannot be read: {type(error).__name__} {error}")


def _checked(facts: Mapping[str, Any], file: Path) -> int:
    """How many figures were recomputed; the first that differs is refused."""
    counts = read_counts(file)
    figures = 0
    for name, told, found in _figures(facts, counts):
        if not _same(told, found):
            raise DataError(f"{name} is {told}, but the counts give {found}")
        figures += 1
    if digest(file.read_bytes()) != facts["counts"]["sha256"]:
        raise DataError(f"{file.name} is not the file that the report was made from: its hash is another")
    return figures


def _same(told: Any, found: Any) -> bool:
    if isinstance(told, int | float) and isinstance(found, int | float):
        return math.isclose(told, found, rel_tol=ROUNDING, abs_tol=ROUNDING)
    return bool(told == found)


def _figures(facts: Mapping[str, Any], counts: Mapping[str, Counts]) -> Iterator[tuple[str, Any, Any]]:
    """Each figure's name, what the report says, and what the counts give."""
    known: dict[tuple[str, str], _Recomputed] = {}
    cells = [*facts["cells"], *facts.get("beyond_the_paper", [])]
    for cell in cells:
        if cell["ours"] is None:
            continue
        again = _recomputed(cell["ours"], counts)
        known[cell["column"], cell["label"]] = again
        yield from _of_cell(cell, again)
    for pair in facts["pairs"]:
        first, second = (known[pair["column"], pair[which]] for which in ("first", "second"))
        both = min(len(first.accuracies), len(second.accuracies))
        apart = min(len(first.apart), len(second.apart))
        name = f"{pair['column']}, {pair['first']} less {pair['second']}"
        closed = closed_interval(first.accuracies[:both] - second.accuracies[:both])
        yield from _of_interval(f"{name}: closed", pair["closed"], closed)
        yield from _of_interval(
            f"{name}: open", pair["open"], open_interval(first.apart[:apart] - second.apart[:apart])
        )
        yield f"{name}: same order", pair["same_order"], _same_order(pair, closed)


def _same_order(pair: Mapping[str, Any], closed: Interval) -> bool | None:
    published: float | None = pair["published"]
    if published is None or abs(published) <= pair["published_half"] or not closed.excludes_zero:
        return None
    return (published > 0) == (closed.mean > 0)


def _recomputed(ours: Mapping[str, Any], counts: Mapping[str, Counts]) -> _Recomputed:
    missing = [key for key in ours["counts"] if key not in counts]
    if missing:
        raise DataError(f"the counts file has nothing under '{missing[0]}'")
    own = [counts[key] for key in ours["counts"]]
    shared = torch.stack([each.accuracies[: ours["closed"]["n"]] for each in own])
    apart = torch.stack([each.apart[: ours["open"]["n"]] for each in own])
    return _Recomputed(shared.mean(0), apart.mean(0), torch.stack([each.mean() for each in shared]))


def _of_cell(cell: Mapping[str, Any], again: _Recomputed) -> Iterator[tuple[str, Any, Any]]:
    name = f"{cell['column']}, {cell['label']}"
    closed, opened = closed_interval(again.accuracies), open_interval(again.apart)
    for kind, found in (("closed", closed), ("open", opened), ("over_seeds", open_interval(again.seeds))):
        yield from _of_interval(f"{name}: {kind}", cell["ours"][kind], found)
    told = cell["comparison"]
    if told is None:
        return
    comparison = compare(closed, opened, Figure(**cell["published"]), again.seeds)
    for word in ("difference", "half", "open", "within_open"):
        yield f"{name}: {word} of the comparison", told[word], getattr(comparison, word)
    if told["verdict"] is not None:
        yield f"{name}: verdict", told["verdict"], comparison.verdict


def _of_interval(name: str, told: Mapping[str, Any], found: Interval) -> Iterator[tuple[str, Any, Any]]:
    for word in ("mean", "half", "n"):
        value = getattr(found, word)
        yield f"{name} {word}", told[word], None if math.isnan(value) else value
