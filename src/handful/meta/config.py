"""All settings of a training run as typed values that can be stored as JSON, and when a run counts as complete."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

from handful._io import from_json
from handful.errors import CheckpointError, InvalidOptionError

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "tf32", "bf16"]
Reduce = Literal["ordered", "fast"]


@dataclass(frozen=True, repr=False)
class Plan:
    """How to train, and for how long. The defaults are the paper's policy with the limits of the authors' code."""

    episodes: int = 120_000
    """Maximum number of training episodes."""
    optimiser: Literal["adam", "adam-l2", "sgd"] = "adam"
    """adam, adam-l2 (Adam with weight decay in the gradient), or sgd with Nesterov momentum."""
    rate: float = 5e-3
    """Initial learning rate."""
    momentum: float = 0.9
    """Momentum of sgd."""
    schedule: Literal["step", "cosine", "constant"] = "step"
    """step multiplies the rate by `decay` every `decay_every` episodes; cosine lowers it to 0 at the last episode."""
    decay: float = 0.5
    """Factor of the step schedule."""
    decay_every: int = 2_000
    """Episodes between steps of the step schedule."""
    weight_decay: float = 0.0
    """Weight decay on weights with two or more dimensions: decoupled for adam, otherwise part of the gradient."""
    label_smoothing: float = 0.0
    """Share of each target that is spread evenly over all classes."""
    classify: float = 0.0
    """Weight of an auxiliary classification loss over all training classes; its linear layer is discarded."""
    average: Literal["none", "exponential", "uniform"] = "none"
    """Average of the weights that is validated and kept as the best checkpoint; none uses the weights themselves."""
    average_decay: float = 0.999
    """Decay of the exponential average per update."""
    average_from: float = 0.0
    """Share of the episodes after which averaging starts, for example 0.75 for the last quarter."""
    episodes_per_step: int = 1
    """Episodes averaged in one update."""
    statistics: Literal["episode", "step"] = "episode"
    """Batch norm statistics in training: of each episode, as in the paper, or of all episodes of a step together.
    Several processes divide the episodes of a step among them; with `step`, its images."""
    clip: float = 0.0
    """Maximum gradient norm; 0 means no clipping."""
    clip_value: float = 0.0
    """Maximum absolute value of each entry of the gradient; 0 means no clipping."""
    validate_every: int = 500
    """Episodes between validations; 0 means never."""
    patience: int = 20_000
    """Stop if no validation score has improved for more than this many episodes; 0 means never."""

    def __repr__(self) -> str:
        return _changed(self)

    def __post_init__(self) -> None:
        if self.episodes_per_step == 1:
            object.__setattr__(self, "statistics", "episode")  # equivalent, and so that such plans compare as equal
        for name in ("episodes", "episodes_per_step", "decay_every"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} must be at least 1, but got {getattr(self, name)}.")
        for name in ("validate_every", "patience", "clip", "clip_value", "weight_decay", "classify"):
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
                f"{self.episodes_per_step}, because validation happens between updates."
            )

    @property
    def parts(self) -> int:
        """The number of passes through the network per update."""
        return self.episodes_per_step if self.statistics == "episode" else 1

    def is_over(self, episode: int, last_improvement: int | None) -> bool:
        """Whether all episodes are trained or patience is exhausted; `last_improvement` is None before validation."""
        stalled = (
            self.patience
            and last_improvement is not None
            and episode - last_improvement >= self.patience + self.validate_every
        )
        return episode >= self.episodes or bool(stalled)

    @property
    def fixed_length(self) -> str:
        """Why a longer run would have trained differently from the beginning; empty if it would not."""
        if self.schedule == "cosine":
            return f"its cosine schedule brought the learning rate down to 0 at episode {self.episodes:,}"
        if self.average != "none" and self.average_from:
            return f"it averages weights over the last {1 - self.average_from:.0%} of {self.episodes:,} episodes"
        return ""

    def rate_at(self, episode: int) -> float:
        """The learning rate of the update that starts with this episode."""
        if self.schedule == "step":
            return self.rate * self.decay ** (episode // self.decay_every)
        if self.schedule == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * min(1.0, episode / self.episodes)))
        return self.rate


Option = bool | int | float | str
Network = Literal[
    "32C",
    "64C",
    "wide",
    "plain-32C",
    "plain-64C",
    "maml-32C",
    "maml-64C",
    "maml-64C-strided",
    "gnn-net",
    "relation-net",
    "snail-resnet",
    "resnet12",
]
"""The names in `handful.embeddings.registry`, repeated here to avoid importing it; a test compares them."""


@dataclass(frozen=True, repr=False)
class Recipe:
    """Everything that determines a training run: data, network, learner, episodes, length and seed."""

    data: str = "glyphs"
    """Name of a data set, or path of a folder of class folders."""
    split: str = ""
    """Class split of the data set; empty for its default."""
    width: Network = "64C"
    """Network: four convolutions with 32, 64 or (wide) the paper's 96, 192, 384, 512 filters; or another one."""
    norm: Literal["batch", "group", "group-unbiased"] = "batch"
    """Normalisation after each convolution; group-unbiased uses the unbiased variance, like the authors' code."""
    norm_start: Literal["ones", "uniform"] = "ones"
    """Initial gamma of batch norm: 1, or uniform in (0, 1) as in PyTorch before 1.2, which older code uses."""
    dropout: float = 0.0
    """Dropout after blocks 3 and 4."""
    concatenate: bool = True
    """Use the features of blocks 3 and 4 (the paper) or of block 4 alone."""
    shrink: bool = True
    """Pool block 3's output once more before it is concatenated, as the paper's feature sizes require."""
    together: bool = True
    """In training, pass support and query through the network in one batch, so that they share batch statistics."""
    learner: str = "r2d2"
    """Name of the base learner."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Options of the learner, by the names of its constructor's arguments."""
    way: int = 20
    """Classes per training episode."""
    images_per_class: int = 12
    """K + Q: images per class in a training episode."""
    min_shot: int = 1
    """Smallest number of shots in a training episode."""
    max_shot: int = 9
    """Largest number of shots in a training episode; each episode draws its number uniformly."""
    augment: tuple[Literal["crop", "flip", "jitter"], ...] = ()
    """Augmentations of training images, in this order."""
    turned: float = 0.0
    """Share of training episodes in which the four quarter turns of a class are four different classes. Not for data
    whose classes are rotations of each other already, such as Omniglot's default split."""
    mixed: float = 0.0
    """Share of training episodes with CutMix: a box of each query comes from another one, and their labels are mixed in
    proportion to the area."""
    plan: Plan = field(default_factory=Plan)
    """Length, learning rate and validation."""
    val_ways: tuple[int, ...] = (5,)
    """Classes per validation episode; several values give several scores."""
    val_shots: tuple[int, ...] = (1, 5)
    """Shots of validation episodes; several values give several scores."""
    val_query: int = 10
    """Queries per class in validation episodes; 0 for as many images as in training episodes, if there are enough."""
    val_episodes: int = 200
    """Episodes per validation score."""
    val_fresh: bool = False
    """Draw new validation episodes each time instead of reusing the same ones."""
    seed: int = 0
    """Seed for weights, episodes and dropout."""

    def __repr__(self) -> str:
        return _changed(self)

    def as_json(self) -> dict[str, Any]:
        """The recipe as plain values for a JSON file."""
        return asdict(self)


