"""The learners of the classifier, fitted to features: scores of queries, and of every held-out example."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy
import torch

from handful import solvers
from handful.classifier.inputs import Labels, Matrix
from handful.classifier.selection import size_of
from handful.errors import InvalidOptionError
from handful.solvers.factor import RidgeFactor, ridge_factor

BIAS_FREEDOM = 10.0
"""The bias of logistic regression is a constant feature this many times larger than the others, so hardly penalised."""
STEPS = 12
"""Newton steps of logistic and softmax regression, which converge to rounding in far fewer."""


@dataclass(frozen=True)
class LinearMap:
    """Maps features (q, e) to features @ weights + bias (q, way)."""

    weights: Matrix
    bias: Matrix

    def __call__(self, features: Matrix) -> Matrix:
        """Scores of features."""
        scores: Matrix = features @ self.weights + self.bias
        return scores


def ridge_map(factor: RidgeFactor, targets: Matrix) -> LinearMap:
    """The fitted map of ridge regression for targets (n, way)."""
    found = factor.solve(torch.from_numpy(targets))
    return LinearMap(found.weights.numpy(), found.bias.numpy())


def balanced(predictions: Matrix, shares: Matrix) -> Matrix:
    """Scores that do not disadvantage classes with few examples: (f - share) / sqrt(share).

    This is ridge regression on target columns that are centred and scaled to equal size. With a free bias, that can be
    done after the fit, so updates and leave-one-out stay exact. With equal shares the order of the classes is that of
    the predictions. A class without examples (share 0) scores -inf.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(shares > 0, (predictions - shares) / np.sqrt(shares), -np.inf)


def observed(predictions: Matrix, shares: Matrix) -> Matrix:
    """Scores that follow the shares of the classes; a class without examples scores -inf."""
    way = predictions.shape[-1]
    return np.where(shares > 0, np.sqrt(way) * predictions, -np.inf)


def held_out_shares(targets: Matrix, groups: Labels) -> Matrix:
    """The shares of the classes outside each example's group (n, way); a group belongs to one class."""
    sizes = np.bincount(groups)[groups]
    left = targets.sum(0) - targets * sizes[:, None]
    shares: Matrix = left / np.maximum(len(targets) - sizes, 1)[:, None]
    return shares


@dataclass(frozen=True)
class Head(ABC):
    """A learner fitted to the features of a factor, with the origin at 0, and one-hot targets (n, way)."""

    exact: ClassVar[bool] = True
    """Whether its leave-one-out equals refitting."""
    factor: RidgeFactor
    targets: Matrix

    @property
    def features(self) -> Matrix:
        """The examples (n, e)."""
        features: Matrix = self.factor.X.numpy()
        return features

    @abstractmethod
    def scores(self, features: Matrix) -> Matrix:
        """Scores of queries, (q, e) -> (q, way)."""

    @abstractmethod
    def fitted(self) -> Matrix:
        """Scores of the examples themselves (n, way)."""

    @abstractmethod
    def linear(self) -> LinearMap:
        """The scores as one linear map of the features, up to a constant that all classes of a query share."""

    @abstractmethod
    def held_out(self, groups: Labels) -> Matrix:
        """Scores of each example by a fit without its group, (n, way); -inf for a class without other examples."""


