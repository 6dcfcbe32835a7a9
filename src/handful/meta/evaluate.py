"""Few-shot accuracy over thousands of episodes: each image is embedded once, and episodes are solved in batches."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any, get_args

import torch
from torch import Tensor

from handful.data.table import ClassDataset
from handful.episodes import EpisodeSampler, FixedShots
from handful.episodes.sampler import EpisodeRows
from handful.errors import InvalidOptionError, NotFiniteError
from handful.learners import BaseLearner, KernelLearner
from handful.meta.engine import CPU, Engine
from handful.meta.features import embed_pool, embed_rows, folded, pool_bytes
from handful.meta.gram import Gathered, Products, Route, Tiles, WholeGram, Work, cheapest, tile_cut
from handful.meta.intervals import accuracy, ci95
from handful.meta.model import FewShotModel, check_logits

DEFAULT_MEMORY = 4 * 10**9
CHUNK_BYTES = 32 * 2**20
"""Bytes of features gathered at once for a learner that needs more than inner products."""
SOLVE_BYTES = 32 * 2**20
"""Bytes of systems solved at once."""
MOST_EPISODES = 4096
"""Episodes solved at once; more are not faster."""


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
            f"({self.episodes:,} episodes of '{self.split}', {self.query} queries per class, {self.limits})"
        )

    def as_json(self) -> dict[str, Any]:
        """The evaluation as plain values for a JSON file, including the accuracy of each episode."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        values["ci95"] = self.ci95 if math.isfinite(self.ci95) else None  # that of a single episode
        return {**values, "accuracies": [round(value, 6) for value in self.accuracies.tolist()]}


def evaluate(
    model: FewShotModel,
    episodes: EpisodeSampler,
    count: int = 10_000,
    *,
    engine: Engine = CPU,
    route: Route = "auto",
    memory: int = DEFAULT_MEMORY,
    pool: Tensor | None = None,
) -> Evaluation:
    """Mean accuracy over the first `count` episodes, all of one shape, in evaluation mode.

    All routes give the same predictions; a sampler that changes its images needs 'episodes':

    - 'episodes' embeds and solves each episode separately;
    - 'features' embeds each image once and gathers features;
    - 'gram', for learners that only need inner products, computes the Gram matrix once and gathers blocks of it;
    - 'tiles' does so tile by tile, if the whole matrix does not fit into memory;
    - 'chunks' embeds the images of as many episodes as fit into memory, then those of the next.

    'auto' chooses the cheapest route that fits into `memory` bytes. Pass `pool`, from `embed_pool`, to evaluate
    several kinds of episodes without embedding anything twice. The model must be on the engine's device.
    """
    shape, begun = episodes.shape, time.perf_counter()
    if count < 1:
        raise InvalidOptionError(f"An evaluation needs at least one episode, but got {count}.")
    if route not in get_args(Route) or (route == "chunks" and pool is not None):
        raise InvalidOptionError(
            f"route must be one of {', '.join(get_args(Route))}, and chunks takes no pool, but got route '{route}'."
        )
    if not isinstance(shape, FixedShots):
        raise InvalidOptionError(f"An evaluation needs episodes of one shape, such as FixedShots, but got {shape}.")
    if episodes.changes and route != "episodes":
        raise InvalidOptionError(
            "These episodes change their images, which route 'episodes' alone takes into account. "
            "Evaluate with route='episodes', or on a sampler without transform, turned and mixed."
        )
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            values, taken = _accuracies(model, episodes, count, engine, route, memory, pool)
    finally:
        model.train(training)
    return Evaluation(
        mean=float(values.mean()),
        ci95=ci95(values),
        accuracies=values,
        episodes=count,
        way=shape.way,
        shot=shape.shot,
        query=shape.query,
        seed=episodes.seed,
        inductive=not model.learner.limits.transductive,
        limits=model.learner.limits.describe(),
        split=episodes.dataset.name,
        route=taken,
        seconds=time.perf_counter() - begun,
    )


