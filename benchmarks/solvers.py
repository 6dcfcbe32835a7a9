"""Solvers against the ways in which they are written elsewhere: forward and backward, interleaved, medians, one thread.

Each function returns a dictionary from contestant to its median time in milliseconds, the first being ours;
`python benchmarks/solvers.py` prints them all with their ratios. The peers are rewritten here from the formulas:
autograd through `torch.linalg.solve` or `torch.linalg.inv`, with the weights W formed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from handful.solvers import cross_gram, dual_weights, gram, logistic, logistic_dual, ridge, ridge_dual


@dataclass(frozen=True)
class Episodes:
    """Features of support and query and a lam, all to be differentiated, one-hot targets, a gradient of the logits."""

    X: Tensor
    Q: Tensor
    Y: Tensor
    lam: Tensor
    upstream: Tensor

    @property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        """What gradients are taken of."""
        return self.X, self.Q, self.lam


def make_episodes(batch: tuple[int, ...], way: int, shot: int, query: int, e: int, scale: float = 1.0) -> Episodes:
    """Random features whose classes differ by a shift, as an embedding under training gives them."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(way * shot) % way
    centres = torch.randn(*batch, way, e, generator=generator)
    X = scale * (centres[..., classes, :] + torch.randn(*batch, way * shot, e, generator=generator))
    Q = scale * (centres.repeat_interleave(query, -2) + torch.randn(*batch, way * query, e, generator=generator))
    Y = torch.nn.functional.one_hot(classes, way).float().expand(*batch, -1, -1)
    upstream = torch.randn(*batch, way * query, way, generator=generator)
    return Episodes(X.requires_grad_(), Q.requires_grad_(), Y, torch.tensor(50.0, requires_grad=True), upstream)


def interleaved(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each contestant in milliseconds, all run in turn so that a busy machine is shared fairly."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with one_thread():
        for number in range(rounds + 1):
            turn = number % len(contestants)  # so that nobody always follows the one that empties the caches
            for name in (*[*contestants][turn:], *[*contestants][:turn]):
                start = time.perf_counter()
                contestants[name]()
                if number:  # the first round warms up
                    times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(each) for name, each in times.items()}


