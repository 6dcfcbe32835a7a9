"""The state that a training run needs to resume with the same bits: weights, optimiser, averages, best scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from handful._io import from_json
from handful.episodes import EpisodeSampler
from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.config import Plan
from handful.meta.engine import CPU, Engine
from handful.meta.model import FewShotModel

_CLASSIFIER = "classifier."
Scores = Mapping[str, float]
"""Named validation accuracies, for example {"1-shot": 0.61, "5-shot": 0.75}."""


_STEP = torch.zeros(())
"""Adam's update counter, in PyTorch's format."""


@dataclass(frozen=True)
class _Facts:
    """Everything in a training state except its tensors."""

    episode: int
    last_improvement: int = 0
    best: Mapping[str, float] = field(default_factory=dict)
    averaged: int | None = None
    """Number of updates in the average; None for a plan without one."""
    idle: tuple[str, ...] = ()
    """Parameters that no update has reached, so the optimiser has no state for them."""

    def check(self) -> None:
        """Raise for counts and scores that are impossible."""
        if min(self.episode, self.last_improvement, self.averaged or 0) < 0 or self.last_improvement > self.episode:
            raise ValueError(f"it claims {self.episode} episodes, the best at {self.last_improvement}")
        if not all(0 <= score <= 1 for score in self.best.values()):
            raise ValueError("its best scores are not accuracies")


def require_alike(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise unless two sets of tensors have the same names, shapes and types."""
    missing, extra = sorted(expected.keys() - given.keys()), sorted(given.keys() - expected.keys())
    if missing or extra:
        raise ValueError(f"it lacks {missing[0]}" if missing else f"it also holds {extra[0][:80]}")
    for name, wanted in expected.items():
        if given[name].shape != wanted.shape or given[name].dtype != wanted.dtype:
            raise ValueError(
                f"{name} is {given[name].dtype} of shape {tuple(given[name].shape)}, "
                f"not {wanted.dtype} of shape {tuple(wanted.shape)}"
            )


class TrainingState:
    """Everything that the rest of a run depends on: weights, optimiser, best scores. It can be saved and restored."""

    def __init__(self, model: FewShotModel, plan: Plan, classifier: nn.Module | None = None) -> None:
        self.model, self.plan = model, plan
        self.classifier = classifier
        """Maps features to a logit for each class of the training split, for the plan's auxiliary loss."""
        if plan.classify and classifier is None:
            raise InvalidOptionError(f"A plan with classify = {plan.classify:g} needs a classifier over all classes.")
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
        """The model of the last validation: the model itself, or a copy with averaged weights."""

    def judge(self, episodes: EpisodeSampler, engine: Engine = CPU) -> FewShotModel:
        """The model to validate now, and to keep if it is the best; with averaged weights if the plan asks for them."""
        self.judged = (
            self.average.applied(self.model, episodes, engine) if self.average and self.average.count else self.model
        )
        return self.judged

    def advance(self) -> None:
        """Count an update, and add its weights to the average once averaging has started."""
        self.episode += self.plan.episodes_per_step
        if self.average and self.episode > self.plan.average_from * self.plan.episodes:
            self.average.note(self.parameters)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the state by name, for `restore`."""
        saved = model_tensors(self.model)
        if self.classifier is not None:
            saved |= {f"{_CLASSIFIER}{name}": value.detach() for name, value in self.classifier.state_dict().items()}
        for name, parameter in self.parameters.items():
            for key, value in self.optimiser.state.get(parameter, {}).items():
                saved[f"optimiser.{key}.{name}"] = torch.as_tensor(value).detach()
        averaged = self.average.values if self.average else {}
        return {**saved, **{f"average.{name}": value for name, value in averaged.items()}}

    def facts(self) -> dict[str, Any]:
        """The rest of the state, as plain JSON values."""
        averaged = {"averaged": self.average.count} if self.average else {}
        best = {"last_improvement": self.last_improvement, "best": dict(self.best)}
        idle = [name for name, each in self.parameters.items() if self.episode and not self.optimiser.state.get(each)]
        lazy = {"idle": idle} if idle and self._optimiser_keys() else {}
        return {"episode": self.episode, **best, **averaged, **lazy}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Restore what `tensors` and `facts` returned, to the same bits; if they do not match, nothing changes."""
        try:
            known: _Facts = from_json(_Facts, facts, "training")
            known.check()
            if (known.averaged is None) != (self.average is None):
                raise ValueError(
                    "the plan averages weights, but the state does not" if self.average else "it averages weights"
                )
            require_alike(tensors, self._expected(known))
        except ValueError as error:
            raise CheckpointError(
                f"The saved training state does not fit this model: {error}. "
                f"Resume with the options of the original run, or start a new run."
            ) from error
        self.model.load_state_dict(_below("model.", tensors))
        if self.classifier is not None:
            self.classifier.load_state_dict(_below(_CLASSIFIER, tensors))
        for name, parameter in self.parameters.items():
            keys = [key for key in self._optimiser_keys() if f"optimiser.{key}.{name}" in tensors]
            kept = {key: tensors[f"optimiser.{key}.{name}"].clone() for key in keys}
            self.optimiser.state[parameter] = {key: value.to(parameter.device) for key, value in kept.items()}
        self.episode, self.last_improvement, self.best = known.episode, known.last_improvement, dict(known.best)
        if self.average and known.averaged:
            self.average.count = known.averaged
            self.average.values = {
                name: tensors[f"average.{name}"].to(parameter.device, copy=True)
                for name, parameter in self.parameters.items()
            }

    def _optimiser_keys(self) -> tuple[str, ...]:
        if self.plan.optimiser == "sgd":
            return ("momentum_buffer",) if self.plan.momentum else ()
        return ("step", "exp_avg", "exp_avg_sq")

    def _expected(self, facts: _Facts) -> dict[str, Tensor]:
        """Tensors with the names, shapes and types of a state with these facts."""
        expected = model_tensors(self.model)
        if self.classifier is not None:
            expected |= {f"{_CLASSIFIER}{name}": value for name, value in self.classifier.state_dict().items()}
        for name, parameter in self.parameters.items():
            for key in self._optimiser_keys() if facts.episode and name not in facts.idle else ():
                expected[f"optimiser.{key}.{name}"] = _STEP if key == "step" else parameter
            if facts.averaged:
                expected[f"average.{name}"] = parameter
        return expected

    def note(self, scores: Scores) -> tuple[str, ...]:
        """Record validation scores; returns the names of those that are now the best, with 'mean' for their mean.

        As in the authors' code, a tie counts as an improvement, so the later of two equal checkpoints is kept. Patience
        follows the scores themselves, not their mean.
        """
        named = {**scores, "mean": sum(scores.values()) / len(scores)}
        improved = tuple(name for name, value in named.items() if value >= self.best.get(name, -math.inf))
        self.best.update({name: named[name] for name in improved})
        if any(name in scores for name in improved):
            self.last_improvement = self.episode
        return improved

    @property
    def finished(self) -> bool:
        """Whether all episodes are trained or patience is exhausted."""
        return self.plan.is_over(self.episode, self.last_improvement if self.best else None)


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def model_tensors(model: FewShotModel) -> dict[str, Tensor]:
    """A model's weights and buffers by their names in checkpoints."""
    return {f"model.{name}": value.detach() for name, value in model.state_dict().items()}