def _accuracies(
    model: FewShotModel,
    sampler: EpisodeSampler,
    episodes: int,
    engine: Engine,
    route: Route,
    memory: int,
    pool: Tensor | None,
) -> tuple[Tensor, str]:
    if route == "episodes":
        return _by_episode(model, sampler, episodes, engine), "each episode embedded and solved alone, as asked"
    if pool is None and route in ("auto", "chunks"):
        needed = pool_bytes(model.embedding, sampler.dataset, engine)
        if route == "chunks" or needed > memory:
            why = "as asked" if route == "chunks" else f"those of all images would take {needed / 1e9:.1f} GB"
            return from_chunks(model, sampler, episodes, engine, memory), f"features embedded for each chunk, {why}"
    return from_pool(model, sampler, episodes, engine, pool, route, memory)


def _by_episode(model: FewShotModel, sampler: EpisodeSampler, episodes: int, engine: Engine) -> Tensor:
    values = torch.zeros(episodes, dtype=torch.float64)
    for index in range(engine.rank, episodes, engine.world):
        episode = sampler[index].to(engine.device)
        values[index] = accuracy(check_logits(model(episode)), episode.query.targets)
    return _of_all(values, engine)


def from_pool(
    model: FewShotModel,
    sampler: EpisodeSampler,
    episodes: int,
    engine: Engine,
    pool: Tensor | None,
    route: Route,
    memory: int,
) -> tuple[Tensor, str]:
    """Accuracies from features of the whole split, embedded here unless given, and a description of the route."""
    kernel = model.learner.kernel
    if kernel is None and route in ("gram", "tiles"):
        raise InvalidOptionError(
            f"{type(model.learner).__name__} needs more than inner products; use route 'features'."
        )
    pool = embed_pool(model.embedding, sampler.dataset, engine) if pool is None else pool
    position = _positions(sampler.dataset).to(pool.device)
    if kernel is None:
        reason = "features gathered for each episode: the learner needs more than inner products"
        return _by_features(model.learner, sampler, episodes, engine, pool, position), reason
    pool = kernel.feature_map(pool)
    work = _work(sampler, episodes, pool, memory)
    route, reason = cheapest(work) if route == "auto" else (route, f"{route}, as asked")
    return _by_products(kernel, sampler, episodes, engine, _products(route, pool, work), position), reason


