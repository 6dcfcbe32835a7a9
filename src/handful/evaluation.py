"""Few-shot accuracy over thousands of episodes: each image is embedded once, episodes are solved in batches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from handful.data.table import ClassDataset
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import InvalidOptionError
from handful.learners import KernelLearner
from handful.metrics import accuracy, ci95
from handful.model import FewShotModel
from handful.pool import embed_pool

Route = Literal["auto", "episodes", "features", "gram"]

CHUNK_BYTES = 32 * 2**20
"""Gathered numbers worked on at once: a batch of episodes that stays near the processor's cache."""
GATHER_SECONDS_PER_BYTE = 1 / 3e9
MULTIPLY_SECONDS_PER_OPERATION = 1 / 100e9
DEFAULT_MEMORY = 4 * 10**9


@dataclass(frozen=True)
class Evaluation:
    """The accuracy of a model over episodes of one kind, with everything needed to repeat it."""

    mean: float
    ci95: float
    accuracies: Tensor = field(repr=False)
    episodes: int
    way: int
    shot: int
    query: int
    seed: int
    inductive: bool
    limits: str
    split: str
    route: str
    """How it was computed, and why."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.way}-way {self.shot}-shot: {100 * self.mean:.2f}% ± {100 * self.ci95:.2f} "
            f"({self.episodes:,} episodes of '{self.split}', {self.query} queries a class, {self.limits})"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values for a JSON file, per-episode accuracies included."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**values, "accuracies": [round(value, 6) for value in self.accuracies.tolist()]}


def evaluate(
    model: FewShotModel,
    dataset: ClassDataset,
    way: int = 5,
    shot: int = 1,
    query: int = 15,
    episodes: int = 10_000,
    seed: int = 0,
    *,
    within_group: bool = False,
    route: Route = "auto",
    memory: int = DEFAULT_MEMORY,
    pool: Tensor | None = None,
) -> Evaluation:
    """Mean accuracy over `episodes` episodes of `dataset`, in evaluation mode.

    All routes give the same predictions. 'episodes' embeds and solves each episode alone; 'features' embeds each image
    once and gathers features; 'gram' takes all inner products once and gathers blocks of them, for learners that need
    nothing else. 'auto' picks the cheapest that fits into `memory` bytes. Hand in `pool`, from
    `handful.pool.embed_pool`, to evaluate several kinds of episodes without embedding anything twice.
    """
    if episodes < 1:
        raise InvalidOptionError(f"An evaluation needs at least one episode, but got {episodes}.")
    begun = time.perf_counter()
    sampler = EpisodeSampler(dataset, FixedShots(way, shot, query), seed, within_group=within_group)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            values, taken = _accuracies(model, sampler, episodes, route, memory, pool)
    finally:
        model.train(training)
    return Evaluation(
        mean=float(values.mean()),
        ci95=ci95(values),
        accuracies=values,
        episodes=episodes,
        way=way,
        shot=shot,
        query=query,
        seed=seed,
        inductive=not model.learner.limits.transductive,
        limits=model.learner.limits.describe(),
        split=dataset.name,
        route=taken,
        seconds=time.perf_counter() - begun,
    )


def _accuracies(
    model: FewShotModel, sampler: EpisodeSampler, episodes: int, route: Route, memory: int, pool: Tensor | None
) -> tuple[Tensor, str]:
    if route == "episodes":
        return _by_episode(model, sampler, episodes), "each episode embedded and solved alone, as asked"
    if pool is None:
        pool = embed_pool(model.embedding, sampler.dataset)
    route, reason = _choose(model, sampler, episodes, route, memory, pool)
    if route == "gram" and model.learner.kernel is not None:
        return _from_gram(model.learner.kernel, sampler, episodes, pool), reason
    return _from_features(model, sampler, episodes, pool), reason


def _choose(
    model: FewShotModel, sampler: EpisodeSampler, episodes: int, route: Route, memory: int, pool: Tensor
) -> tuple[Route, str]:
    """The cheaper of gathered features and gathered Gram blocks, by a count of bytes moved and operations done."""
    images, size = len(pool), pool[0].numel()
    kernel = model.learner.kernel is not None
    if route == "gram" and not kernel:
        raise InvalidOptionError(
            f"{type(model.learner).__name__} needs more than inner products; use route 'features'."
        )
    if route != "auto":
        return route, f"{route}, as asked"
    shape = sampler.shape
    per_episode = shape.way * shape.images_per_class
    moved = episodes * per_episode * size * pool.element_size()
    by_features = moved * GATHER_SECONDS_PER_BYTE
    by_gram = 2 * images * images * size * MULTIPLY_SECONDS_PER_OPERATION
    gram_bytes = images * images * pool.element_size()
    if not kernel:
        return "features", "features gathered: the learner needs more than inner products"
    if gram_bytes + pool.numel() * pool.element_size() > memory:
        return "features", f"features gathered: the Gram matrix would take {gram_bytes / 1e9:.1f} GB"
    word = f"about {by_features:.1f} s against {by_gram:.1f} s for all inner products of {images:,} images"
    return ("gram", f"Gram blocks: {word}") if by_gram < by_features else ("features", f"features gathered: {word}")


def _by_episode(model: FewShotModel, sampler: EpisodeSampler, episodes: int) -> Tensor:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    values = torch.empty(episodes, dtype=torch.float64)
    for index in range(episodes):
        episode = sampler[index].to(device)
        values[index] = accuracy(model(episode), episode.query.targets)
    return values


def _from_features(model: FewShotModel, sampler: EpisodeSampler, episodes: int, pool: Tensor) -> Tensor:
    position = _positions(sampler.dataset)
    shape = sampler.shape
    per_episode = shape.way * shape.images_per_class * pool[0].numel() * pool.element_size()
    chunk = max(1, CHUNK_BYTES // per_episode)
    values = torch.empty(episodes, dtype=torch.float64)
    for start in range(0, episodes, chunk):
        rows = sampler.rows(start, min(chunk, episodes - start))
        wanted = position[rows.rows]  # (b, n + q)
        features = pool.index_select(0, wanted.flatten().to(pool.device)).reshape(*wanted.shape, *pool.shape[1:])
        support, query = (each.to(pool).expand(len(wanted), -1, -1) for each in rows.targets())
        predict = model.learner.fit(features[:, : rows.n_support], support)
        values[start : start + chunk] = accuracy(predict(features[:, rows.n_support :]), query).cpu()
    return values


def _from_gram(learner: KernelLearner, sampler: EpisodeSampler, episodes: int, pool: Tensor) -> Tensor:
    pool = learner.feature_map(pool)
    gram = pool @ pool.mT
    norms = gram.diagonal().contiguous()
    position, shape = _positions(sampler.dataset).to(pool.device), sampler.shape
    n = shape.way * sampler.shot(0)
    chunk = max(1, CHUNK_BYTES // (shape.way * shape.images_per_class * n * gram.element_size()))
    values = torch.empty(episodes, dtype=torch.float64)
    for start in range(0, episodes, chunk):
        rows = sampler.rows(start, min(chunk, episodes - start))
        wanted = position[rows.rows.to(pool.device)]  # (b, n + q)
        block = gram.take(wanted[:, :, None] * len(pool) + wanted[:, None, :n])  # (b, n + q, n)
        support, query = (each.to(pool).expand(len(wanted), -1, -1) for each in rows.targets())
        predict = learner.fit_gram(block[:, :n], support)
        values[start : start + chunk] = accuracy(predict(block[:, n:], norms[wanted[:, n:]]), query).cpu()
    return values


def _positions(dataset: ClassDataset) -> Tensor:
    """For each row of the image table, its place in the split's pool."""
    place = torch.full((len(dataset.table.images),), -1)
    place[dataset.rows] = torch.arange(len(dataset.rows))
    return place