@dataclass(frozen=True)
class RidgeHead(Head):
    """Ridge regression on one-hot targets, with or without balanced classes."""

    balance: bool

    @cached_property
    def map(self) -> LinearMap:
        """Weights and bias, so that a query costs one product."""
        return ridge_map(self.factor, self.targets)

    @cached_property
    def residuals(self) -> Matrix:
        """Targets minus predictions (n, way)."""
        residuals: Matrix = self.factor.residuals(torch.from_numpy(self.targets)).numpy()
        return residuals

    def predicted_without(self, groups: Labels) -> Matrix:
        """The prediction for each example by a fit without its group (n, way), before the classes are balanced."""
        left = self.factor.residuals_without(torch.from_numpy(self.residuals), torch.from_numpy(groups))
        predictions: Matrix = self.targets - left.numpy()
        return predictions

    def scores(self, features: Matrix) -> Matrix:
        """Scores from the linear map."""
        return self._scored(self.map(features), self.targets.mean(0))

    def fitted(self) -> Matrix:
        """Scores of the examples from the residuals, without a product of features."""
        return self._scored(self.targets - self.residuals, self.targets.mean(0))

    def linear(self) -> LinearMap:
        """The scores as a linear map; they are linear in the predictions of each class."""
        shares = self.targets.mean(0)
        offset = self._scored(np.zeros((1, len(shares))), shares)[0]
        slope = self._scored(np.ones((1, len(shares))), shares)[0] - offset
        return LinearMap(self.map.weights * slope, self.map.bias * slope + offset)

    def held_out(self, groups: Labels) -> Matrix:
        """Exact, from the factor."""
        return self._scored(self.predicted_without(groups), held_out_shares(self.targets, groups))

    def _scored(self, predictions: Matrix, shares: Matrix) -> Matrix:
        return (balanced if self.balance else observed)(predictions, shares)


@dataclass(frozen=True)
class PrototypeHead(Head):
    """The nearest class mean: minus half the squared distance, in units of the features' size."""

    @cached_property
    def means(self) -> Matrix:
        """Class means (way, e)."""
        means: Matrix = self.targets.T @ self.features / self.targets.sum(0)[:, None]
        return means

    def scores(self, features: Matrix) -> Matrix:
        """Scores from the distances to the means."""
        squares = np.square(features).sum(1)[:, None] - 2 * features @ self.means.T + np.square(self.means).sum(1)
        scores: Matrix = -squares / (2 * self._size)
        return scores

    def fitted(self) -> Matrix:
        """Like those of any query."""
        return self.scores(self.features)

    def linear(self) -> LinearMap:
        """The scores as a linear map, without the squared norm of the query, which all classes share."""
        return LinearMap(self.means.T / self._size, -np.square(self.means).sum(1) / (2 * self._size))

    def held_out(self, groups: Labels) -> Matrix:
        """Exact leave-one-out: only the mean of the example's own class changes, since a group has one class."""
        counts, codes = self.targets.sum(0), self.targets.argmax(1)
        sizes, sums = np.bincount(groups), np.zeros((groups.max() + 1, self.features.shape[1]))
        np.add.at(sums, groups, self.features)
        left = counts[codes] - sizes[groups]
        means = (self.means[codes] * counts[codes, None] - sums[groups]) / np.maximum(left, 1)[:, None]
        moved = -np.square(self.features - means).sum(1) / (2 * self._size)
        scores = self.scores(self.features)
        scores[np.arange(len(codes)), codes] = np.where(left > 0, moved, -np.inf)
        return scores

    @cached_property
    def _size(self) -> float:
        return size_of(self.features)