def differences(old: Recipe, new: Recipe) -> list[str]:
    """The names of the fields in which two recipes differ, including those of their plans."""
    pairs: list[tuple[Any, Any]] = [(old.plan, new.plan), (old, new)]
    return [
        each.name
        for one, other in pairs
        for each in fields(one)
        if each.name != "plan" and getattr(one, each.name) != getattr(other, each.name)
    ]


def prolongs(old: Recipe, new: Recipe) -> bool:
    """Whether two recipes train in the same way, except that the new one may train for longer."""
    changed = set(differences(old, new))
    longer = new.plan.episodes >= old.plan.episodes and not ("episodes" in changed and old.plan.fixed_length)
    return changed <= {"episodes", "patience"} and longer and not less_patient(old.plan, new.plan)


def less_patient(old: Plan, new: Plan) -> bool:
    """Whether the new plan stops sooner without an improvement than the old one; a patience of 0 never stops."""
    return 0 < new.patience < (old.patience or math.inf)


def _changed(config: Plan | Recipe) -> str:
    """A repr of the configuration that shows only the values that differ from the defaults."""
    default = type(config)()
    values = ((each.name, getattr(config, each.name), getattr(default, each.name)) for each in fields(config))
    return f"{type(config).__name__}({', '.join(f'{name}={own!r}' for name, own, usual in values if own != usual)})"


MOST_OPTION = 10_000
"""A file with a larger option is refused before anything is built; real sizes and steps are far smaller."""


