"""Meta-training: minimise the expected query loss of episodes (eq. 2) by gradients, for any learner."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from handful.averaging import WeightAverage
from handful.episodes import Episode, EpisodeSampler
from handful.episodes.counter import random_words
from handful.errors import (
    CheckpointError,
    DivergedError,
    InvalidOptionError,
    NotFiniteError,
    NotPositiveDefiniteError,
)
from handful.metrics import accuracy
from handful.model import FewShotModel
from handful.plan import Plan

_CLASSIFIER = "classifier."
Scores = Mapping[str, float]
"""Named validation accuracies, for example {"1-shot": 0.61, "5-shot": 0.75}."""


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


class TrainingState:
    """All that the rest of a run depends on: weights, optimiser, best scores. Saved, it can go on."""

    def __init__(self, model: FewShotModel, plan: Plan, classifier: nn.Module | None = None) -> None:
        self.model, self.plan = model, plan
        self.classifier = classifier
        """From features to a logit for each class of the training split, for the plan's second loss."""
        if plan.classify and classifier is None:
            raise InvalidOptionError(f"A plan with classify = {plan.classify:g} needs a classifier of all classes.")
        self.episode = 0
        self.last_improvement = 0
        self.best: dict[str, float] = {}
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if classifier is not None:
            self.parameters |= {f"{_CLASSIFIER}{name}": p for name, p in classifier.named_parameters()}
        decayed = [p for p in self.parameters.values() if p.ndim > 1]
        others = [p for p in self.parameters.values() if p.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": plan.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = _optimiser([group for group in groups if group["params"]], plan)
        self.average = None if plan.average == "none" else WeightAverage(plan)
        self.judged = model
        """What the last validation looked at: the model itself, or a copy with averaged weights."""

    def judge(self, episodes: EpisodeSampler) -> FewShotModel:
        """The model to validate now, and to keep if it is the best: with averaged weights where the plan wants them."""
        self.judged = self.average.applied(self.model, episodes) if self.average and self.average.count else self.model
        return self.judged

    def advance(self) -> None:
        """Count an update, and take its weights into the average once that has begun."""
        self.episode += self.plan.episodes_per_step
        if self.average and self.episode > self.plan.average_from * self.plan.episodes:
            self.average.note(self.parameters)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is a tensor, by name; `restore` takes it back."""
        saved = model_tensors(self.model)
        if self.classifier is not None:
            saved |= {f"{_CLASSIFIER}{name}": value.detach() for name, value in self.classifier.state_dict().items()}
        for name, parameter in self.parameters.items():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                saved[f"optimiser.{key}.{name}"] = torch.as_tensor(value).detach()
        averaged = self.average.values if self.average else {}
        return {**saved, **{f"average.{name}": value for name, value in averaged.items()}}

    def facts(self) -> dict[str, Any]:
        """Everything else, as plain JSON values."""
        averaged = {"averaged": self.average.count} if self.average else {}
        best = {"last_improvement": self.last_improvement, "best": dict(self.best)}
        return {"episode": self.episode, **best, **averaged}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Continue from what `tensors` and `facts` gave, to the same bits."""
        try:
            self.model.load_state_dict(_below("model.", tensors))
            if self.classifier is not None:
                self.classifier.load_state_dict(_below(_CLASSIFIER, tensors))
            for name, parameter in self.parameters.items():
                keys = [key for key in tensors if key.startswith("optimiser.") and key.split(".", 2)[2] == name]
                self.optimiser.state[parameter] = {key.split(".", 2)[1]: tensors[key].clone() for key in keys}
            self.episode, self.last_improvement = int(facts["episode"]), int(facts["last_improvement"])
            self.best = {str(name): float(value) for name, value in facts["best"].items()}
            if self.average and (count := int(facts["averaged"])):
                self.average.count = count
                self.average.values = {name: tensors[f"average.{name}"].clone() for name in self.parameters}
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"The saved training state does not fit this model: {str(error).splitlines()[0]} "
                f"Resume with the options that the run was started with, or start a new run."
            ) from error

    def note(self, scores: Scores) -> tuple[str, ...]:
        """Take in validation scores; the names of those that are now the best, their mean under 'mean'.

        As in the authors' code, a tie counts, so that of equal checkpoints the later is kept. Patience follows the
        scores themselves, not their mean.
        """
        named = {**scores, "mean": sum(scores.values()) / len(scores)}
        improved = tuple(name for name, value in named.items() if value >= self.best.get(name, -math.inf))
        self.best.update({name: named[name] for name in improved})
        if any(name in scores for name in improved):
            self.last_improvement = self.episode
        return improved

    @property
    def finished(self) -> bool:
        """Whether the plan is fulfilled or patience is exhausted."""
        return self.plan.is_over(self.episode, self.last_improvement if self.best else None)


def train(
    model: FewShotModel,
    episodes: EpisodeSampler,
    plan: Plan | None = None,
    *,
    validate: Callable[[FewShotModel], Scores] | None = None,
    state: TrainingState | None = None,
) -> Iterator[Progress]:
    """Train `model` on `episodes`, yielding after every update.

    Pass a `state` that was restored to go on with an interrupted run: episodes are numbered and dropout is seeded by
    them, so the run continues to the same bits, and the caller's random state is left alone. A loss that is not finite
    raises `DivergedError` before it reaches the weights.
    """
    state = state or TrainingState(model, plan or Plan())
    plan = state.plan
    begun = time.perf_counter()
    device = next(iter(state.parameters.values())).device
    while not state.finished:
        rate = plan.rate_at(state.episode)
        loss, right = _update(state, episodes, rate, device)
        state.advance()
        last = state.episode >= plan.episodes
        due = plan.validate_every and (last or state.episode % plan.validate_every == 0)
        scores = validate(state.judge(episodes)) if validate is not None and due else None
        improved = state.note(scores) if scores else ()
        yield Progress(state.episode, loss, right, rate, scores, improved, time.perf_counter() - begun)


def _update(state: TrainingState, episodes: EpisodeSampler, rate: float, device: torch.device) -> tuple[float, float]:
    """One optimiser step on the next episodes; their mean loss and accuracy."""
    model, plan = state.model, state.plan
    model.train()
    episode = model.learner.pose(episodes.batch(state.episode, plan.episodes_per_step)).to(device)
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


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def model_tensors(model: FewShotModel) -> dict[str, Tensor]:
    """A model's weights and buffers by the names that checkpoints give them."""
    return {f"model.{name}": value.detach() for name, value in model.state_dict().items()}


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


def _optimiser(groups: list[dict[str, Any]], plan: Plan) -> torch.optim.Optimizer:
    fused = all(_fusable(parameter) for group in groups for parameter in group["params"])
    if plan.optimiser == "adam":
        return torch.optim.AdamW(groups, lr=plan.rate, fused=fused)
    return torch.optim.SGD(groups, lr=plan.rate, momentum=plan.momentum, nesterov=plan.momentum > 0, fused=fused)


def _fusable(parameter: Tensor) -> bool:
    return parameter.device.type in ("cpu", "cuda") and parameter.dtype in (torch.float32, torch.float64)
