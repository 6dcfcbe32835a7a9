"""Ridge regression that is shrunk towards known class vectors, for example text embeddings of the class names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from handful.classifier.heads import Head, LinearMap, ridge_map
from handful.classifier.inputs import Labels, Matrix
from handful.classifier.selection import RIDGE_SCALE, calibrate, size_of
from handful.errors import InvalidOptionError

WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0)
"""Weights to choose from; at 1, the prior's scores are as large as the targets if a query points along a vector.

A weight w has a prior cost of w nats, so that uninformative vectors are ignored after a few examples."""


@dataclass(frozen=True, eq=False)
class Prior:
    """The labels (n,) of some classes and a vector in feature space for each, (n, e)."""

    labels: NDArray[Any]
    vectors: Matrix

    def weights(self, classes: NDArray[Any]) -> Matrix:
        """The vectors minus their mean as weights (e, way); 0 for a class without one, so that it counts as average."""
        rows = {label: row for row, label in enumerate(self.labels.tolist())}
        places = np.array([rows.get(label, -1) for label in classes.tolist()])
        weights = np.zeros((len(places), self.vectors.shape[1]))
        if (places >= 0).any():
            weights[places >= 0] = self.vectors[places[places >= 0]]
            weights[places >= 0] -= weights[places >= 0].mean(0)
        return weights.T


def prior_from(given: Any, learner: str, labels: NDArray[Any], e: int) -> Prior | None:
    """The prior that a user gave, checked against the learner, the labels and the number of features."""
    if given is None:
        return None
    if learner != "ridge":
        raise InvalidOptionError(
            f"prior works with learner='ridge', but got learner={learner!r}. Leave out one of them."
        )
    if not isinstance(given, Mapping) or not given:
        raise InvalidOptionError("prior maps labels to vectors, for example {'heron': [0.1, ...], 'owl': [0.3, ...]}.")
    classes = np.unique(labels)
    unknown = [label for label in given if label not in set(classes.tolist())]
    if unknown:
        some = ", ".join(str(each) for each in classes[:10])
        raise InvalidOptionError(
            f"prior has a vector for {unknown[0]!r}, but no example has that label. The labels are {some}."
        )
    known = np.array([label in given for label in classes.tolist()])
    return Prior(classes[known], np.stack([_vector(given[label], label, e) for label in classes[known].tolist()]))


def _vector(given: Any, label: Any, e: int) -> Matrix:
    try:
        vector: Matrix = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.full(0, np.nan)
    if vector.shape != (e,) or not np.isfinite(vector).all():
        raise InvalidOptionError(
            f"prior needs {e} finite numbers for {label!r}, one per feature, but got an array of shape "
            f"{vector.shape}. Embed the class names with the model that embeds the images."
        )
    return vector


@dataclass(frozen=True)
class PriorHead(Head):
    """Ridge regression with the penalty lam ||W - P||^2: X P is subtracted from the targets, and x P added again.

    A fit is linear in its targets, so this adds x P minus the fit to X P to the scores. P does not depend on the
    examples, so leave-one-out stays exact. It is added after the classes are balanced, in units of those targets.
    """

    ridge: Head
    P: Matrix
    """Prior weights (e, way)."""

    @cached_property
    def shift(self) -> LinearMap:
        """What the prior adds to the scores."""
        fitted = ridge_map(self.factor, self.features @ self.P)
        return LinearMap(self.P - fitted.weights, -fitted.bias)

    def held_out_shift(self, groups: Labels) -> Matrix:
        """What the prior adds to the scores of each example by a fit without its group."""
        scores = torch.from_numpy(self.features @ self.P)
        shift: Matrix = self.factor.residuals_without(self.factor.residuals(scores), torch.from_numpy(groups)).numpy()
        return shift

    def scores(self, features: Matrix) -> Matrix:
        """The scores of ridge regression plus the shift."""
        return self.ridge.scores(features) + self.shift(features)

    def fitted(self) -> Matrix:
        """Like those of any query."""
        return self.scores(self.features)

    def linear(self) -> LinearMap:
        """The scores as the sum of two linear maps."""
        ridge = self.ridge.linear()
        return LinearMap(ridge.weights + self.shift.weights, ridge.bias + self.shift.bias)

    def held_out(self, groups: Labels) -> Matrix:
        """Exact, from the factor."""
        return self.ridge.held_out(groups) + self.held_out_shift(groups)


def choose_weight(ridge: Head, P: Matrix, groups: Labels) -> float:
    """The most probable weight of P by leave-one-out, at the lambda of a fit without a prior.

    A held-out example that is the only one of its class is predicted by the prior alone, because the target column of
    its class is 0 without it, and so is its ridge score. So even one example per class is evidence.
    """
    size = float(np.square(P).sum(0).mean())
    if size == 0:
        return 0.0
    unit = float(np.sqrt(P.shape[1] / (size * size_of(ridge.features))))
    scores, shift = (
        ridge.held_out(groups),
        PriorHead(ridge.factor, ridge.targets, ridge, unit * P).held_out_shift(groups),
    )
    scores = np.where(np.isfinite(scores), scores, 0.0)
    codes, counted = ridge.targets.argmax(1), 1 / np.bincount(groups)[groups]

    def cost(weight: float) -> float:
        return weight + calibrate(scores + weight * shift, codes, RIDGE_SCALE, precision=0.05, weights=counted).loss

    return unit * min(WEIGHTS, key=cost)