def _optimiser(groups: list[dict[str, Any]], plan: Plan) -> torch.optim.Optimizer:
    fused = all(_fusable(parameter) for group in groups for parameter in group["params"])
    if plan.optimiser == "adam":
        return torch.optim.AdamW(groups, lr=plan.rate, fused=fused)
    if plan.optimiser == "adam-l2":
        return torch.optim.Adam(groups, lr=plan.rate, fused=fused)
    return torch.optim.SGD(groups, lr=plan.rate, momentum=plan.momentum, nesterov=plan.momentum > 0, fused=fused)


def _fusable(parameter: Tensor) -> bool:
    return parameter.device.type in ("cpu", "cuda") and parameter.dtype in (torch.float32, torch.float64)


STATISTICS_EPISODES = 20
"""Number of training episodes for the batch-norm statistics of the averaged network."""


class WeightAverage:
    """An average of the weights since it started, uniform (Izmailov et al. 2018) or exponential."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.values: dict[str, Tensor] = {}
        self.count = 0

    def note(self, parameters: Mapping[str, Tensor]) -> None:
        """Add the weights after an update."""
        if not self.count:
            self.values = {name: value.detach().clone() for name, value in parameters.items()}
        for name, value in parameters.items():
            self.values[name].lerp_(value.detach(), self.weight)
        self.count += 1

    @property
    def weight(self) -> float:
        """The share of the next weights in the average, which is larger at the beginning."""
        if self.plan.average == "uniform":
            return 1 / (self.count + 1)
        return 1 - min(self.plan.average_decay, (1 + self.count) / (10 + self.count))

    def applied(self, model: FewShotModel, episodes: EpisodeSampler, engine: Engine = CPU) -> FewShotModel:
        """A copy of the model with the averaged weights and its own batch-norm statistics."""
        averaged = deepcopy(model)
        with torch.no_grad():
            for name, parameter in averaged.named_parameters():
                if name in self.values:
                    parameter.copy_(self.values[name])
        retake_statistics(averaged, episodes, engine)
        return averaged


def retake_statistics(
    model: FewShotModel, episodes: EpisodeSampler, engine: Engine = CPU, count: int = STATISTICS_EPISODES
) -> None:
    """Replace the running statistics of batch norm by means over training episodes 0 .. count - 1, without dropout.

    The running statistics were computed with the original weights, and do not fit the averaged ones. The episodes are
    taken without turns and mixing, like those that the model is tested on.
    """
    norms = [module for module in model.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    if not norms:
        return
    training, momenta = model.training, [norm.momentum for norm in norms]
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean over batches
        nn.Module.train(norm)
    upright = episodes.plain()
    for index in range(count):
        # not under no_grad, where some learners answer in chunks, which would give their norms other batches
        model(upright[index].to(engine.device))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.train(training)
