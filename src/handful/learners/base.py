"""The interface of all base learners: Lambda(.; rho) of eq. 2, from a labelled support set to a predictor."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from handful.episodes import Episode
from handful.errors import InvalidOptionError, NotFiniteError, ShapeError
from handful.solvers import checking, cross_gram, gram

Predictor = Callable[[Tensor], Tensor]
"""Maps query embeddings (..., q, e) to logits (..., q, way)."""

GramPredictor = Callable[[Tensor, Tensor], Tensor]
"""Maps query-support inner products (..., q, n) and squared query norms (..., q) to logits (..., q, way)."""


@dataclass(frozen=True)
class Limits:
    """What a learner cannot do, declared so that no code needs to check its class."""

    way: int | None = None
    """The only number of classes it works with, or None. If fixed, each class has its own trained outputs, so the
    answer may depend on how classes are numbered."""
    order_dependent: bool = False
    """Whether the answer depends on the order of the support set."""
    transductive: bool = False
    """Whether the answer to one query depends on the other queries."""

    def __post_init__(self) -> None:
        if self.way is not None and self.way < 2:
            raise InvalidOptionError(f"A learner needs at least two classes, but got way = {self.way}.")

    def describe(self) -> str:
        """The limits as text, for tables and logs."""
        words = ["transductive" if self.transductive else "inductive"]
        if self.way is not None:
            words.append(f"{self.way}-way only")
        if self.order_dependent:
            words.append("depends on the order of the support set")
        return ", ".join(words)


class BaseLearner(nn.Module, ABC):
    """A learner whose parameters are rho, the meta-learnt hyper-parameters; `fit` writes nothing to self.

    It works with any leading batch dimensions: a thousand episodes are one call. A learner defines `fit`. `objective`
    and `pose` are hooks for learners that train with another loss or on another problem.
    """

    limits: Limits = Limits()

    def __init__(
        self,
    ) -> None:  # the options of a learner are the arguments of its constructor; that of nn.Module takes any
        super().__init__()

    def __repr__(self) -> str:
        options = ((name, _shown(self, name)) for name in inspect.signature(type(self)).parameters)
        weights = sum(each.numel() for each in self.parameters() if each.requires_grad)
        said = ", ".join(f"{name}={value}" for name, value in options if value)
        return f"{type(self).__name__}({said}{'; ' if said else ''}{weights:,} learnt)"

    @abstractmethod
    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support embeddings (..., n, e) with one-hot targets (..., n, way)."""

    @property
    def kernel(self) -> KernelLearner | None:
        """This learner as a KernelLearner if it only needs inner products, else None."""
        return None

    def objective(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Hook: the loss L of eq. 1 for query logits and one-hot targets; by default cross-entropy."""
        return cross_entropy(logits, targets)

    def pose(self, episode: Episode) -> Episode:
        """Hook: the problem to train on for a sampled episode; by default the episode itself."""
        return episode


class KernelLearner(BaseLearner):
    """A learner that only needs inner products, so its cost does not depend on the embedding size."""

    @abstractmethod
    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        """Learn from the support's Gram matrix (..., n, n) with one-hot targets (..., n, way)."""

    def feature_map(self, embeddings: Tensor) -> Tensor:
        """Hook: the vectors whose inner products are taken; by default the embeddings themselves."""
        return embeddings

    @property
    def kernel(self) -> KernelLearner:
        """This learner itself, because it only needs inner products."""
        return self

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support embeddings: compute their Gram matrix, then call `fit_gram`."""
        check_support(support, targets)
        support = self.feature_map(support)
        predict = self.fit_gram(gram(support), targets)

        def predictor(query: Tensor) -> Tensor:
            query = self.feature_map(query)
            cross = cross_gram(query, support)
            return predict(cross, query.to(cross.dtype).square().sum(-1))  # squares overflow in half precision

        return predictor


def log_parameter(name: str, value: float, learn: bool, shape: tuple[int, ...] = ()) -> nn.Parameter:
    """The logarithm of a positive number as a parameter, which is fixed unless `learn` is set."""
    return nn.Parameter(torch.full(shape, math.log(positive(name, value))), requires_grad=learn)


def positive(name: str, value: float) -> float:
    """The value; raises unless it is positive and finite."""
    if not 0 < value < math.inf:
        raise InvalidOptionError(f"{name} must be positive and finite, but got {name} = {value}.")
    return value


def with_lam(learner: BaseLearner, lam: float) -> BaseLearner:
    """A copy of a learner whose lambda is `lam` for any number of examples, instead of the trained one."""
    value = math.log(positive("lam", lam))
    learner = copy.deepcopy(learner)
    log_lam = getattr(learner.kernel, "log_lam", None)
    if not (hasattr(learner.kernel, "lam_per_example") and isinstance(log_lam, Tensor) and log_lam.ndim == 0):
        raise InvalidOptionError(f"{type(learner).__name__} has no single lambda that could be replaced.")
    setattr(learner.kernel, "lam_per_example", False)  # noqa: B010 (an attribute of some kernel learners only)
    nn.init.constant_(log_lam, value)
    return learner


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of query logits (..., q, way) with one-hot or smoothed targets of the same shape."""
    return nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(0, -2).to(logits.dtype))


def check_support(support: Tensor, targets: Tensor, way: int | None = None) -> None:
    """Raise if nothing can be learnt from a support set; `way` is the learner's fixed number of classes, if any."""
    lead = targets.shape[:-1]
    if targets.ndim < 2 or support.ndim <= len(lead) or support.shape[: len(lead)] != lead:
        raise ShapeError(
            f"Support embeddings (..., n, *features) and one-hot targets (..., n, way) must agree in all dimensions up "
            f"to n, but got {tuple(support.shape)} and {tuple(targets.shape)}."
        )
    if targets.shape[-1] < 2:
        raise ShapeError("A few-shot problem needs at least two classes, but the targets have one column.")
    if way is not None and targets.shape[-1] != way:
        raise ShapeError(
            f"This learner was built and trained for {way} classes, but the episode has {targets.shape[-1]}. "
            f"Use {way}-way episodes, or train another learner with way={targets.shape[-1]}."
        )
    if not checking():
        return
    finite = torch.isfinite(support).flatten(len(lead)).all(-1)
    if not bool(finite.all()):
        raise NotFiniteError(
            f"{int((~finite).sum())} of the {finite.numel()} support embeddings contain NaN or infinity. "
            f"Check the images and the embedding network."
        )
    empty = (targets.sum(-2) <= 0).reshape(-1, targets.shape[-1]).any(0)
    if bool(empty.any()):
        raise ShapeError(
            f"Class {int(empty.nonzero()[0])} of the episode has no support example; every class needs one."
        )


def _shown(learner: BaseLearner, name: str) -> str:
    """The current value of an option, even if it is learnt; None if the learner does not store it."""
    value = learner.limits.way if name == "way" else getattr(learner, name, None)
    if value is None and isinstance(logarithm := getattr(learner, f"log_{name}", None), Tensor):
        value = logarithm.detach().exp()
    if isinstance(value, Tensor):
        low, high = value.min().item(), value.max().item()
        return f"{low:.4g}" if low == high else f"[{low:.4g}..{high:.4g}]"
    return repr(value) if isinstance(value, bool | int | float | str | tuple) else ""
