"""Our contestants, and the peers that are rewritten here in a few lines; each function returns what is timed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import solvers
from benchmarks.material import SIZES, cifar_fs, features, network, plain_convolutions, random_split, unit_images
from handful import evaluate, keep_freed_memory
from handful.data import Compose, Crop, Flip, Jitter
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.learners import LRD2, MAML, R2D2, BaseLearner, ProtoNet
from handful.meta.config import Plan
from handful.meta.features import folded
from handful.meta.model import FewShotModel
from handful.meta.train import train
from handful.solvers import ridge_predictions

Run = Callable[[], Any]
AUGMENT = Compose((Crop(), Flip(), Jitter()))
LEARNERS: dict[str, Callable[[], BaseLearner]] = {
    "r2d2": R2D2,
    "lrd2": lambda: LRD2(steps=5),
    "lrd2-1": lambda: LRD2(steps=1),
    "protonet": ProtoNet,
}


def evaluation(width: str, learner: str, episodes: int, route: str = "auto") -> Run:
    """A whole evaluation of 5-way 1-shot episodes with 15 queries, embedding included."""
    keep_freed_memory()
    dataset, kind = cifar_fs("test")
    model = FewShotModel(network(width), LEARNERS[learner]())

    def run() -> dict[str, str]:
        result = evaluate(model, EpisodeSampler(dataset, FixedShots(5, 1, 15)), episodes, route=route)  # type: ignore[arg-type]
        return {"data": kind, "route": result.route}

    return run


def plain_evaluation(width: str, episodes: int) -> Run:
    """Embed and solve each episode alone, as one writes it at first: contiguous images, batch norm as it is, eq. 5."""
    dataset, _ = cifar_fs("test")
    images, embedding = unit_images(dataset), plain_convolutions(network(width))
    sampler = EpisodeSampler(dataset, FixedShots(5, 1, 15), 0)
    first, targets = int(dataset.rows[0]), torch.eye(5)
    answer = torch.arange(5).repeat_interleave(15)

    def run() -> float:
        right = 0.0
        for index in range(episodes):
            with torch.no_grad():
                X = embedding(images[sampler.rows(index, 1).rows[0] - first])
                support, query = X[:5], X[5:]
                A = torch.linalg.solve(support @ support.mT + 50 * torch.eye(5), targets)
                right += float((((query @ (support.mT @ A)).argmax(-1)) == answer).float().mean())
        return right / episodes

    return run


def after_embedding(width: str, learner: str, episodes: int) -> Run:
    """The part of an evaluation that comes after embedding."""
    keep_freed_memory()
    dataset, pool = random_split(20, 600, 8), features(SIZES[width])
    model = FewShotModel(nn.Identity(), LEARNERS[learner]())

    def run() -> str:
        return evaluate(model, EpisodeSampler(dataset, FixedShots(5, 1, 15)), episodes, pool=pool).route

    return run


def scikit(width: str, learner: str, episodes: int) -> Run:
    """scikit-learn's classifier fitted to each episode's features."""
    from sklearn.linear_model import LogisticRegression, RidgeClassifier

    dataset, pool = random_split(20, 600, 8), features(SIZES[width]).numpy()
    sampler = EpisodeSampler(dataset, FixedShots(5, 1, 15), 0)
    support, query = np.arange(5), np.arange(5).repeat(15)

    def run() -> float:
        right = 0.0
        for index in range(episodes):
            rows = sampler.rows(index, 1).rows[0].numpy()
            classifier = RidgeClassifier(alpha=50.0) if learner == "r2d2" else LogisticRegression(C=1 / 50)
            classifier.fit(pool[rows[:5]], support)
            right += float((classifier.predict(pool[rows[5:]]) == query).mean())
        return right / episodes

    return run


def table_4(width: str, learner: str, episodes: int) -> Run:
    """Episodes of 10 images of miniImageNet's size, one at a time: the support is learnt, the queries are answered."""
    keep_freed_memory()
    dataset = random_split(20, 60, 84)
    embedding: nn.Module = network(width)
    if learner == "maml":
        size = int(embedding(torch.zeros(1, 3, 84, 84)).shape[1])
        built: BaseLearner = MAML(nn.Sequential(embedding, nn.Linear(size, 5)), way=5)
        embedding = nn.Identity()
    else:
        built = LEARNERS[learner]()
    model = FewShotModel(embedding, built).eval()
    sampler = EpisodeSampler(dataset, FixedShots(5, 1, 1), 0)
    count = itertools.count()

    def run() -> None:
        with torch.no_grad():
            for _ in range(episodes):
                model(sampler[next(count)])

    return run


