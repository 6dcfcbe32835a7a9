"""The record of a run: data, recipe, seed, versions, episodes, time and machine, updated during training."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

from handful import __version__
from handful._io import from_json, read_json, write_atomically
from handful.data.table import Benchmark
from handful.errors import CheckpointError, DataError, DivergedError
from handful.meta.config import Completion, Plan, Recipe, completion, recipe_from_json, whole_plan
from handful.meta.run import RECIPE, Run

MANIFEST = "manifest.json"
UNNAMED = "none"
"""The name in the manifest of a run whose recipe is no named one."""
MOST_PLANNED = 10_000_000
"""More episodes than any recipe plans; a damaged manifest may say anything."""
CHUNK = 500
"""Images hashed at once."""


@dataclass(frozen=True)
class Session:
    """One uninterrupted stretch of training."""

    begun: str
    seconds: float | None
    """None if the time was not recorded."""
    first: int
    last: int
    versions: dict[str, str]
    machine: dict[str, str | int]


@dataclass(frozen=True)
class Manifest:
    """Everything needed to repeat a run, and how it went."""

    name: str
    recipe: Recipe
    planned: int
    """Episodes that the named recipe plans for, before any cut."""
    data: str
    content: str
    sessions: tuple[Session, ...] = ()
    finished: bool = False
    failure: str = ""
    changes: str = ""
    """How the run differs from its named recipe."""
    altered: bool = False
    """Whether these differences change what is trained: another network or another learning rate schedule."""

    @property
    def episodes(self) -> int:
        """Episodes trained so far."""
        return self.sessions[-1].last if self.sessions else 0

    @property
    def seconds(self) -> float:
        """Training time so far, over all sessions that recorded it."""
        return sum(session.seconds or 0.0 for session in self.sessions)

    @property
    def untimed(self) -> int:
        """Episodes without a recorded time."""
        return sum(session.last - session.first for session in self.sessions if session.seconds is None)

    @property
    def completion(self) -> Completion:
        """Whether the run is complete by the plan of the whole recipe, not by a shortened one."""
        return whole_completion(self.recipe.plan, self.planned, self.episodes, self.finished, self.failure)

    @property
    def shortfall(self) -> str:
        """How the run falls short of its recipe; empty if it does not."""
        part = "" if self.completion.complete else self.completion.why
        return "; ".join(words for words in (self.changes, part) if words)

    def as_json(self) -> dict[str, Any]:
        """The manifest as plain values, including derived ones."""
        derived = {
            "episodes": self.episodes,
            "seconds": round(self.seconds, 1),
            "complete": self.completion.complete,
            "completion": str(self.completion),
            "shortfall": self.shortfall,
        }
        return {**asdict(self), "recipe": self.recipe.as_json(), "seed": self.recipe.seed, **derived}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """The versions of Python and the packages in use."""
    return {
        "handful": __version__,
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


def machine() -> dict[str, str | int]:
    """A description of this machine: processor, cores, processes and threads of each, system."""
    group = torch.distributed
    shared = group.is_available() and group.is_initialized()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "processes": group.get_world_size() if shared else 1,
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into a run's folder."""
    write_atomically(folder / MANIFEST, json.dumps(manifest.as_json(), indent=1).encode())


def whole_completion(plan: Plan, planned: int, episodes: int, finished: bool, failure: str = "") -> Completion:
    """How far a run has got, measured by the `planned` episodes of its recipe if its own plan is shorter."""
    impatient = finished and episodes < plan.episodes
    if plan.schedule == "cosine" and plan.episodes < planned and finished and not impatient:
        return Completion(False, f"{episodes:,} of {planned:,} episodes, with a cosine schedule of that length")
    return completion(whole_plan(plan, planned), episodes, impatient, failure)


