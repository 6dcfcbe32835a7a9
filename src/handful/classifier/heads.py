"""The learners to choose from, each fitted to features: scores of queries, and of every example held out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch

from handful import solvers
from handful.classifier.cholesky import Matrix
from handful.classifier.exact_ridge import Factor, LinearMap, leave_one_out
from handful.classifier.selection import size_of, softmax
from handful.errors import InvalidOptionError

BIAS_FREEDOM = 10.0
"""The bias of logistic regression is a constant feature so many times as long as the others: hardly penalised."""
STEPS = 12
"""Newton steps of logistic and softmax regression: they have converged to rounding long before."""


class Head(ABC):
    """A learner after it has seen the examples. Features are those of the factor, with its origin at 0."""

    usual_scale: ClassVar[float]
    """What to multiply its scores with before softmax when there is no evidence."""
    exact: ClassVar[bool] = True
    """Whether its leave-one-out equals refits."""

    @abstractmethod
    def scores(self, features: Matrix) -> Matrix:
        """Scores of queries, (q, e) -> (q, way)."""

    @abstractmethod
    def linear(self) -> LinearMap:
        """The scores as one linear map of the features, up to a constant that all classes of a query share."""

    @abstractmethod
    def leave_one_out(self) -> Matrix:
        """Scores of each example by a fit on all others, (n, way); -inf for a class that has no other example."""


@dataclass(frozen=True)
class RidgeHead(Head):
    """Ridge regression on one-hot targets, its classes balanced or as they are."""

    usual_scale = 4.0
    factor: Factor
    targets: Matrix
    balance: bool

    @cached_property
    def map(self) -> LinearMap:
        """Weights and bias, so that a query costs one product."""
        return self.factor.solve(self.targets)

    def scores(self, features: Matrix) -> Matrix:
        """By the linear map."""
        return self._scored(self.map(features), self.targets.mean(0))

    def linear(self) -> LinearMap:
        """The scores are linear in the predictions, class by class."""
        shares = self.targets.mean(0)
        offset = self._scored(np.zeros((1, len(shares))), shares)[0]
        slope = self._scored(np.ones((1, len(shares))), shares)[0] - offset
        return LinearMap(self.map.weights * slope, self.map.bias * slope + offset)

    def leave_one_out(self) -> Matrix:
        """Exact, from the factor."""
        return self._scored(leave_one_out(self.factor, self.targets), held_out_shares(self.targets))

    def _scored(self, predictions: Matrix, shares: Matrix) -> Matrix:
        return (balanced if self.balance else observed)(predictions, shares)


@dataclass(frozen=True)
class PrototypeHead(Head):
    """The nearest class mean: minus half the squared distance, in units of the features' size."""

    usual_scale = 9.0
    factor: Factor
    targets: Matrix

    @cached_property
    def means(self) -> Matrix:
        """Class means (way, e)."""
        means: Matrix = self.targets.T @ self.factor.features / self.targets.sum(0)[:, None]
        return means

    def scores(self, features: Matrix) -> Matrix:
        """By distances from the means."""
        squares = np.square(features).sum(1)[:, None] - 2 * features @ self.means.T + np.square(self.means).sum(1)
        scores: Matrix = -squares / (2 * self._size)
        return scores

    def linear(self) -> LinearMap:
        """The square of the query is the constant that all classes share."""
        return LinearMap(self.means.T / self._size, -np.square(self.means).sum(1) / (2 * self._size))

    def leave_one_out(self) -> Matrix:
        """Exact: only the mean of the example's own class moves, away from it by n / (n - 1)."""
        counts = self.targets.sum(0)
        away = np.divide(counts, counts - 1, out=np.ones_like(counts), where=counts > 1)
        scores = self.scores(self.factor.features)
        moved = np.where(self.targets > 0, scores * np.square(away), scores)
        return np.where((self.targets > 0) & (counts == 1), -np.inf, moved)

    @cached_property
    def _size(self) -> float:
        return size_of(self.factor.features)


