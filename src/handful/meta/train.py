"""Meta-training: minimise the expected query loss of episodes (eq. 2) by gradient descent, for any learner."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
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
from handful.meta.sharing import shared_images, sum_gradients
from handful.meta.state import Scores, TrainingState
from handful.meta.steps import GradientMean, RunningStatistics
from handful.solvers import unchecked


@dataclass(frozen=True)
class Progress:
    """The result of one update: training figures, and validation scores if there was a validation."""

    episode: int
    """Episodes trained so far."""
    loss: float
    """The mean since the last progress, like the accuracy; on an accelerator it covers several updates."""
    accuracy: float
    rate: float
    scores: Scores | None
    improved: tuple[str, ...]
    """The names of the validation scores that are the best so far, possibly including 'mean'."""
    seconds: float
    """Seconds since this call of train started, without time before a resume."""


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

    To continue an interrupted run, pass its restored `state`: episodes are numbered and dropout is seeded by these
    numbers, so the run continues with the same bits. The caller's random state is not changed. A loss that is not
    finite raises `DivergedError` before it reaches the weights; validation logits that are not finite raise it too.
    """
    state = state or TrainingState(model, plan or Plan())
    plan = state.plan
    begun = time.perf_counter()
    feed = _feed(state, episodes, engine)
    pending: list[Tensor] = []
    shared = engine.world > 1 and plan.parts == 1
    with shared_images(state.model.embedding, engine) if shared else nullcontext():
        while not state.finished:
            rate = plan.rate_at(state.episode)
            pending.append(_update(state, feed, episodes.seed, rate, engine))
            state.advance()
            last = state.episode >= plan.episodes
            due = plan.validate_every and (last or state.episode % plan.validate_every == 0)
            if not (due or last or len(pending) >= engine.read_every):
                continue
            loss, right = torch.stack(pending).mean(0).tolist()
            pending.clear()
            if not math.isfinite(loss):
                raise DivergedError(_diverged(f"The loss became {loss}", state, rate))
            scores = None
            if validate is not None and due:
                with diverging("Validation failed: ", state, rate):
                    scores = validate(state.judge(episodes, engine))
            improved = state.note(scores) if scores else ()
            yield Progress(state.episode, loss, right, rate, scores, improved, time.perf_counter() - begun)


@dataclass(frozen=True)
class _Part:
    """What passes through the network together: one episode, or all episodes of a step."""

    start: int
    episode: Episode


def _feed(state: TrainingState, episodes: EpisodeSampler, engine: Engine) -> Iterator[_Part]:
    """This process's parts of all future steps, on the engine's device; some are prepared ahead in a thread."""
    plan, pose = state.plan, state.model.learner.pose
    count = plan.episodes_per_step // plan.parts
    # the only pass of a step concerns all processes, which share its images
    mine = engine.share(plan.parts, "episodes per step") if plan.parts > 1 else range(1)
    first = state.episode
    starts = (step + place * count for step in itertools.count(first, plan.episodes_per_step) for place in mine)

    def drawn(start: int) -> _Part:
        episode = pose(episodes.batch(start, count))
        return _Part(start, episode.pinned() if engine.device.type == "cuda" else episode)

    with ThreadPoolExecutor(1) as pool:
        ahead = deque(pool.submit(drawn, start) for start in itertools.islice(starts, engine.prefetch))
        while True:
            if engine.prefetch:
                ahead.append(pool.submit(drawn, next(starts)))
                part = ahead.popleft().result()
            else:
                part = drawn(next(starts))
            yield _Part(part.start, part.episode.to(engine.device))


def _update(state: TrainingState, feed: Iterator[_Part], seed: int, rate: float, engine: Engine) -> Tensor:
    """Take one optimiser step on the next episodes; returns their mean loss and accuracy, still on the device."""
    plan, parameters = state.plan, list(state.parameters.values())
    state.model.train()
    state.optimiser.zero_grad(set_to_none=True)
    with nullcontext() if engine.read_every == 1 else unchecked():
        if plan.parts == 1:
            seen = _backward(state, next(feed), seed, rate, engine)
            if engine.world > 1:
                sum_gradients(state.model.embedding, parameters, engine)
        else:
            seen = _backward_all(state, feed, seed, rate, engine)
    if plan.clip:
        torch.nn.utils.clip_grad_norm_(parameters, plan.clip)
    if plan.clip_value:
        torch.nn.utils.clip_grad_value_(parameters, plan.clip_value)
    for group in state.optimiser.param_groups:
        group["lr"] = rate
    state.optimiser.step()
    return seen


