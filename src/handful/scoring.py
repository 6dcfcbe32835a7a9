"""Accuracies of thousands of episodes from features: the fast routes of an evaluation."""

from __future__ import annotations

import torch
from torch import Tensor

from handful.data.table import ClassDataset
from handful.episodes import EpisodeRows, EpisodeSampler
from handful.errors import InvalidOptionError, NotFiniteError
from handful.learners import BaseLearner, KernelLearner
from handful.metrics import accuracy
from handful.model import FewShotModel, check_logits
from handful.pool import embed_pool, embed_rows, folded
from handful.products import Gathered, Products, Tiles, WholeGram
from handful.routes import Route, Work, cheapest, tile_cut

CHUNK_BYTES = 32 * 2**20
"""Features gathered at once for a learner that needs more than inner products."""
SOLVE_BYTES = 32 * 2**20
"""Numbers solved at once."""
MOST_EPISODES = 4096
"""Episodes solved at once: more bring nothing."""


def from_pool(
    model: FewShotModel, sampler: EpisodeSampler, episodes: int, pool: Tensor | None, route: Route, memory: int
) -> tuple[Tensor, str]:
    """Accuracies from features of the whole split, embedded here unless given; and the route taken, with the reason."""
    kernel = model.learner.kernel
    if kernel is None and route in ("gram", "tiles"):
        raise InvalidOptionError(
            f"{type(model.learner).__name__} needs more than inner products; use route 'features'."
        )
    pool = embed_pool(model.embedding, sampler.dataset) if pool is None else pool
    position = _positions(sampler.dataset).to(pool.device)
    if kernel is None:
        reason = "features gathered for each episode: the learner needs more than inner products"
        return _by_features(model.learner, sampler, episodes, pool, position), reason
    pool = kernel.feature_map(pool)
    work = _work(sampler, episodes, pool, memory)
    route, reason = cheapest(work) if route == "auto" else (route, f"{route}, as asked")
    return _by_products(kernel, sampler, episodes, _products(route, pool, work), position), reason


def from_chunks(model: FewShotModel, sampler: EpisodeSampler, episodes: int, memory: int) -> Tensor:
    """Accuracies when the features of the whole split do not fit: each chunk of episodes embeds its own images."""
    network, dataset, kernel = folded(model.embedding), sampler.dataset, model.learner.kernel
    one = embed_rows(network, dataset, dataset.rows[:1])
    per_episode = sampler.shape.way * sampler.shape.images_per_class * one.numel() * one.element_size()
    values = torch.empty(episodes, dtype=torch.float64)
    # half of the memory for features, half for what the network and the learner need
    for start, count in _chunks(episodes, max(1, memory // 2 // per_episode)):
        rows = sampler.rows(start, count)
        distinct, places = rows.rows.unique(return_inverse=True)
        pool = embed_rows(network, dataset, distinct)
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
    learner: BaseLearner, sampler: EpisodeSampler, episodes: int, pool: Tensor, position: Tensor
) -> Tensor:
    values = torch.empty(episodes, dtype=torch.float64)
    for start, count in _chunks(episodes, _gathered_at_once(sampler.rows(0, 1), pool)):
        rows = sampler.rows(start, count)
        values[start : start + count] = _fit(learner, rows, pool, position[rows.rows.to(pool.device)]).cpu()
    return values


def _by_products(
    learner: KernelLearner, sampler: EpisodeSampler, episodes: int, products: Products, position: Tensor
) -> Tensor:
    norms = _norms(products.pool)
    values = torch.empty(episodes, dtype=torch.float64)
    at_once = _solved_at_once(sampler.rows(0, 1))
    for start, count in _chunks(episodes, products.at_once or at_once):
        rows = sampler.rows(start, count)
        places = position[rows.rows.to(position.device)]
        values[start : start + count] = _solve(learner, rows, products, norms, places, at_once).cpu()
    return values


def _fit(learner: BaseLearner, rows: EpisodeRows, pool: Tensor, places: Tensor) -> Tensor:
    """Accuracies (b,) of a learner that wants features; `places` (b, n + q) are those of the episodes in the pool."""
    features = pool.index_select(0, places.flatten()).reshape(*places.shape, *pool.shape[1:])
    support, query = (each.to(pool) for each in rows.targets())
    predict = learner.fit(features[:, : rows.n_support], support.expand(len(places), -1, -1))
    return accuracy(check_logits(predict(features[:, rows.n_support :])), query)


def _solve(
    learner: KernelLearner, rows: EpisodeRows, products: Products, norms: Tensor, places: Tensor, at_once: int = 0
) -> Tensor:
    """Accuracies (b,) of a learner that wants inner products."""
    n = rows.n_support
    support, query = (each.to(norms) for each in rows.targets())
    blocks = products.of(places, n)  # (b, n + q, n)
    done = []
    for block, place in zip(blocks.split(at_once or len(blocks)), places.split(at_once or len(blocks)), strict=True):
        predict = learner.fit_gram(block[:, :n], support.expand(len(block), -1, -1))
        done.append(accuracy(predict(block[:, n:], norms[place[:, n:]]), query))
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
    """Squared lengths of the pool's vectors; a vector with NaN or infinity is refused."""
    norms = torch.einsum("ne,ne->n", pool, pool)
    bad = int((~torch.isfinite(norms)).sum())
    if bad:
        raise NotFiniteError(
            f"The features of {bad} of {len(pool)} images contain NaN or infinity, or are too large to be squared. "
            f"Look at the images and at the embedding network."
        )
    return norms


def _gathered_at_once(rows: EpisodeRows, pool: Tensor) -> int:
    return max(1, CHUNK_BYTES // (rows.rows.shape[1] * pool[0].numel() * pool.element_size()))


def _solved_at_once(rows: EpisodeRows) -> int:
    """Episodes whose inner products, and as many systems as there are classes, stay near the processor's cache."""
    n, m = rows.n_support, rows.rows.shape[1]
    return max(1, min(MOST_EPISODES, SOLVE_BYTES // (4 * m * n + 8 * rows.way * n * n)))


def _chunks(episodes: int, size: int) -> list[tuple[int, int]]:
    """First numbers and lengths of consecutive chunks."""
    return [(start, min(size, episodes - start)) for start in range(0, episodes, size)]


def _positions(dataset: ClassDataset) -> Tensor:
    """For each row of the image table, its place in the split's pool."""
    place = torch.full((len(dataset.table.images),), -1)
    place[dataset.rows] = torch.arange(len(dataset.rows))
    return place
