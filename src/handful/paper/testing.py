"""Testing of trained runs: the episodes that all methods share, a guard against leaks, and per-episode counts."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from handful._io import read_json, write_atomically
from handful.data.table import Benchmark, ClassDataset
from handful.episodes import Episode, EpisodeSampler, FixedShots, LabelledSet
from handful.episodes.sampler import EpisodeRows
from handful.errors import LeakError, NotEnoughImagesError
from handful.meta.engine import CPU, Engine
from handful.meta.evaluate import DEFAULT_MEMORY, evaluate
from handful.meta.features import embed_pool_within, embed_rows, folded
from handful.meta.intervals import accuracy
from handful.meta.model import FewShotModel, check_logits
from handful.meta.run import LAST, TrainedModel, read_run

CHUNK = 500
"""Episodes or images that are hashed at once."""
OPEN_QUERY = 15
"""Queries per class in the episodes that share no image; with fewer queries there are more episodes."""
SHARED = 0.5
"""A class with more than this share of its images in another split is the same class under another name."""
TOLERANCE = 1e-3
"""How much float32 logits may differ between batches of different size, as a share of their range."""
Checkpoint = Literal["shot", "mean", "last"]


# Test episodes


@dataclass(frozen=True, repr=False)
class EpisodeSet:
    """Test episodes of one kind; `digest` changes with any of their images or with their order."""

    dataset: ClassDataset
    way: int
    shot: int
    query: int
    episodes: int
    seed: int
    digest: str
    apart: EpisodeRows
    """As many episodes as the split allows without using an image twice."""

    def __repr__(self) -> str:
        return f"EpisodeSet({self.way}-way {self.shot}-shot, {self})"

    def __str__(self) -> str:
        kind, hashed = {"val": "validation"}.get(self.dataset.name, self.dataset.name), self.digest[:16]
        return f"{self.episodes:,} {kind} episodes with {self.query} queries per class, hash {hashed}"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "sha256": self.digest,
            "episodes": self.episodes,
            "query": self.query,
            "seed": self.seed,
            "episodes_apart": len(self.apart.rows),
            "query_apart": self.apart.query,
        }


def draw_set(
    dataset: ClassDataset, content: str, way: int, shot: int, query: int, episodes: int, seed: int
) -> EpisodeSet:
    """Draw, check and hash the episodes; `content` is the hash of the data that they are drawn from."""
    sampler = EpisodeSampler(dataset, FixedShots(way, shot, query), seed)
    hasher = hashlib.sha256(content.encode())
    for start in range(0, episodes, CHUNK):
        rows = sampler.rows(start, min(CHUNK, episodes - start))
        check_overlap(rows, start)
        hasher.update(rows.rows.numpy().tobytes())
    apart = episodes_apart(dataset, way, shot, min(query, OPEN_QUERY), seed)
    return EpisodeSet(dataset, way, shot, query, episodes, seed, hasher.hexdigest(), apart)


def episodes_apart(dataset: ClassDataset, way: int, shot: int, query: int, seed: int) -> EpisodeRows:
    """As many episodes as there can be with no image in two of them.

    Every class is divided at random into blocks of K + Q images; each episode takes a block from the classes with the
    most blocks left, which uses as many blocks as possible.
    """
    size = shot + query
    random = np.random.default_rng(seed)
    left = dataset.counts.numpy() // size
    if (left > 0).sum() < way:
        raise NotEnoughImagesError(
            f"'{dataset.name}' is too small for a single {way}-way episode with {size} images per class. "
            f"Lower the shots or the queries."
        )
    blocks = [
        int(start) + random.permutation(int(count))[: int(n) * size].reshape(int(n), size)
        for start, count, n in zip(dataset.starts, dataset.counts, left, strict=True)
    ]
    drawn: list[np.ndarray] = []
    chosen: list[np.ndarray] = []
    while (left > 0).sum() >= way:
        classes = np.lexsort((random.random(len(left)), -left))[:way]
        classes = random.permutation(classes)
        left[classes] -= 1
        picked = np.stack([blocks[c][left[c]] for c in classes])  # (way, K + Q)
        drawn.append(np.concatenate([picked[:, :shot].reshape(-1), picked[:, shot:].reshape(-1)]))
        chosen.append(classes)
    return EpisodeRows(shot, torch.from_numpy(np.stack(chosen)), torch.from_numpy(np.stack(drawn)))


# The leak guard: a leak is an error, not a footnote


def check_overlap(rows: EpisodeRows, start: int = 0) -> None:
    """Raise if an episode uses an image twice, for example as support and as query."""
    ordered = rows.rows.sort(-1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(-1)
    if bool(twice.any()):
        number = int(twice.nonzero()[0])
        raise LeakError(
            f"Test episode {start + number} uses an image twice, so a query may also be in the support set "
            f"({int(twice.sum())} of {len(twice)} episodes do). Draw episodes without replacement."
        )


def check_splits(benchmark: Benchmark) -> None:
    """Raise if a class of one split has most of its images in another split, under another name."""
    seen: dict[bytes, str] = {}
    for part, dataset in {"train": benchmark.train, "val": benchmark.val, "test": benchmark.test}.items():
        hashes = _image_hashes(dataset)
        first = 0
        for name, count in zip(dataset.classes, dataset.counts.tolist(), strict=True):
            known = [seen[digest] for digest in hashes[first : first + count] if digest in seen]
            first += count
            if len(known) > SHARED * count:
                raise LeakError(
                    f"{len(known)} of the {count} images of {part} class '{name}' of {benchmark.name} are also in "
                    f"'{known[0]}', so it is the same class under another name. Remove it from one of the splits."
                )
        seen |= dict.fromkeys(hashes, part)


def _image_hashes(dataset: ClassDataset) -> list[bytes]:
    found: list[bytes] = []
    for start in range(0, len(dataset.rows), CHUNK):
        pixels = dataset.gather(dataset.rows[start : start + CHUNK]).movedim(-3, -1).contiguous().flatten(1).numpy()
        found += [hashlib.blake2b(image.data, digest_size=16).digest() for image in pixels]
    return found


def check_model(model: FewShotModel, episode: Episode) -> None:
    """Raise if a model in evaluation mode is transductive without declaring it (`Limits.transductive`).

    There are two checks: no batch norm may take its statistics from the test batch, and the answers to some queries
    must not change when the other queries are left out.
    """
    for name, module in model.named_modules():
        leaky = isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
        if leaky and _is_used(module, model, episode):  # a learner may have layers that it uses only in training
            why = "it is in training mode" if module.training else "it keeps no running statistics"
            raise LeakError(
                f"Batch norm '{name}' takes its statistics from the test batch ({why}), so every answer depends on the "
                f"other queries. Call model.eval(), and use batch norm with running statistics."
            )
    if model.learner.limits.transductive:
        return
    whole = _answers(model, episode, slice(None))
    spread = float(whole.max() - whole.min())
    parts = (slice(0, 1), slice(0, None, 2))
    gap = max(float((whole[part] - _answers(model, episode, part)).abs().max()) for part in parts)
    if gap > TOLERANCE * spread:
        raise LeakError(
            f"Logits of {type(model.learner).__name__} change by up to {gap:.2g}, {100 * gap / spread:.2g}% of their "
            f"range, when other queries of the episode are left out, although it does not declare itself transductive. "
            f"Queries affect each other: normalise by the support set or by running statistics, or declare "
            f"Limits(transductive=True)."
        )


def _is_used(module: torch.nn.Module, model: FewShotModel, episode: Episode) -> bool:
    calls: list[bool] = []
    handle = module.register_forward_pre_hook(lambda *_: calls.append(True))
    try:
        _answers(model, episode, slice(None))
    finally:
        handle.remove()
    return bool(calls)


def _answers(model: FewShotModel, episode: Episode, part: slice) -> Tensor:
    query = LabelledSet(episode.query.inputs[part], episode.query.targets[part])
    with torch.no_grad():
        answers: Tensor = model(Episode(episode.support, query, episode.classes))
    return answers


# The test itself


@dataclass(frozen=True, repr=False)
class Counts:
    """The number of correct answers of one run in each test episode; integers are stored without rounding."""

    correct: Tensor
    """Correct answers in the test episodes that all methods share."""
    queries: int
    """Queries in each of these episodes."""
    correct_apart: Tensor
    """Correct answers in the episodes that share no image."""
    queries_apart: int

    def __repr__(self) -> str:
        mean = 100 * float(self.accuracies.mean())
        return f"Counts({mean:.2f}% of {len(self.correct):,} episodes, {len(self.correct_apart):,} apart)"

    @property
    def accuracies(self) -> Tensor:
        """Accuracies in the shared test episodes."""
        return self.correct.double() / self.queries

    @property
    def apart(self) -> Tensor:
        """Accuracies in the episodes that share no image."""
        return self.correct_apart.double() / self.queries_apart


@dataclass(frozen=True)
class Measurement:
    """The result of one checkpoint on one set of episodes."""

    counts: Counts
    episodes_trained: int
    limits: str
    checkpoint: str


def measure(
    folder: Path, episodes: EpisodeSet, which: Checkpoint, engine: Engine, first: int = 0
) -> Measurement | None:
    """Test a run on these episodes, or read the result of an earlier test of the same checkpoint on the same episodes.

    `first`, if not 0, limits the test to the first episodes, for slow learners. Returns None for an untrained run.
    """
    path = checkpoint_of(folder, episodes.way, episodes.shot, which)
    if path is None:
        return None
    count = min(first or episodes.episodes, episodes.episodes)
    key = {"checkpoint": hashlib.sha256(path.read_bytes()).hexdigest(), "episodes": episodes.digest}
    key |= {"first": str(count)} if count < episodes.episodes else {}
    record = folder / f"{episodes.dataset.name}-{episodes.way}way-{episodes.shot}shot-{which}.json"
    known = _read(record, key)
    if known is not None:
        return known
    measured = _measure(read_run(path), episodes, path.stem, engine, count)
    tensors = {name: getattr(measured.counts, name).tolist() for name in ("correct", "correct_apart")}
    facts = {**vars(measured), **vars(measured.counts), **tensors, "key": key, "seed": episodes.seed}
    del facts["counts"]
    write_atomically(record, json.dumps(facts).encode())
    return measured


def checkpoint_of(folder: Path, way: int, shot: int, which: Checkpoint) -> Path | None:
    """The checkpoint to test: 'shot' is the best for these ways and shots, as the authors do; None if untrained."""
    names = {
        "shot": [f"best-{way}-way-{shot}-shot", f"best-{shot}-shot", "best-mean"],
        "mean": ["best-mean"],
        "last": [],
    }[which]
    paths = [folder / f"{name}.safetensors" for name in names] + [folder / LAST]
    return next((path for path in paths if path.exists()), None)


def _read(record: Path, key: dict[str, str]) -> Measurement | None:
    try:
        facts = read_json(record)
        if facts["key"] != key:
            return None
        shared, apart = (torch.tensor(facts[name], dtype=torch.int64) for name in ("correct", "correct_apart"))
        counts = Counts(shared, int(facts["queries"]), apart, int(facts["queries_apart"]))
        return Measurement(counts, int(facts["episodes_trained"]), str(facts["limits"]), str(facts["checkpoint"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError):
        return None


def _measure(trained: TrainedModel, episodes: EpisodeSet, name: str, engine: Engine, count: int) -> Measurement:
    model, dataset = trained.model.to(engine.device), episodes.dataset
    sampler = EpisodeSampler(dataset, FixedShots(episodes.way, episodes.shot, episodes.query), episodes.seed)
    check_model(model, sampler[0].to(engine.device))
    pool = embed_pool_within(model.embedding, dataset, DEFAULT_MEMORY, engine)
    done = evaluate(model, sampler, count, engine=engine, pool=pool)
    few = episodes.apart
    rows = EpisodeRows(few.shot, few.classes[:count], few.rows[:count])
    apart = accuracies_of(model, dataset, rows, pool, engine)
    queries, queries_apart = episodes.way * episodes.query, episodes.way * few.query
    correct, correct_apart = (
        (accuracies.double() * n).round().long()
        for accuracies, n in ((done.accuracies, queries), (apart, queries_apart))
    )
    return Measurement(Counts(correct, queries, correct_apart, queries_apart), trained.episodes, done.limits, name)


def accuracies_of(
    model: FewShotModel, dataset: ClassDataset, rows: EpisodeRows, pool: Tensor | None, engine: Engine = CPU
) -> Tensor:
    """The accuracy of each of these episodes, from the features of the split's images (see `embed_pool`).

    Without a pool, because it would not fit into memory, every episode is embedded separately.
    """
    place = torch.full((len(dataset.table.images),), -1)
    place[dataset.rows] = torch.arange(len(dataset.rows))
    network = folded(model.embedding)
    support, query = rows.targets()
    values = torch.empty(len(rows.rows), dtype=torch.float64)
    training = model.training
    model.eval()
    with torch.no_grad():
        for number, episode in enumerate(rows.rows):
            known = None if pool is None else pool[place[episode].to(pool.device)]
            features = embed_rows(network, dataset, episode, engine) if known is None else known
            predict = model.learner.fit(features[: rows.n_support], support.to(features))
            values[number] = accuracy(check_logits(predict(features[rows.n_support :])), query.to(features))
    model.train(training)
    return values
