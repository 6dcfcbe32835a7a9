"""What to look at: examples that seem mislabelled, classes that are confused, the examples behind a prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from handful.classifier.answers import Confusion, Doubtful, Neighbour, plain
from handful.classifier.estimate import confusions, doubtful
from handful.classifier.examples import State
from handful.classifier.inputs import Matrix
from handful.classifier.selection import probabilities

MOST_CANDIDATES = 3000
"""From a larger pool, only this many of the most doubtful images are compared, because the covariance of all
pairs has to fit in memory."""


@dataclass(frozen=True)
class Explanation:
    """What `FewShotClassifier.explain` found."""

    suspects: tuple[Doubtful, ...]
    """Labels that are probably wrong, most probable first."""
    confusions: tuple[Confusion, ...]
    """Most frequent first."""
    neighbours: tuple[tuple[Neighbour, ...], ...]
    """For each query, the nearest examples, nearest first."""

    def __str__(self) -> str:
        lines = [
            f"{each.name or f'example {each.index}'} is labelled {each.label}, but looks like {each.looks_like} "
            f"(the label is wrong with a probability of {100 * each.probability:.0f}%)"
            for each in self.suspects
        ]
        lines += [
            f"{each.label} is taken for {each.taken_for} in {each.count} of its images ({100 * each.share:.0f}%)"
            for each in self.confusions
        ]
        return "\n".join(lines) or "No example looks mislabelled, and no classes are confused."


def explain(state: State, queries: Matrix | None, k: int) -> Explanation:
    """At most k suspects and confusions, and the k nearest examples of each query."""
    near = () if queries is None else tuple(nearest(state, query, k) for query in queries)
    return Explanation(doubtful(state)[:k], tuple(confusions(state)[:k]), near)


def nearest(state: State, query: Matrix, k: int) -> tuple[Neighbour, ...]:
    """The k examples that are most similar to a query."""
    examples = state.features - state.features.mean(0)
    centred = query - state.origin - state.features.mean(0)
    lengths = np.linalg.norm(examples, axis=1) * np.linalg.norm(centred)
    similarities = examples @ centred / np.where(lengths > 0, lengths, 1)
    return tuple(
        Neighbour(int(i), state.sources[i].name, plain(state.classes[state.codes[i]]), float(similarities[i]))
        for i in np.argsort(-similarities, kind="stable")[:k]
    )


def suggest(state: State, pool: Matrix, k: int) -> list[int]:
    """The k queries of a pool whose labels would teach most, best first.

    A label reduces the predictive variance of every query by its squared covariance over its own variance, exactly and
    whatever the label is. Chosen, one after the other, is what takes most variance from the queries in doubt, so that
    no two choices say the same.
    """
    doubt = 1 - probabilities(state.scores(pool), state.scale).max(1)
    looked_at = np.argsort(-doubt, kind="stable")[:MOST_CANDIDATES]
    covariance = state.factor.covariance(torch.from_numpy(pool[looked_at] - state.origin)).numpy()
    chosen: list[int] = []
    for _ in range(min(k, len(looked_at))):
        noisy = np.diagonal(covariance) + float(state.factor.lam)
        gain = doubt[looked_at] @ np.square(covariance) / noisy
        gain[chosen] = -np.inf
        best = int(gain.argmax())
        chosen.append(best)
        covariance = covariance - np.outer(covariance[:, best], covariance[:, best]) / noisy[best]
    return [int(looked_at[each]) for each in chosen]
