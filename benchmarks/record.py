"""The results as a file, so that one part can be measured anew and the page keeps the others."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.contest import Ratio, Setting, Times
from benchmarks.report import Results
from benchmarks.suite import Outcome, Row


def text(results: Results) -> str:
    """All that was measured, as JSON."""
    kept = asdict(results)
    del kept["setting"]["peers"]  # a path of this machine
    return json.dumps(kept, indent=1) + "\n"


def earlier(path: Path, setting: Setting, versions: dict[str, str]) -> Results | None:
    """What stands at `path`, to be completed by this run; None where there is no file or it measured otherwise."""
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    same = all(found["setting"][key] == getattr(setting, key) for key in ("threads", "clock", "quick"))
    if not same or found["versions"] != versions:
        return None
    fresh = Results(setting, versions)
    fresh.outcomes = {name: _outcome(each) for name, each in found["outcomes"].items()}
    fresh.profiles = {title: [(name, share) for name, share in shares] for title, shares in found["profiles"].items()}
    fresh.growth = [(axis, route, time, memory) for axis, route, time, memory in found["growth"]]
    fresh.start, fresh.minutes = found["start"], found["minutes"]
    return fresh


def _outcome(found: dict[str, Any]) -> Outcome:
    rows = [Row(**{**row, "value": Ratio(tuple(row["value"]["values"]))}) for row in found["rows"]]
    times = [
        Times(each["name"], tuple(each["seconds"]), each["peak_mb"], tuple(each["all_said"])) for each in found["times"]
    ]
    return Outcome(rows, times, found["notes"])
