"""Results of a classifier as frozen values with one JSON form for Python, the command line and HTTP."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from handful.errors import InvalidOptionError

TAIL = 0.025
"""The probability beyond each end of a 95% interval."""
PRIOR = 0.5
"""Pseudo-counts of right and of wrong answers (Jeffreys' prior)."""
DIGITS = 6
"""Decimals of numbers in JSON."""


class Plain:
    """Base of frozen dataclasses of plain values that can be converted to JSON."""

    def to_json(self) -> dict[str, Any]:
        """Only dictionaries, lists, text, numbers, booleans and None; numbers that are not finite become None."""
        return {field.name: _json(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def _json(value: Any) -> Any:
    if is_dataclass(value) and isinstance(value, Plain):
        return value.to_json()
    if isinstance(value, tuple | list):
        return [_json(each) for each in value]
    if isinstance(value, float):
        return round(value, DIGITS) if math.isfinite(value) else None
    return value


def plain(label: Any) -> Any:
    """A label as a built-in Python type."""
    return label.item() if isinstance(label, np.generic) else label


# ---------------------------------------------------------------------------------------------------- about one query


@dataclass(frozen=True)
class Choice(Plain):
    """A class and its probability."""

    label: Any
    probability: float


@dataclass(frozen=True)
class Neighbour(Plain):
    """An example close to a query."""

    index: int
    name: str
    label: Any
    similarity: float
    """Cosine of the angle between query and example, with the mean of all examples as the origin."""


@dataclass(frozen=True)
class Answer(Plain):
    """The answer to one query, by one version of a classifier."""

    image: str
    """The path or number of the query; empty for features."""
    label: Any
    """The most probable class, or None if the query was rejected as unknown."""
    probability: float
    """Probability of the most probable class, whether the query was rejected or not."""
    top: tuple[Choice, ...]
    """The most probable classes, most probable first."""
    unknown_score: float
    """How much the query looks like none of the classes."""
    rejected: bool
    """Whether `unknown_score` is above the requested threshold."""
    nearest: tuple[Neighbour, ...]
    """The most similar examples, most similar first."""
    version: int
    """The version of the classifier that gave this answer."""


# ---------------------------------------------------------------------------------------- about what has been learnt


@dataclass(frozen=True)
class Example(Plain):
    """One learnt example."""

    index: int
    """Position in the order of learning; it changes when earlier examples are forgotten."""
    digest: str
    """SHA-256 of the image file, or of the features if those were given; it never changes."""
    name: str
    label: Any


@dataclass(frozen=True)
class Learnt(Plain):
    """What the last `fit` or `partial_fit` learnt."""

    added: int
    """Examples that were new."""
    repeated: tuple[str, ...] = ()
    """Names of the images that were already known in the same class and changed nothing."""

    def __str__(self) -> str:
        if not self.repeated:
            return f"{_images(self.added)} learnt"
        known = f"{_images(len(self.repeated))} already known (for example {self.repeated[0]})"
        return f"{_images(self.added)} learnt, {known}" if self.added else f"Nothing changed: {known}"


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count} classes"


@dataclass(frozen=True)
class ClassEstimate(Plain):
    """How well one class is recognised, according to leave-one-out."""

    label: Any
    images: int
    tested: int
    """Images that could be held out: none if the class has only one; near duplicates count as one."""
    right: float
    """How many of those were recognised; a tie among k classes counts as 1 / k."""
    low: float
    """Lower end of the 95% interval for the share of new images of this class that will be recognised."""
    high: float
    """Upper end of that interval."""


@dataclass(frozen=True)
class Confusion(Plain):
    """A pair of classes that leave-one-out confuses."""

    label: Any
    taken_for: Any
    count: int
    share: float
    """Share of the examples of `label` that can be held out."""


@dataclass(frozen=True)
class Doubtful(Plain):
    """An example whose label is probably wrong."""

    index: int
    digest: str
    name: str
    label: Any
    looks_like: Any
    probability: float
    """Probability that the label is wrong."""


@dataclass(frozen=True)
class DuplicateGroup(Plain):
    """Examples so similar that they count as one picture when accuracy is estimated."""

    indices: tuple[int, ...]
    names: tuple[str, ...]
    label: Any


@dataclass(frozen=True)
class Need(Plain):
    """A class that needs more images."""

    label: Any
    images: int
    reason: str


@dataclass(frozen=True)
class ScoreEstimate(Plain):
    """Accuracy on new images, all classes equally frequent, estimated by holding out examples, with its 95% interval.

    The only example of a class cannot be held out. The accuracy of such classes is inferred from the others, and the
    interval is wider to reflect that; `untested` counts them.
    """

    accuracy: float
    low: float
    """Lower end of the interval for the accuracy on arbitrarily many new images."""
    high: float
    """Upper end of that interval."""
    examples: int
    """Examples that were held out."""
    exact: bool = True
    """True if it equals refitting without each example, False if it is a one-step approximation."""
    untested: int = 0
    """Number of classes in which nothing could be held out."""
    weight: float = 0.0
    """The equivalent number of independent tests."""

    def interval(self, new_images: int) -> tuple[float, float]:
        """The 95% interval for the accuracy on a test set of `new_images`; wider, because that set is a sample too.

        It is a beta-binomial prediction. Compare the accuracy on your own test set with it.
        """
        if new_images < 1:
            raise InvalidOptionError(f"new_images must be at least 1, but got {new_images}.")
        a, b, k = self.accuracy * self.weight, (1 - self.accuracy) * self.weight, np.arange(new_images + 1)
        ways = -np.log(new_images + 1) - scipy.special.betaln(new_images - k + 1, k + 1)
        reached = np.cumsum(np.exp(ways + scipy.special.betaln(k + a, new_images - k + b) - scipy.special.betaln(a, b)))
        low, high = np.searchsorted(reached, [TAIL, 1 - TAIL])
        return float(low) / new_images, float(min(high, new_images)) / new_images

    def __float__(self) -> float:
        return self.accuracy

    def __str__(self) -> str:
        interval = f"95% interval {100 * self.low:.0f} to {100 * self.high:.0f}%"
        if not self.examples and self.low == self.high:
            return f"{100 * self.accuracy:.0f}%, which is chance, because all images have the same features"
        if not self.examples:
            return f"untested, because no class has two images to hold one out; from similar tasks, {interval}"
        about = "" if self.exact else "about "
        untested = f"; {_classes(self.untested)} with one image could not be tested" if self.untested else ""
        return (
            f"{about}{100 * self.accuracy:.1f}% on new images, all classes equally frequent, by holding out "
            f"{_images(self.examples)} ({interval}{untested})"
        )


@dataclass(frozen=True)
class Estimate(Plain):
    """Everything that can be learnt about a classifier by holding out its examples."""

    score: ScoreEstimate
    classes: tuple[ClassEstimate, ...]
    """In the order of `classes_`."""
    confusion: tuple[tuple[int, ...], ...]
    """Numbers of held-out examples by label (rows) and predicted class (columns)."""
    confusions: tuple[Confusion, ...]
    """Pairs of classes, most frequently confused first."""
    doubtful: tuple[Doubtful, ...]
    """Labels that are probably wrong, most probable first."""
    duplicates: tuple[DuplicateGroup, ...]
    needs: tuple[Need, ...]
    """Classes that need more images, most urgent first."""
    version: int
    """The version of the classifier that this describes."""


def estimate_score(right: NDArray[np.bool_]) -> ScoreEstimate:
    """The estimate from many held-out examples alone, with Jeffreys' interval (Brown, Cai and DasGupta 2001)."""
    n, k = len(right), int(right.sum())
    low, high = (float(scipy.special.betaincinv(k + PRIOR, n - k + PRIOR, tail)) for tail in (TAIL, 1 - TAIL))
    return ScoreEstimate(k / n, low if k else 0.0, high if k < n else 1.0, n, weight=n + 2 * PRIOR)