def recorded_failure(folder: Path) -> str:
    """Why a run failed according to its manifest; empty if it did not, or if it has no manifest."""
    try:
        return str(read_json(folder / MANIFEST)["failure"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


class Record:
    """Keeps the manifest of a run up to date during training; create it before training, after `Run.resume`."""

    def __init__(self, base: Manifest, run: Run) -> None:
        self.base, self.run = base, run
        self.sessions = read_sessions(run.folder, base.content) or _unrecorded(run)
        self.first, self.begun, self.clock = run.state.episode, now(), time.perf_counter()
        self.failure = ""

    @property
    def manifest(self) -> Manifest:
        """The current manifest."""
        last, seconds = self.run.state.episode, time.perf_counter() - self.clock
        here = Session(self.begun, round(seconds, 2), self.first, last, versions(), machine())
        sessions = (*self.sessions, here) if last > self.first else self.sessions
        return replace(self.base, sessions=sessions, finished=self.run.state.finished, failure=self.failure)

    def write(self) -> Manifest:
        """Write and return the current manifest."""
        manifest = self.manifest
        write_manifest(self.run.folder, manifest)
        return manifest

    def fail(self, error: DivergedError) -> None:
        """Write the manifest with the reason why training failed."""
        self.failure = str(error).partition(". ")[0]
        self.write()


def record_by_hand(run: Run, name: str) -> Record:
    """The record of a run started with `handful train`, under its recipe's name, or else as it was recorded before."""
    benchmark, planned = run.benchmark, run.recipe.plan.episodes
    base = Manifest(name or UNNAMED, run.recipe, planned, benchmark.name, content_hash(benchmark))
    return Record(base if name else _as_known(base, run.folder), run)


def _as_known(base: Manifest, folder: Path) -> Manifest:
    """The manifest with the name, plan and changes of the folder's, unless the run has become longer since."""
    try:
        facts = read_json(folder / MANIFEST)
        planned = from_json(int, facts["planned"], "planned")
        if recipe_from_json(facts["recipe"]) != base.recipe or planned > MOST_PLANNED:
            return base
        changes, altered = str(facts.get("changes", "")), bool(facts.get("altered"))
        return replace(base, name=str(facts["name"]), planned=planned, changes=changes, altered=altered)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, CheckpointError):
        return base


def content_hash(benchmark: Benchmark) -> str:
    """SHA-256 of everything in a benchmark that a run can see: the classes and pixels of its three splits."""
    hasher = hashlib.sha256()
    for dataset in (benchmark.train, benchmark.val, benchmark.test):
        hasher.update(repr((dataset.name, dataset.classes, dataset.counts.tolist(), dataset.image_shape)).encode())
        for start in range(0, len(dataset.rows), CHUNK):
            pixels = dataset.gather(dataset.rows[start : start + CHUNK]).movedim(-3, -1).contiguous()
            hasher.update(pixels.numpy().data)
    return hasher.hexdigest()


def _unrecorded(run: Run) -> tuple[Session, ...]:
    """A session for training without a manifest: its recipe and episodes are known, its time is not."""
    if not run.state.episode:
        return ()
    facts = read_json(run.folder / RECIPE)
    known = {name: str(facts[name]) for name in ("handful", "torch") if name in facts}
    return (Session("unknown", None, 0, run.state.episode, known, {"processor": "unknown", "threads": 0}),)


def read_sessions(folder: Path, content: str) -> tuple[Session, ...]:
    """The sessions of a run so far, none without a manifest; raises if it was trained on data other than `content`."""
    path = folder / MANIFEST
    if not path.exists():
        return ()
    try:
        facts = read_json(path)
        known, sessions = str(facts["content"]), from_json(tuple[Session, ...], facts["sessions"], "sessions")
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}. If you remove it, only the record of times is lost."
        ) from error
    if known != content:
        raise DataError(
            f"The run in {folder} was trained on other images or another split (data hash {known[:12]}, now "
            f"{content[:12]}). Give another --out, or remove the run."
        )
    return sessions  # type: ignore[no-any-return]
