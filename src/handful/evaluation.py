"""Few-shot accuracy over thousands of episodes: each image is embedded once, episodes are solved in batches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from handful.data.table import ClassDataset
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import InvalidOptionError
from handful.metrics import accuracy, ci95
from handful.model import FewShotModel
from handful.pool import pool_bytes
from handful.routes import Route
from handful.scoring import from_chunks, from_pool

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

    All routes give the same predictions:

    - 'episodes' embeds and solves each episode alone;
    - 'features' embeds each image once and gathers features;
    - 'gram', for learners that need inner products only, takes all of them once and gathers blocks of them;
    - 'tiles' does so tile by tile, where the whole matrix does not fit into memory;
    - 'chunks' embeds the images of as many episodes as fit into memory, then those of the next.

    'auto' picks the cheapest of those that fit into `memory` bytes. Hand in `pool`, from `handful.pool.embed_pool`, to
    evaluate several kinds of episodes without embedding anything twice.
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
    if pool is None and route in ("auto", "chunks"):
        needed = pool_bytes(model.embedding, sampler.dataset)
        if route == "chunks" or needed > memory:
            why = "as asked" if route == "chunks" else f"those of all images would take {needed / 1e9:.1f} GB"
            return from_chunks(model, sampler, episodes, memory), f"features embedded anew for each chunk, {why}"
    return from_pool(model, sampler, episodes, pool, route, memory)


def _by_episode(model: FewShotModel, sampler: EpisodeSampler, episodes: int) -> Tensor:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    values = torch.empty(episodes, dtype=torch.float64)
    for index in range(episodes):
        episode = sampler[index].to(device)
        values[index] = accuracy(model(episode), episode.query.targets)
    return values
