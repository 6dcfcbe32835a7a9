"""The test episodes that all methods share: counted, hashed, checked for overlap, and a set without common images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from handful.data.table import ClassDataset
from handful.episodes import EpisodeSampler, FixedShots
from handful.episodes.sampler import EpisodeRows
from handful.errors import LeakError, NotEnoughImagesError
from handful.meta.features import embed_rows, folded
from handful.meta.intervals import accuracy
from handful.meta.model import FewShotModel

CHUNK = 500
OPEN_QUERY = 15
"""Queries a class of the episodes without common images; fewer queries make more episodes."""


@dataclass(frozen=True)
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
    """As many episodes as the split gives without using an image twice."""


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


def check_overlap(rows: EpisodeRows, start: int = 0) -> None:
    """Refuse episodes in which an image is both support and query, or stands twice."""
    ordered = rows.rows.sort(-1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]).any(-1)
    if bool(twice.any()):
        number = int(twice.nonzero()[0])
        raise LeakError(
            f"Test episode {start + number} uses an image twice, so that a query may stand in the support set too "
            f"({int(twice.sum())} of {len(twice)} episodes do). Draw episodes without replacement."
        )


def episodes_apart(dataset: ClassDataset, way: int, shot: int, query: int, seed: int) -> EpisodeRows:
    """As many episodes as there can be with no image in two of them.

    Every class is cut at random into blocks of K + Q images; each episode takes a block from the classes that have most
    left, which uses up as many blocks as possible.
    """
    size = shot + query
    random = np.random.default_rng(seed)
    left = dataset.counts.numpy() // size
    if (left > 0).sum() < way:
        raise NotEnoughImagesError(
            f"Not even one {way}-way episode with {size} images a class can be drawn from '{dataset.name}'. "
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


def accuracies_of(model: FewShotModel, dataset: ClassDataset, rows: EpisodeRows, pool: Tensor | None) -> Tensor:
    """The accuracy of each of these episodes, from the features of the split's images (see `embed_pool`).

    Without a pool, where that would not fit into memory, every episode is embedded alone.
    """
    place = torch.full((len(dataset.table.images),), -1)
    place[dataset.rows] = torch.arange(len(dataset.rows))
    network, device = folded(model.embedding), next((p.device for p in model.parameters()), torch.device("cpu"))
    support, query = rows.targets()
    values = torch.empty(len(rows.rows), dtype=torch.float64)
    training = model.training
    model.eval()
    with torch.no_grad():
        for number, episode in enumerate(rows.rows):
            known = None if pool is None else pool[place[episode].to(pool.device)]
            features = (embed_rows(network, dataset, episode) if known is None else known).to(device)
            predict = model.learner.fit(features[: rows.n_support], support.to(features))
            values[number] = accuracy(predict(features[rows.n_support :]), query.to(features))
    model.train(training)
    return values