def from_chunks(model: FewShotModel, sampler: EpisodeSampler, episodes: int, engine: Engine, memory: int) -> Tensor:
    """Accuracies if the features of the whole split do not fit into memory: each chunk embeds its own images."""
    network, dataset, kernel = folded(model.embedding), sampler.dataset, model.learner.kernel
    one = embed_rows(network, dataset, dataset.rows[:1], engine)
    per_episode = sampler.shape.way * sampler.shape.images_per_class * one.numel() * one.element_size()
    values = torch.empty(episodes, dtype=torch.float64)
    # half of the memory is for features, half for the network and the learner
    for start, count in _chunks(episodes, max(1, memory // 2 // per_episode)):
        rows = sampler.rows(start, count)
        distinct, places = rows.rows.unique(return_inverse=True)
        pool = embed_rows(network, dataset, distinct, engine)
        places = places.to(pool.device)
        if kernel is None:
            parts = [_fit(model.learner, rows, pool, part) for part in places.split(_gathered_at_once(rows, pool))]
        else:
            pool = kernel.feature_map(pool)
            products, norms = Gathered(pool), _norms(pool)
            parts = [_solve(kernel, rows, products, norms, part) for part in places.split(_solved_at_once(rows))]
        values[start : start + count] = torch.cat(parts).cpu()
    return values


def _by_features(
    learner: BaseLearner, sampler: EpisodeSampler, episodes: int, engine: Engine, pool: Tensor, position: Tensor
) -> Tensor:
    values = torch.zeros(episodes, dtype=torch.float64)
    chunks = _chunks(episodes, _gathered_at_once(sampler.rows(0, 1), pool))
    for start, count in chunks[engine.rank :: engine.world]:
        rows = sampler.rows(start, count)
        values[start : start + count] = _fit(learner, rows, pool, position[rows.rows.to(pool.device)]).cpu()
    return _of_all(values, engine)


def _of_all(values: Tensor, engine: Engine) -> Tensor:
    """Accuracies of all episodes, summed over processes; each has 0 for the episodes that it did not solve."""
    return engine.total(values.to(engine.device)).cpu() if engine.world > 1 else values


def _by_products(
    learner: KernelLearner, sampler: EpisodeSampler, episodes: int, engine: Engine, products: Products, position: Tensor
) -> Tensor:
    norms = _norms(products.pool)
    values = torch.zeros(episodes, dtype=torch.float64)
    at_once = _solved_at_once(sampler.rows(0, 1))
    for start, count in _chunks(episodes, products.at_once or at_once)[engine.rank :: engine.world]:
        rows = sampler.rows(start, count)
        places = position[rows.rows.to(position.device)]
        values[start : start + count] = _solve(learner, rows, products, norms, places, at_once).cpu()
    return _of_all(values, engine)


def _fit(learner: BaseLearner, rows: EpisodeRows, pool: Tensor, places: Tensor) -> Tensor:
    """Accuracies (b,) of a learner that needs features; `places` (b, n + q) are the episodes' images in the pool."""
    features = pool.index_select(0, places.flatten()).reshape(*places.shape, *pool.shape[1:])
    support, query = (each.to(pool) for each in rows.targets())
    predict = learner.fit(features[:, : rows.n_support], support.expand(len(places), -1, -1))
    return accuracy(check_logits(predict(features[:, rows.n_support :])), query)


def _solve(
    learner: KernelLearner, rows: EpisodeRows, products: Products, norms: Tensor, places: Tensor, at_once: int = 0
) -> Tensor:
    """Accuracies (b,) of a learner that only needs inner products."""
    n = rows.n_support
    support, query = (each.to(norms) for each in rows.targets())
    blocks = products.of(places, n)  # (b, n + q, n)
    done = []
    for block, place in zip(blocks.split(at_once or len(blocks)), places.split(at_once or len(blocks)), strict=True):
        predict = learner.fit_gram(block[:, :n], support.expand(len(block), -1, -1))
        done.append(accuracy(check_logits(predict(block[:, n:], norms[place[:, n:]])), query))
    return torch.cat(done)


def _products(route: Route, pool: Tensor, work: Work) -> Products:
    if route == "gram":
        return WholeGram(pool)
    if route == "features":
        return Gathered(pool)
    cut = tile_cut(work)
    if cut is None:
        raise InvalidOptionError(
            f"The features alone take {work.pool_bytes / 1e9:.2f} of {work.memory / 1e9:.2f} GB, which leaves no room "
            f"for a tile of the Gram matrix. Allow more memory, or use route 'features'."
        )
    return Tiles(pool, cut)


def _work(sampler: EpisodeSampler, episodes: int, pool: Tensor, memory: int) -> Work:
    one = sampler.rows(0, 1)
    return Work(len(pool), pool.shape[1], episodes, one.n_support, one.rows.shape[1], memory, pool.element_size())


def _norms(pool: Tensor) -> Tensor:
    """Squared norms of the pool's vectors; raises for NaN or infinity."""
    norms = torch.einsum("ne,ne->n", pool, pool)
    bad = int((~torch.isfinite(norms)).sum())
    if bad:
        raise NotFiniteError(
            f"The features of {bad} of {len(pool)} images contain NaN or infinity, or are too large to be squared. "
            f"Check the images and the embedding network."
        )
    return norms


def _gathered_at_once(rows: EpisodeRows, pool: Tensor) -> int:
    return max(1, CHUNK_BYTES // (rows.rows.shape[1] * pool[0].numel() * pool.element_size()))


def _solved_at_once(rows: EpisodeRows) -> int:
    """The number of episodes whose inner products, and one system per class, roughly fit into the CPU cache."""
    n, m = rows.n_support, rows.rows.shape[1]
    return max(1, min(MOST_EPISODES, SOLVE_BYTES // (4 * m * n + 8 * rows.way * n * n)))


def _chunks(episodes: int, size: int) -> list[tuple[int, int]]:
    """The start and length of each of the consecutive chunks."""
    return [(start, min(size, episodes - start)) for start in range(0, episodes, size)]


def _positions(dataset: ClassDataset) -> Tensor:
    """The position in the split's pool for each row of the image table."""
    place = torch.full((len(dataset.table.images),), -1)
    place[dataset.rows] = torch.arange(len(dataset.rows))
    return place
