"""The results as a Markdown page."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.contest import Setting, readable
from benchmarks.suite import Outcome, Row

LIMITS = {
    "after embedding": "What is left is to copy the features of an episode's images together and to multiply them with "
    "those of its support, `index_select` and `bmm` in the profile. Both move bytes, and were no faster with other "
    "block sizes, huge pages or a sampled product; a Gram matrix of the pool costs more than it saves here.",
    "training step": "Convolutions and their backward take nearly all of a step, on both sides (see the profile).",
    "ridge head": "The products with the queries' features, `mm` in the profile, are the same on both sides; the rest "
    "is calls on tensors of a few numbers, whose cost is that of the call.",
    "handful, episode by episode": "This is our own route with each episode embedded alone, which is fast itself: "
    "compare it with plain PyTorch in the table of all contestants.",
    "sampling": "To write the pixels as floats takes most of the time, `copy_` and `div_` in the profile; the peer "
    "holds them as floats, at four times the memory, and only copies them.",
    "LR-D2 one-vs-all": "The products with features, `mm` in the profile, do not depend on the number of steps, and "
    "weigh the more the faster the steps are.",
}
"""Why a figure may not be reached, by what its row is about."""


@dataclass
class Results:
    """Everything that a run measured."""

    setting: Setting
    versions: dict[str, str]
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    profiles: dict[str, list[tuple[str, float]]] = field(default_factory=dict)
    growth: list[tuple[str, str, float, float]] = field(default_factory=list)
    start: dict[str, float] = field(default_factory=dict)
    minutes: dict[str, float] = field(default_factory=dict)
    """What each part took."""

    @property
    def rows(self) -> list[Row]:
        """The rows of all comparisons."""
        return [row for outcome in self.outcomes.values() for row in outcome.rows]


def page(results: Results) -> str:
    """The whole page."""
    parts = [_opening(results), _targets(results.rows), _start(results.start), _missed(results.rows)]
    parts += [_profiles(results.profiles), _growth(results.growth), _memory(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def targets_table(rows: Iterable[Row]) -> str:
    """Every row with its target."""
    cells = [
        [
            row.work, row.ours, row.against, f"{row.value}",
            f"{'at most' if row.at_most else 'at least'} {row.target:g}{row.unit}", "yes" if row.met else "**no**",
        ]
        for row in rows
    ]  # fmt: skip
    return _table(["work", "handful", "against", "ratio (lowest to highest round)", "target", "met"], cells)


def _opening(results: Results) -> str:
    setting = results.setting
    named = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    clock = "wall clock" if setting.clock == "wall" else "the processor's clock"
    notes = [note for outcome in results.outcomes.values() for note in outcome.notes]
    return "\n".join(
        [
            "# Speed, side by side",
            "",
            "Written by `make bench`. Contestants run in turn, each in a process of its own; a ratio is taken within "
            "each round, and its median over the rounds is given with the lowest and the highest. Times are medians.",
            "",
            f"- {_processor()}, {os.cpu_count()} cores, {_memory_size()}; {platform.system()} {platform.release()}.",
            f"- Threads pinned to {setting.threads}; {clock}; {sum(results.minutes.values()):.1f} minutes in all.",
            f"- Python {platform.python_version()}, {named}.",
            "- easyfsl, qpth and scikit-learn are run as they are. The authors' structure, plain PyTorch and one "
            "problem at a time by `linalg.inv` are rewritten here in a few lines from the paper's formulas, because "
            "the authors' code calls functions that PyTorch has removed. MAML is handful's own.",
            "- Who is too slow for 10,000 episodes runs 30 to 200 of them, and its time is extrapolated.",
            *(f"- {note}" for note in notes),
        ]
    )


def _targets(rows: Sequence[Row]) -> str:
    return f"## Figures and targets\n\n{targets_table(rows)}"


def _start(times: dict[str, float]) -> str:
    if not times:
        return ""
    beyond = times["import torch and all of handful"] - times["import torch"]
    helped = times["handful --help"]
    cells = [[name, readable(seconds), "", ""] for name, seconds in times.items() if name != "handful --help"]
    cells.append(["all of handful beyond torch", readable(beyond), "at most 2 s", _yes(beyond <= 2)])
    cells.append(["handful --help", readable(helped), "at most 1 s", _yes(helped <= 1)])
    return f"## Start\n\n{_table(['what', 'time', 'target', 'met'], cells)}"


def _missed(rows: Sequence[Row]) -> str:
    missed = [row for row in rows if not row.met]
    if not missed:
        return "## What is not reached\n\nEvery target is reached."
    by_limit: dict[str, list[Row]] = {}
    for row in missed:
        by_limit.setdefault(_limit(row), []).append(row)
    groups = ["\n".join([why, "", *map(_miss, found)]) for why, found in by_limit.items()]
    return "## What is not reached, and what the limit is\n\n" + "\n\n".join(groups)


def _miss(row: Row) -> str:
    return f"- {row.work}: {row.value.median:.3g} instead of {row.target:g}{row.unit}, {row.ours} against {row.against}"


def _limit(row: Row) -> str:
    said = f"{row.work} {row.against}"
    return next((why for key, why in LIMITS.items() if key in said), "See the profile below.")


def _profiles(profiles: dict[str, list[tuple[str, float]]]) -> str:
    if not profiles:
        return ""
    cells = [
        [title, ", ".join(f"`{name}` {100 * share:.0f}%" for name, share in found)] for title, found in profiles.items()
    ]
    return f"## Where the time goes\n\n{_table(['work', 'share of each operator'], cells)}"


def _growth(rows: list[tuple[str, str, float, float]]) -> str:
    if not rows:
        return ""
    cells = [[axis, route, f"{time:.2f}", f"{memory:.2f}"] for axis, route, time, memory in rows]
    table = _table(["quantity", "route", "exponent of time", "exponent of memory"], cells)
    return (
        "## Growth\n\nAn evaluation after embedding, R2-D2, 8 queries a class, one quantity at a time; the exponent is "
        "read off the last three points. Memory is what the evaluation adds to the libraries, features included.\n\n"
        f"![Time and memory against each quantity](growth.svg)\n\n{table}"
    )


def _memory(results: Results) -> str:
    times = [each for outcome in results.outcomes.values() for each in outcome.times]
    cells = [[each.name, readable(each.median), each.spread(), f"{each.peak_mb:,.0f} MB"] for each in times]
    table = _table(["contestant", "median", "lowest to highest", "peak memory of its process"], cells)
    return f"## All contestants\n\n{table}"


def _table(head: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _yes(met: bool) -> str:
    return "yes" if met else "**no**"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_size() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB of memory"