def recipe_from_json(values: Any) -> Recipe:
    """The recipe that `as_json` returned; raises for unknown fields, wrong types and absurd sizes."""
    try:
        recipe: Recipe = from_json(Recipe, _migrated(values), "recipe")
        for name, value in recipe.options.items():
            if not isinstance(value, str) and abs(value) > MOST_OPTION and name not in ("lam", "classes"):
                raise ValueError(f"recipe.options.{name} = {value:g} exceeds {MOST_OPTION:,}")
        return recipe
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"The recipe cannot be read: {str(error).rstrip('.')}.") from error


def _migrated(values: Any) -> Any:
    """A recipe from an older version, converted to the current fields."""
    if not isinstance(values, Mapping):
        return values
    values = dict(values)
    if "val_way" in values:
        values["val_ways"] = [values.pop("val_way")]
    plan = values.get("plan")
    if isinstance(plan, Mapping) and "statistics" not in plan and plan.get("episodes_per_step", 1) != 1:
        values["plan"] = {**plan, "statistics": "step"}
    return values


NEGLIGIBLE = 0.005
"""Share of the summed learning rate below which the rest of a run does not matter."""


@dataclass(frozen=True)
class Completion:
    """Whether a run is complete, and why or why not."""

    complete: bool
    why: str

    def __str__(self) -> str:
        return f"{'complete' if self.complete else 'in part'}: {self.why}"


def rate_left(plan: Plan, episode: int) -> float:
    """The share of the plan's summed learning rate that is left after this episode."""
    return _summed(plan, episode) / _summed(plan, 0)


@lru_cache
def complete_at(plan: Plan) -> int:
    """The first episode at which the run counts as complete, if patience does not end it sooner.

    The step schedule of the paper keeps halving the rate, so the last 100,000 of 120,000 episodes share less than 0.5%
    of the summed learning rate; a run that has got this far is complete. A cosine schedule lowers its rate to 0 on
    purpose, so such a run is complete only at its last episode.
    """
    if plan.schedule != "step":
        return plan.episodes
    low, high = 0, -(-plan.episodes // plan.episodes_per_step)
    while low < high:
        middle = (low + high) // 2
        if rate_left(plan, middle * plan.episodes_per_step) < NEGLIGIBLE:
            high = middle
        else:
            low = middle + 1
    return min(plan.episodes, low * plan.episodes_per_step)


def whole_plan(plan: Plan, planned: int) -> Plan:
    """The plan that a run is measured against; a step schedule that is only cut short keeps its `planned` length."""
    return plan if plan.schedule == "cosine" else replace(plan, episodes=max(plan.episodes, planned))


def completion(plan: Plan, episode: int, finished: bool = False, failure: str = "") -> Completion:
    """How far a run of the plan has got; `finished` says that patience stopped it before its last episode."""
    whole = f"episode {episode:,} of {plan.episodes:,}"
    if failure:
        return Completion(False, f"{failure}; {whole}")
    if episode >= plan.episodes:
        return Completion(True, f"all {plan.episodes:,} episodes")
    if finished:
        return Completion(True, f"no validation score rose for {plan.patience:,} episodes, stopped at {whole}")
    if plan.schedule == "cosine":
        left = f"its learning rate still at {100 * plan.rate_at(episode) / plan.rate:.0f}%"
        return Completion(False, f"{episode:,} of {plan.episodes:,} episodes, {left}")
    share = 100 * rate_left(plan, episode)
    left = f"{share:.{0 if share >= 10 else 1 if share >= 1 else 2}f}% of the summed learning rate left"
    if episode >= complete_at(plan):
        return Completion(True, f"{left} at {whole}")
    return Completion(False, f"{episode:,} of {plan.episodes:,} episodes, {left}")


def _summed(plan: Plan, first: int) -> float:
    """The sum of the rates of all updates from this episode to the last."""
    first, step = min(first, plan.episodes), plan.episodes_per_step
    if plan.schedule == "cosine":
        return math.fsum(map(plan.rate_at, range(first, plan.episodes, step)))
    # the rate only changes at these episodes, so that a million updates take a few hundred terms
    changes = range((first // plan.decay_every + 1) * plan.decay_every, plan.episodes, plan.decay_every)
    edges = [first, *changes, plan.episodes]
    updates = [-(-(edge - first) // step) for edge in edges]  # those before each edge
    return math.fsum(
        (end - begin) * plan.rate_at(edge) for edge, (begin, end) in zip(edges[:-1], pairwise(updates), strict=True)
    )
