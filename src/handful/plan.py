"""The training plan: how long, how fast, when to validate and when to give up. Plain numbers, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class Plan:
    """How long and how to train. The defaults are the paper's policy with the authors' code's limits."""

    episodes: int = 120_000
    """Episodes to train for at most."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Adam, or stochastic gradient descent with Nesterov's momentum."""
    rate: float = 5e-3
    """The initial learning rate."""
    momentum: float = 0.9
    """Momentum of stochastic gradient descent."""
    schedule: Literal["step", "cosine", "constant"] = "step"
    """step: multiply the rate by `decay` every `decay_every` episodes; cosine: down to 0 at the last episode."""
    decay: float = 0.5
    """Factor of the step schedule."""
    decay_every: int = 2_000
    """Episodes between two steps of the step schedule."""
    weight_decay: float = 0.0
    """Weight decay on weights of two or more dimensions: decoupled from Adam's steps, part of the gradient for sgd."""
    label_smoothing: float = 0.0
    """Share of each query's target that is spread over all classes."""
    classify: float = 0.0
    """Weight of a second loss: to tell all classes of the training split apart, by a linear layer that training alone
    has."""
    average: Literal["none", "exponential", "uniform"] = "none"
    """Which average of the weights along the run is validated and kept as the best, if not the weights themselves."""
    average_decay: float = 0.999
    """Memory of the exponential average, per update."""
    average_from: float = 0.0
    """Share of the episodes after which averaging begins, for example 0.75 for the last quarter."""
    episodes_per_step: int = 1
    """Episodes averaged in one update."""
    clip: float = 0.0
    """Largest gradient norm; 0 means no clipping."""
    validate_every: int = 500
    """Episodes between two validations; 0 means never."""
    patience: int = 20_000
    """Stop at the first validation more than this many episodes after any score was at its best; 0 means never."""

    def __post_init__(self) -> None:
        for name in ("episodes", "episodes_per_step", "decay_every"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1, but got {getattr(self, name)}.")
        for name in ("validate_every", "patience", "clip", "weight_decay", "classify"):
            if getattr(self, name) < 0:
                raise InvalidOptionError(f"{name} must not be negative, but got {getattr(self, name)}.")
        if not (self.rate > 0 and math.isfinite(self.rate)):
            raise InvalidOptionError(f"The learning rate must be a positive number, but got {self.rate}.")
        for name in ("momentum", "label_smoothing", "average_decay", "average_from"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must lie in [0, 1), but got {getattr(self, name)}.")
        if not 0 < self.decay <= 1:
            raise InvalidOptionError(f"decay must lie in (0, 1], but got {self.decay}.")
        if self.validate_every % self.episodes_per_step:
            raise InvalidOptionError(
                f"validate_every = {self.validate_every} must be a multiple of episodes_per_step = "
                f"{self.episodes_per_step}, because validation happens between two updates."
            )

    def is_over(self, episode: int, last_improvement: int | None) -> bool:
        """Whether all episodes are trained or patience is exhausted; None where nothing was validated yet."""
        stalled = (
            self.patience
            and last_improvement is not None
            and episode - last_improvement >= self.patience + self.validate_every
        )
        return episode >= self.episodes or bool(stalled)

    def rate_at(self, episode: int) -> float:
        """The learning rate of the update that begins with this episode."""
        if self.schedule == "step":
            return self.rate * self.decay ** (episode // self.decay_every)
        if self.schedule == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * min(1.0, episode / self.episodes)))
        return self.rate