@dataclass(frozen=True)
class LikelihoodHead(Head):
    """A linear classifier of greatest penalised likelihood, its bias hardly penalised.

    At the optimum the problem of each class is a weighted ridge regression, and leaving an example out of that one has
    a closed form: the first Newton step towards the refit (Rad and Maleki 2020).
    """

    usual_scale = 0.5
    exact = False
    factor: Factor
    targets: Matrix
    lam: float

    @abstractmethod
    def solve(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        """Weights (e, way) for features (n, e) and one-hot targets (n, way)."""

    @abstractmethod
    def probabilities(self, logits: Matrix) -> Matrix:
        """What the model says of each class."""

    @cached_property
    def map(self) -> LinearMap:
        """Weights and bias."""
        W = self.solve(torch.from_numpy(self._augmented), torch.from_numpy(self.targets)).numpy()
        return LinearMap(W[:-1], self._bias_column * W[-1] - self._mean @ W[:-1])

    def scores(self, features: Matrix) -> Matrix:
        """Logits."""
        return self.map(features)

    def linear(self) -> LinearMap:
        """The logits themselves."""
        return self.map

    def leave_one_out(self) -> Matrix:
        """z - (z - eta) / slack with the working responses z = eta + (y - mu) / (mu (1 - mu))."""
        eta = self.map(self.factor.features)
        mu = self.probabilities(eta)
        s = np.maximum(mu * (1 - mu), 1e-12)
        steps = (self.targets - mu) / s
        slack = np.stack([self._slack(column) for column in s.T], 1)
        alone = held_out_shares(self.targets) <= 0
        return np.where(alone, -np.inf, eta + steps - steps / slack)

    def _slack(self, s: Matrix) -> Matrix:
        """The diagonal of lam (R X X^T R + lam I)^-1 with R = diag(sqrt(s)), by the smaller system."""
        X = self._augmented * np.sqrt(s)[:, None]
        n, e = X.shape
        if n > e:
            solved = np.linalg.solve(X.T @ X + self.lam * np.eye(e), X.T)
            slack: Matrix = 1 - np.einsum("ne,en->n", X, solved)
            return slack
        slack = self.lam * np.diagonal(np.linalg.inv(X @ X.T + self.lam * np.eye(n)))
        return slack

    @cached_property
    def _mean(self) -> Matrix:
        mean: Matrix = self.factor.features.mean(0)
        return mean

    @cached_property
    def _augmented(self) -> Matrix:
        # centred at the mean, because even a lightly penalised bias depends on the origin
        column = np.full((len(self.targets), 1), self._bias_column)
        return np.hstack([self.factor.features - self._mean, column])

    @cached_property
    def _bias_column(self) -> float:
        return BIAS_FREEDOM * float(np.sqrt(size_of(self.factor.features)))


@dataclass(frozen=True)
class LogisticHead(LikelihoodHead):
    """Logistic regression, each class against all others."""

    def solve(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        """One problem a class, by the smaller system."""
        return solvers.logistic(X, Y, self.lam, STEPS)

    def probabilities(self, logits: Matrix) -> Matrix:
        """One sigmoid a class."""
        sigmoid: Matrix = 0.5 * (1 + np.tanh(logits / 2))
        return sigmoid


@dataclass(frozen=True)
class SoftmaxHead(LikelihoodHead):
    """Softmax regression, all classes in one problem; its leave-one-out neglects what couples them."""

    usual_scale = 0.7

    def solve(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        """In the dual."""
        return X.mT @ solvers.softmax_dual(solvers.gram(X), Y, self.lam, STEPS)

    def probabilities(self, logits: Matrix) -> Matrix:
        """Softmax."""
        return softmax(logits)


FitHead = Callable[[Factor, Matrix, float, bool], Head]
"""From factor, one-hot targets, lambda and balance."""
LIKELIHOOD_GRID = (1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class HeadMaker:
    """How to fit one learner, and the lambdas it may choose from, as multiples of the features' size."""

    fit: FitHead
    grid: tuple[float, ...] = ()


MAKERS: Mapping[str, HeadMaker] = {
    "ridge": HeadMaker(lambda factor, targets, lam, balance: RidgeHead(factor, targets, balance)),
    "logistic": HeadMaker(lambda factor, targets, lam, balance: LogisticHead(factor, targets, lam), LIKELIHOOD_GRID),
    "softmax": HeadMaker(lambda factor, targets, lam, balance: SoftmaxHead(factor, targets, lam), LIKELIHOOD_GRID),
    "prototypes": HeadMaker(lambda factor, targets, lam, balance: PrototypeHead(factor, targets)),
}


def maker(learner: str) -> HeadMaker:
    """The maker of a learner's name."""
    if learner not in MAKERS:
        raise InvalidOptionError(f"learner must be one of {', '.join(MAKERS)}, but got {learner!r}.")
    return MAKERS[learner]


def balanced(predictions: Matrix, shares: Matrix) -> Matrix:
    """Scores by which a class with few examples is not disadvantaged: (f - share) / sqrt(share).

    It is ridge regression on target columns that have been centred and brought to equal size, which, with a free bias,
    can be done after the fact: so exact updates and exact leave-one-out are kept. With equal shares the order of
    the classes is that of the predictions. A class without examples (share 0) scores -inf.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(shares > 0, (predictions - shares) / np.sqrt(shares), -np.inf)


def observed(predictions: Matrix, shares: Matrix) -> Matrix:
    """Scores that leave the shares of the classes as they are; a class without examples scores -inf."""
    way = predictions.shape[-1]
    return np.where(shares > 0, np.sqrt(way) * predictions, -np.inf)


def held_out_shares(targets: Matrix) -> Matrix:
    """For each example, the shares of the classes among all other examples (n, way)."""
    shares: Matrix = (targets.sum(0) - targets) / max(len(targets) - 1, 1)
    return shares