def training_step(width: str) -> Run:
    """A step of `train` on a CIFAR-FS recipe: 20 ways, S = 240, all augmentations, sampling included."""
    keep_freed_memory()
    model = FewShotModel(network(width), R2D2())
    steps = train(model, _training_episodes(), Plan(episodes=10**6, validate_every=0))
    return lambda: next(steps).loss


def bare_step(width: str, size: int = 32, images: int = 240, channels: int = 3, plain: bool = False) -> Run:
    """The embedding's forward, backward and Adam step alone, on images that are there already, a sum as loss."""
    keep_freed_memory()
    untrained = network(width, channels)
    embedding = (plain_convolutions(untrained) if plain else untrained).train()
    batch = torch.rand(images, channels, size, size).contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(embedding.parameters(), lr=1e-4, fused=True)

    def run() -> None:
        optimiser.zero_grad()
        embedding(batch).sum().backward()
        optimiser.step()

    return run


def folded_pass(width: str, size: int = 32, images: int = 100, plain: bool = False) -> Run:
    """One batch through the embedding as it is used at test: batch norm folded, no gradient."""
    keep_freed_memory()
    embedding = folded(plain_convolutions(network(width)) if plain else network(width))
    batch = torch.rand(images, 3, size, size).contiguous(memory_format=torch.channels_last)

    def run() -> None:
        with torch.no_grad():
            embedding(batch)

    return run


def authors_step(width: str) -> Run:
    """The authors' structure rewritten: contiguous images, W through an inverse, plain Adam, the default allocator."""
    embedding = plain_convolutions(network(width)).train()
    alpha, beta = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(0.0))
    optimiser = torch.optim.Adam([*embedding.parameters(), alpha, beta], lr=5e-3)
    episodes = [_contiguous(_training_episodes(), index) for index in range(8)]
    turn = itertools.cycle(episodes)

    def run() -> float:
        images, support, query = next(turn)
        n = len(support)
        found = embedding(images)
        X = torch.cat([found[:n], torch.ones(n, 1)], 1) / math.sqrt(n)
        W = X.mT @ torch.inverse(X @ X.mT + 50 * torch.eye(n)) @ (support / math.sqrt(n))
        logits = alpha * (torch.cat([found[n:], torch.ones(len(query), 1)], 1) @ W) + beta
        loss = nn.functional.cross_entropy(logits, query.argmax(1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return run


def sampling(augment: bool, episodes: int, batch: int = 8) -> Run:
    """Training episodes with augmentation, one at a time; or 5-way 5-shot episodes with 15 queries, some at a time."""
    keep_freed_memory()
    if augment:
        sampler, size = _training_episodes(), 1
    else:
        sampler, size = EpisodeSampler(cifar_fs("train")[0], FixedShots(5, 5, 15), 0), batch
    starts = itertools.count(0, size)

    def run() -> None:
        for _ in range(episodes // size):
            sampler.batch(next(starts), size)

    return run


def ridge_forward_backward(e: int, shot: int, repeats: int) -> Run:
    """Query logits of one episode of ridge regression and their gradients."""
    keep_freed_memory()
    episode = solvers.make_episodes((), 5, shot, 15, e)
    head = solvers.backward(episode, lambda: ridge_predictions(episode.X, episode.Y, episode.lam, episode.Q))

    def run() -> None:
        for _ in range(repeats):
            head()

    return run


def logistic_forward_backward(steps: int, repeats: int) -> Run:
    """Query logits of one episode of one-vs-all LR-D2, 5-way 5-shot, e = 8064, and their gradients."""
    keep_freed_memory()
    episode = solvers.make_episodes((), 5, 5, 15, 8064)
    head = solvers.logistic_run(episode, steps)

    def run() -> None:
        for _ in range(repeats):
            head()

    return run


def duel(name: str, options: dict[str, Any]) -> Run:
    """One of the comparisons of benchmarks/solvers.py, which interleaves its contestants by itself."""
    return lambda: getattr(solvers, name)(**options)


def _training_episodes() -> EpisodeSampler:
    return EpisodeSampler(cifar_fs("train")[0], RandomShots(20, 12), 0, transform=AUGMENT)


def _contiguous(sampler: EpisodeSampler, index: int) -> tuple[Tensor, Tensor, Tensor]:
    episode = sampler[index]
    images = torch.cat([episode.support.inputs, episode.query.inputs]).contiguous()
    return images, episode.support.targets, episode.query.targets