@dataclass(frozen=True)
class LikelihoodHead(Head):
    """A linear classifier with maximum penalised likelihood and a hardly penalised bias.

    At the optimum the problem of each class is a weighted ridge regression, and leaving out an example there has a
    closed form: the first Newton step towards the refit (Rad and Maleki 2020). With `balance`, the logarithm of its
    share is subtracted from the logit of each class (Menon et al. 2021, eq. 9), so all classes are equally likely.
    """

    exact = False
    lam: float
    balance: bool

    @abstractmethod
    def solve(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        """Weights (e, way) for features (n, e) and one-hot targets (n, way)."""

    @abstractmethod
    def probabilities(self, logits: Matrix) -> Matrix:
        """The model's probabilities of the classes."""

    @cached_property
    def map(self) -> LinearMap:
        """Weights and bias."""
        W = self.solve(torch.from_numpy(self._augmented), torch.from_numpy(self.targets)).numpy()
        return LinearMap(W[:-1], self._bias_column * W[-1] - self._mean @ W[:-1])

    def scores(self, features: Matrix) -> Matrix:
        """Logits."""
        return self.linear()(features)

    def fitted(self) -> Matrix:
        """Like those of any query."""
        return self.scores(self.features)

    def linear(self) -> LinearMap:
        """The logits, minus the logarithms of the shares if balanced."""
        return LinearMap(self.map.weights, self.map.bias + self._adjustment(self.targets.mean(0)))

    def _adjustment(self, shares: Matrix) -> Matrix:
        with np.errstate(divide="ignore"):
            return np.where(shares > 0, -np.log(shares) if self.balance else 0.0, -np.inf)

    def held_out(self, groups: Labels) -> Matrix:
        """z - (I - H)_GG^-1 (z - eta) with the working responses z = eta + (y - mu) / (mu (1 - mu))."""
        eta = self.map(self.features)
        mu = self.probabilities(eta)
        s = np.maximum(mu * (1 - mu), 1e-12)
        steps = (self.targets - mu) / s
        gaps = np.stack([self._gaps(*columns, groups) for columns in zip(steps.T, s.T, strict=True)], 1)
        return eta + steps - gaps + self._adjustment(held_out_shares(self.targets, groups))

    def _gaps(self, steps: Matrix, s: Matrix, groups: Labels) -> Matrix:
        """The steps of ridge regression with weights s when each group is left out; its bias is one of the features."""
        root = np.sqrt(s)
        factor = ridge_factor(torch.from_numpy(self._augmented * root[:, None]), self.lam, bias=False)
        residuals = torch.from_numpy((steps * root)[:, None])
        gaps: Matrix = factor.residuals_without(residuals, torch.from_numpy(groups)).numpy()[:, 0] / root
        return gaps

    @cached_property
    def _mean(self) -> Matrix:
        mean: Matrix = self.features.mean(0)
        return mean

    @cached_property
    def _augmented(self) -> Matrix:
        # centred at the mean, because even a lightly penalised bias depends on the origin
        column = np.full((len(self.targets), 1), self._bias_column)
        return np.hstack([self.features - self._mean, column])

    @cached_property
    def _bias_column(self) -> float:
        return BIAS_FREEDOM * float(np.sqrt(size_of(self.features)))


@dataclass(frozen=True)
class LogisticHead(LikelihoodHead):
    """One-vs-rest logistic regression."""

    def solve(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        """Solve one problem per class, with the smaller system."""
        return solvers.logistic(X, Y, self.lam, STEPS)

    def probabilities(self, logits: Matrix) -> Matrix:
        """One sigmoid per class."""
        sigmoid: Matrix = scipy.special.expit(logits)
        return sigmoid


@dataclass(frozen=True)
class SoftmaxHead(LikelihoodHead):
    """Softmax regression over all classes; its leave-one-out neglects their coupling."""

    def solve(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        """Solve the problem in the dual."""
        return X.mT @ solvers.softmax_dual(solvers.gram(X), Y, self.lam, STEPS)

    def probabilities(self, logits: Matrix) -> Matrix:
        """Softmax over the classes."""
        probabilities: Matrix = scipy.special.softmax(logits, axis=-1)
        return probabilities


FitHead = Callable[[RidgeHead, float], Head]
"""Fits a head, given the ridge regression on the same examples, which every classifier has, and lambda."""
LIKELIHOOD_GRID = (0.1, 0.3, 1.0)


@dataclass(frozen=True)
class HeadMaker:
    """How to fit one learner, and its grid of lambdas, as multiples of the features' size."""

    fit: FitHead
    grid: tuple[float, ...] = ()


MAKERS: Mapping[str, HeadMaker] = {
    "ridge": HeadMaker(lambda ridge, lam: ridge),
    "logistic": HeadMaker(
        lambda ridge, lam: LogisticHead(ridge.factor, ridge.targets, lam, ridge.balance), LIKELIHOOD_GRID
    ),
    "softmax": HeadMaker(
        lambda ridge, lam: SoftmaxHead(ridge.factor, ridge.targets, lam, ridge.balance), LIKELIHOOD_GRID
    ),
    "prototypes": HeadMaker(lambda ridge, lam: PrototypeHead(ridge.factor, ridge.targets)),
}


def maker(learner: str) -> HeadMaker:
    """The maker for the name of a learner."""
    if learner not in MAKERS:
        raise InvalidOptionError(f"learner must be one of {', '.join(MAKERS)}, but got {learner!r}.")
    return MAKERS[learner]
