"""Meta-training: minimise the expected query loss of episodes (eq. 2) by gradients, for any learner."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from handful.episodes import Episode, EpisodeSampler
from handful.episodes.random import random_words
from handful.errors import DivergedError, NotFiniteError, NotPositiveDefiniteError
from handful.meta.config import Plan
from handful.meta.engine import CPU, Engine
from handful.meta.intervals import accuracy
from handful.meta.model import FewShotModel
from handful.meta.state import Scores, TrainingState


@dataclass(frozen=True)
class Progress:
    """What one update brought: training figures, and validation scores where it was time for them."""

    episode: int
    """Episodes trained so far."""
    loss: float
    accuracy: float
    rate: float
    scores: Scores | None
    improved: tuple[str, ...]
    """The validation scores that are now the best so far, 'mean' among them."""
    seconds: float
    """Time spent in this call of train, resumed time not included."""


def train(
    model: FewShotModel,
    episodes: EpisodeSampler,
    plan: Plan | None = None,
    *,
    validate: Callable[[FewShotModel], Scores] | None = None,
    state: TrainingState | None = None,
    engine: Engine = CPU,
) -> Iterator[Progress]:
    """Train `model` on `episodes`, yielding after every update.

    Pass a `state` that was restored to go on with an interrupted run: episodes are numbered and dropout is seeded by
    them, so the run continues to the same bits, and the caller's random state is left alone. A loss that is not finite
    raises `DivergedError` before it reaches the weights.
    """
    state = state or TrainingState(model, plan or Plan())
    plan = state.plan
    begun = time.perf_counter()
    while not state.finished:
        rate = plan.rate_at(state.episode)
        loss, right = _update(state, episodes, rate, engine)
        state.advance()
        last = state.episode >= plan.episodes
        due = plan.validate_every and (last or state.episode % plan.validate_every == 0)
        scores = validate(state.judge(episodes, engine)) if validate is not None and due else None
        improved = state.note(scores) if scores else ()
        yield Progress(state.episode, loss, right, rate, scores, improved, time.perf_counter() - begun)


def _update(state: TrainingState, episodes: EpisodeSampler, rate: float, engine: Engine) -> tuple[float, float]:
    """One optimiser step on the next episodes; their mean loss and accuracy."""
    model, plan = state.model, state.plan
    model.train()
    episode = model.learner.pose(episodes.batch(state.episode, plan.episodes_per_step)).to(engine.device)
    with seeded(episodes.seed, state.episode):  # dropout, a pure function of the seed and the episode
        logits, second = _answers(state, episode, rate)
    loss = model.learner.objective(logits, smoothed(episode.query.targets, plan.label_smoothing)) + second
    value = float(loss.detach())
    if not math.isfinite(value):
        raise DivergedError(_diverged(f"The loss became {value}", state, rate))
    state.optimiser.zero_grad(set_to_none=True)
    loss.backward()
    if plan.clip:
        torch.nn.utils.clip_grad_norm_(list(state.parameters.values()), plan.clip)
    if plan.clip_value:
        torch.nn.utils.clip_grad_value_(list(state.parameters.values()), plan.clip_value)
    for group in state.optimiser.param_groups:
        group["lr"] = rate
    state.optimiser.step()
    return value, float(accuracy(logits.detach(), episode.query.targets).mean())


def _answers(state: TrainingState, episode: Episode, rate: float) -> tuple[Tensor, Tensor | float]:
    """The query logits, and the plan's second loss times its weight: 0 without one."""
    model, weight = state.model, state.plan.classify
    try:
        support, query = model.embedded(episode)
        logits = model.learner.fit(support, episode.support.targets)(query)
    except (NotFiniteError, NotPositiveDefiniteError) as error:
        raise DivergedError(_diverged(str(error).split(". ")[0], state, rate)) from error
    if state.classifier is None or not weight:
        return logits, 0.0
    within = torch.cat([episode.support.targets, episode.query.targets], dim=-2).argmax(-1)
    classes = episode.classes.gather(-1, within).flatten()
    features = torch.cat([support, query], dim=within.ndim - 1).flatten(0, within.ndim - 1).flatten(1)
    return logits, weight * nn.functional.cross_entropy(state.classifier(features), classes)


def _diverged(what: str, state: TrainingState, rate: float) -> str:
    return (
        f"{what} at episode {state.episode} with learning rate {rate:g}. The last checkpoint is kept. "
        f"Lower the learning rate, set a gradient clip, or raise lam."
    )


def smoothed(targets: Tensor, share: float) -> Tensor:
    """One-hot targets (..., way) with this share spread evenly over all classes (Szegedy et al. 2016)."""
    return torch.lerp(targets, torch.full_like(targets, 1 / targets.shape[-1]), share) if share else targets


@contextmanager
def seeded(seed: int, episode: int = 0) -> Iterator[None]:
    """Draw from torch's default generators as if they had just been seeded; their own state comes back afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(episode_seed(seed, episode))
        yield


def episode_seed(seed: int, episode: int) -> int:
    """A seed for whatever is drawn at one episode of a run: a pure function of the run's seed and the episode."""
    return int(random_words(seed, np.array([episode]), 1)[0, 0] >> np.uint64(1))