def _backward_all(state: TrainingState, feed: Iterator[_Part], seed: int, rate: float, engine: Engine) -> Tensor:
    """Compute the mean gradient of a step's episodes one by one; returns the mean loss and accuracy."""
    parts, statistics = state.plan.parts, RunningStatistics(state.model)
    gradients = GradientMean(state.parameters.values(), parts, engine)
    records, failure = [], None
    for part in itertools.islice(feed, parts // engine.world):
        statistics.begin()
        try:
            seen = _backward(state, part, seed, rate, engine)
        except DivergedError as error:
            # the other processes see it in the loss, so that none of them waits for this one
            failure, seen = error, torch.full((2,), math.nan, dtype=torch.float64, device=engine.device)
        gradients.take()
        records.append(torch.cat([seen, *statistics.left(seen.dtype)]))
    every = engine.gathered(torch.stack(records))  # (episodes, 2 + what they left)
    if engine.read_every == 1 and not bool(torch.isfinite(every[:, 0]).all()):
        statistics.restore()
        raise failure or DivergedError(_diverged("The loss of another process became nan", state, rate))
    statistics.take(every[:, 2:])
    gradients.give()
    return every[:, :2].mean(0)


def _backward(state: TrainingState, part: _Part, seed: int, rate: float, engine: Engine) -> Tensor:
    """Add the gradient of the loss to the parameters; returns the loss and the accuracy."""
    episode, objective = part.episode, state.model.learner.objective
    with seeded(seed, part.start, engine.device):  # dropout becomes a pure function of the seed and the episode
        logits, second = _answers(state, episode, rate, engine)
    loss = objective(logits, smoothed(episode.query.targets, state.plan.label_smoothing)) + second
    if engine.read_every == 1 and not math.isfinite(value := float(loss.detach())):
        raise DivergedError(_diverged(f"The loss became {value}", state, rate))
    loss.backward()
    right = accuracy(logits.detach(), episode.query.targets).mean()
    return torch.stack([loss.detach().to(right.dtype), right])


def _answers(state: TrainingState, episode: Episode, rate: float, engine: Engine) -> tuple[Tensor, Tensor | float]:
    """The query logits, and the plan's auxiliary loss times its weight, or 0 without one."""
    model, weight = state.model, state.plan.classify
    with diverging("", state, rate):
        with engine.autocast():
            support, query = map(engine.widened, model.embedded(episode))
        logits = model.learner.fit(support, episode.support.targets)(query)
    if state.classifier is None or not weight:
        return logits, 0.0
    lead = episode.classes.ndim - 1
    every = state.classifier(torch.cat([support, query], dim=lead).flatten(0, lead).flatten(1))
    classes = episode.class_targets(every.shape[-1]).flatten(0, lead)
    return logits, weight * nn.functional.cross_entropy(every, classes)


@contextmanager
def diverging(what: str, state: TrainingState, rate: float) -> Iterator[None]:
    """Raise `DivergedError` if weights of this state give features or logits that cannot be used."""
    try:
        yield
    except (NotFiniteError, NotPositiveDefiniteError) as error:
        raise DivergedError(_diverged(what + str(error).split(". ")[0], state, rate)) from error


def _diverged(what: str, state: TrainingState, rate: float) -> str:
    return (
        f"{what} at episode {state.episode} with learning rate {rate:g}. The last checkpoint is kept. "
        f"Lower the learning rate, set a gradient clip, or raise lam."
    )


def smoothed(targets: Tensor, share: float) -> Tensor:
    """One-hot targets (..., way) with this share spread evenly over all classes (Szegedy et al. 2016)."""
    return torch.lerp(targets, torch.full_like(targets, 1 / targets.shape[-1]), share) if share else targets


@contextmanager
def seeded(seed: int, episode: int = 0, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's default generators for the block, and restore their state afterwards.

    Only the CUDA device in use is seeded.
    """
    devices = None if device is None else [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(episode_seed(seed, episode))
        yield


def episode_seed(seed: int, episode: int) -> int:
    """The seed for everything random in one episode of a run: a pure function of the run's seed and the episode."""
    return int(random_words(seed, np.array([episode]), 1)[0, 0] >> np.uint64(1))
