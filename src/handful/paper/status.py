"""How far all runs below a folder are: episodes, best validation scores, pace, and when they should be complete."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handful.errors import CheckpointError, DataError
from handful.meta.completeness import Completion, complete_at, completion
from handful.meta.config import Recipe
from handful.meta.lock import holder, is_held
from handful.meta.manifest import MANIFEST
from handful.meta.run import LOG, RECIPE, read_recipe
from handful.paper.forecast import time_told


@dataclass(frozen=True)
class Status:
    """One run as its files show it; reading them disturbs no training."""

    folder: Path
    name: str
    recipe: Recipe
    planned: int
    episodes: int
    best: dict[str, float]
    pace: float | None
    """Seconds per episode in the last session, validations included."""
    failure: str
    finished: bool
    holder: str
    """The process that trains it now; empty if none does."""

    @property
    def completion(self) -> Completion:
        """Whether it is complete, and why."""
        plan = self.recipe.plan
        patience = self.finished and self.episodes < plan.episodes
        return completion(plan, self.episodes, patience, self.failure)

    @property
    def left(self) -> float | None:
        """Expected seconds until it is complete, if patience does not end it sooner; None if the pace is not known."""
        to_go = max(0, complete_at(self.recipe.plan) - self.episodes)
        return None if self.pace is None else to_go * self.pace

    def __str__(self) -> str:
        scores = ", ".join(f"{name} {100 * value:.2f}%" for name, value in self.best.items())
        state = "FAILED" if self.failure else str(self.completion)
        pace = f", {self.pace:.2f} s per episode" if self.pace is not None else ""
        ends = ""
        if not self.completion.complete and not self.failure and self.left is not None:
            ends = f", complete in {time_told(self.left)} or sooner"
        who = f"running ({self.holder})" if self.holder else "not running"
        best = f"; best validation: {scores}" if scores else ""
        return f"{self.name}, seed {self.recipe.seed}: {state}{pace}{ends}; {who}{best}"


def runs_below(out: Path) -> list[Status]:
    """The state of every run in a folder and the folders below it."""
    if not out.is_dir():
        raise DataError(f"There is no folder {out}. Say with --out where the runs are.")
    return [found for path in sorted(out.rglob(RECIPE)) if (found := status_of(path.parent)) is not None]


def status_of(folder: Path) -> Status | None:
    """The state of one run; None for a folder whose recipe this version cannot read."""
    try:
        recipe = read_recipe(folder)
    except CheckpointError:
        return None
    manifest, log = _json(folder / MANIFEST), _log_lines(folder / LOG)
    session = (manifest.get("sessions") or [{}])[-1]
    trained = session.get("last", 0) - session.get("first", 0)
    pace = session["seconds"] / trained if trained and session.get("seconds") else None
    best: dict[str, float] = {}
    for line in log:
        for name, value in line.get("validation", {}).items():
            best[name] = max(value, best.get(name, 0.0))
    return Status(
        folder,
        str(manifest.get("name", folder.name)),
        recipe,
        int(manifest.get("planned", recipe.plan.episodes)),
        max([int(line["episode"]) for line in log[-1:]] + [int(session.get("last", 0))]),
        best,
        pace,
        str(manifest.get("failure", "")),
        bool(manifest.get("finished", False)),
        holder(folder) if is_held(folder) else "",
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _log_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a training log; the last may be half written."""
    lines: list[dict[str, Any]] = []
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