@contextmanager
def one_thread() -> Iterator[None]:
    """Pin torch to one thread, and give it back what it had."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def ridge_weights(batch: int = 16, e: int = 8064, rounds: int = 15) -> dict[str, float]:
    """W of 5-way 5-shot ridge regression, forward and backward, against autograd through torch.linalg.solve."""
    episodes = make_episodes((batch,), 5, 5, 1, e)
    G = torch.randn(batch, 5, e, generator=torch.Generator().manual_seed(1)).mT
    X, lam = episodes.X, episodes.lam
    return interleaved(
        {
            "handful ridge": lambda: torch.autograd.grad(ridge(X, episodes.Y, lam), (X, lam), G),
            "autograd through linalg.solve": lambda: torch.autograd.grad(solved(episodes), (X, lam), G),
        },
        rounds,
    )


def ridge_head(batch: int = 16, e: int = 8064, query: int = 15, rounds: int = 15) -> dict[str, float]:
    """Query logits of 5-way 5-shot ridge regression, forward and backward, against the same peer."""
    episodes = make_episodes((batch,), 5, 5, query, e)
    X, Q, Y, lam = episodes.X, episodes.Q, episodes.Y, episodes.lam
    return interleaved(
        {
            "handful ridge": backward(episodes, lambda: cross_gram(Q, ridge(X, Y, lam).mT)),
            "handful ridge_dual": backward(episodes, lambda: cross_gram(Q, X) @ ridge_dual(gram(X), Y, lam)),
            "autograd through linalg.solve": backward(episodes, lambda: Q @ solved(episodes)),
        },
        rounds,
    )


def logistic_head(steps: int, e: int = 8064, query: int = 15, rounds: int = 15) -> dict[str, float]:
    """Query logits of one-vs-all 5-way 5-shot LR-D2, forward and backward, against one problem at a time."""
    episodes = make_episodes((), 5, 5, query, e)
    X, Q, Y, lam = episodes.X, episodes.Q, episodes.Y, episodes.lam
    return interleaved(
        {
            "handful logistic": logistic_run(episodes, steps),
            "handful logistic, last step": backward(
                episodes, lambda: cross_gram(Q, logistic(X, Y, lam, steps, gradient="last_step").mT)
            ),
            "handful logistic_dual": backward(
                episodes, lambda: cross_gram(Q, X) @ logistic_dual(gram(X), Y, lam, steps)
            ),
            "one problem at a time by linalg.inv": backward(episodes, lambda: Q @ inverted(episodes, steps)),
        },
        rounds,
    )


def logistic_run(episodes: Episodes, steps: int) -> Callable[[], object]:
    """Our one-vs-all head through the weights, forward and backward."""
    X, Q, Y, lam = episodes.X, episodes.Q, episodes.Y, episodes.lam
    return backward(episodes, lambda: cross_gram(Q, logistic(X, Y, lam, steps).mT))


def saturation(steps: int = 10, e: int = 512, rounds: int = 31) -> dict[str, float]:
    """The backward of LR-D2 where all logits saturate, against the same where none does: a ratio of 1 is perfect."""
    contestants: dict[str, Callable[[], object]] = {}
    for name, scale in (("saturated", 100.0), ("not saturated", 0.01)):
        X = make_episodes((), 5, 5, 15, e, scale).X
        Y = torch.nn.functional.one_hot(torch.arange(25) % 5, 5)
        W = dual_weights(X, logistic_dual(gram(X), Y, 1.0, steps))
        G = 1e-20 * torch.randn(e, 5, generator=torch.Generator().manual_seed(1))
        contestants[name] = partial(torch.autograd.grad, W, X, G, retain_graph=True)
    return interleaved(contestants, rounds)


def backward(episodes: Episodes, logits: Callable[[], Tensor]) -> Callable[[], object]:
    """A run of the logits' forward and backward."""
    return lambda: torch.autograd.grad(logits(), episodes.leaves, episodes.upstream)


def solved(episodes: Episodes) -> Tensor:
    """Eq. 5 as one writes it at first."""
    X = episodes.X
    A: Tensor = torch.linalg.solve(X @ X.mT + episodes.lam * torch.eye(X.shape[-2]), episodes.Y)
    return X.mT @ A


def inverted(episodes: Episodes, steps: int) -> Tensor:
    """Eq. 7 in its Woodbury form as one writes it at first: class by class, step by step, with the weights formed."""
    X, columns = episodes.X, []
    for y in episodes.Y.unbind(-1):
        w = torch.zeros(X.shape[-1], 1)
        for _ in range(steps):
            eta = X @ w
            mu = torch.sigmoid(eta)
            s = (mu * (1 - mu)).clamp_min(1e-10)
            z = eta + (y[:, None] - mu) / s
            w = X.mT @ torch.linalg.inv(X @ X.mT + episodes.lam * torch.diag(1 / s[:, 0])) @ z
        columns.append(w)
    return torch.cat(columns, -1)


def main() -> None:
    """Print every comparison with its ratios."""
    runs = {
        "ridge weights, 16 episodes, e = 8064": ridge_weights(),
        "ridge head, 16 episodes, e = 8064": ridge_head(),
        "LR-D2 head, 5 steps, e = 8064": logistic_head(5),
        "LR-D2 head, 10 steps, e = 8064": logistic_head(10),
        "LR-D2 backward, saturated or not": saturation(),
    }
    for title, medians in runs.items():
        print(title)
        ours = next(iter(medians.values()))
        for name, median in medians.items():
            print(f"    {name:40} {median:9.2f} ms   {median / ours:6.2f}x")


if __name__ == "__main__":
    main()
