"""The test of a trained run: the accuracy of every episode, kept beside the run until something changes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from handful._io import write_atomically
from handful.episodes import EpisodeSampler, FixedShots
from handful.episodes.sampler import EpisodeRows
from handful.meta.engine import Engine
from handful.meta.evaluate import DEFAULT_MEMORY, evaluate
from handful.meta.features import embed_pool_within
from handful.meta.run import LAST, TrainedModel, read_run
from handful.paper.episode_set import EpisodeSet, accuracies_of
from handful.paper.guard import check_model

Checkpoint = Literal["shot", "mean", "last"]


@dataclass(frozen=True)
class Measurement:
    """What one checkpoint scores on one set of episodes."""

    correct: Tensor
    """Correct answers in each of the shared test episodes."""
    queries: int
    """Queries of each of them."""
    correct_apart: Tensor
    """Correct answers in each episode that has no image in common with another."""
    queries_apart: int
    episodes_trained: int
    limits: str
    checkpoint: str

    @property
    def accuracies(self) -> Tensor:
        """Of the shared test episodes."""
        return self.correct.double() / self.queries

    @property
    def apart(self) -> Tensor:
        """Of episodes that have no image in common."""
        return self.correct_apart.double() / self.queries_apart


def checkpoint_of(folder: Path, way: int, shot: int, which: Checkpoint) -> Path | None:
    """The checkpoint to test: 'shot' is the best for these ways and shots, as the authors do; None if untrained."""
    names = {
        "shot": [f"best-{way}-way-{shot}-shot", f"best-{shot}-shot", "best-mean"],
        "mean": ["best-mean"],
        "last": [],
    }[which]
    paths = [folder / f"{name}.safetensors" for name in names] + [folder / LAST]
    return next((path for path in paths if path.exists()), None)


def measure(
    folder: Path, episodes: EpisodeSet, which: Checkpoint, engine: Engine, first: int = 0
) -> Measurement | None:
    """Test a run on these episodes, or read the record of a test of the same checkpoint on the same episodes.

    `first`, if not 0, takes only so many of them, for a learner that is slow to adapt.
    """
    path = checkpoint_of(folder, episodes.way, episodes.shot, which)
    if path is None:
        return None
    count = min(first or episodes.episodes, episodes.episodes)
    key = {"checkpoint": hashlib.sha256(path.read_bytes()).hexdigest(), "episodes": episodes.digest}
    key |= {"first": str(count)} if count < episodes.episodes else {}
    record = folder / f"test-{episodes.way}way-{episodes.shot}shot-{which}.json"
    known = _read(record, key)
    if known is not None:
        return known
    trained = read_run(path)
    measured = _measure(trained, episodes, path.stem, engine, count)
    facts = {
        "key": key,
        "queries": measured.queries,
        "queries_apart": measured.queries_apart,
        "seed": episodes.seed,
        "episodes_trained": measured.episodes_trained,
        "limits": measured.limits,
        "checkpoint": measured.checkpoint,
        "correct": measured.correct.tolist(),
        "correct_apart": measured.correct_apart.tolist(),
    }
    write_atomically(record, json.dumps(facts).encode())
    return measured


def _measure(trained: TrainedModel, episodes: EpisodeSet, name: str, engine: Engine, count: int) -> Measurement:
    model, dataset = trained.model.to(engine.device), episodes.dataset
    sampler = EpisodeSampler(dataset, FixedShots(episodes.way, episodes.shot, episodes.query), episodes.seed)
    check_model(model, sampler[0].to(engine.device))
    pool = embed_pool_within(model.embedding, dataset, DEFAULT_MEMORY)
    done = evaluate(model, sampler, count, engine=engine, pool=pool)
    few = episodes.apart
    apart = accuracies_of(model, dataset, EpisodeRows(few.shot, few.classes[:count], few.rows[:count]), pool)
    queries, queries_apart = episodes.way * episodes.query, episodes.way * few.query
    correct, correct_apart = _counts(done.accuracies, queries), _counts(apart, queries_apart)
    return Measurement(correct, queries, correct_apart, queries_apart, trained.episodes, done.limits, name)


def _counts(accuracies: Tensor, queries: int) -> Tensor:
    """Correct answers of each episode: whole numbers, so that what is read back is what was measured."""
    return (accuracies.double() * queries).round().long()


def _read(record: Path, key: dict[str, str]) -> Measurement | None:
    try:
        facts = json.loads(record.read_text())
        if facts["key"] != key:
            return None
        return Measurement(
            torch.tensor(facts["correct"], dtype=torch.int64),
            int(facts["queries"]),
            torch.tensor(facts["correct_apart"], dtype=torch.int64),
            int(facts["queries_apart"]),
            int(facts["episodes_trained"]),
            str(facts["limits"]),
            str(facts["checkpoint"]),
        )
    except (OSError, json.JSONDecodeError, KeyError, TypeError):
        return None
