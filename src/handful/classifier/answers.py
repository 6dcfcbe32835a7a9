"""What a classifier says, as plain frozen values with one JSON form for Python, the command line and HTTP."""

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
    """A frozen dataclass of plain values that turns into JSON field by field."""

    def to_json(self) -> dict[str, Any]:
        """Only dictionaries, lists, text, numbers, booleans and None; a number that is not finite becomes None."""
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
    """A label as Python's own type."""
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
    """Cosine of the angle between query and example, seen from the mean of all examples."""


@dataclass(frozen=True)
class Answer(Plain):
    """The answer to one query, by one version of a classifier."""

    image: str
    """The path or the number under which the query was given; empty for features."""
    label: Any
    """The most probable class, or None if the query was rejected as unknown."""
    probability: float
    """Of the most probable class, whether rejected or not."""
    top: tuple[Choice, ...]
    """The most probable classes, most probable first."""
    unknown_score: float
    """How much the query looks like none of the classes."""
    rejected: bool
    """Whether `unknown_score` is above the threshold that was asked for."""
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
    """SHA-256 of the image file, or of the features if those were given: it stays the same."""
    name: str
    label: Any


@dataclass(frozen=True)
class Learnt(Plain):
    """What the last `fit` or `partial_fit` took in."""

    added: int
    """Examples that were new."""
    repeated: tuple[str, ...] = ()
    """Names of the images that were already known in the same class, so that they changed nothing."""

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
    """How well one class is recognised, by leave-one-out."""

    label: Any
    images: int
    tested: int
    """Images that could be held out: none if it is the only one of its class, near duplicates counted as one."""
    right: float
    """Of those, how many were recognised; a tie counts as chance."""
    low: float
    """Lower end of the 95% interval of the share of new images of this class that will be recognised."""
    high: float
    """Upper end of that interval."""


@dataclass(frozen=True)
class Confusion(Plain):
    """A pair of classes that leave-one-out takes for each other."""

    label: Any
    taken_for: Any
    count: int
    share: float
    """Of the examples of `label` that can be held out."""


@dataclass(frozen=True)
class Doubtful(Plain):
    """An example whose label is probably wrong."""

    index: int
    digest: str
    name: str
    label: Any
    looks_like: Any
    probability: float
    """That the label is wrong."""


@dataclass(frozen=True)
class DuplicateGroup(Plain):
    """Examples so similar that they count as one picture when accuracy is estimated."""

    indices: tuple[int, ...]
    names: tuple[str, ...]
    label: Any


@dataclass(frozen=True)
class Need(Plain):
    """A class that more images would help most."""

    label: Any
    images: int
    reason: str


@dataclass(frozen=True)
class ScoreEstimate(Plain):
    """Accuracy on new images, all classes equally frequent, estimated by holding out examples, with its 95% interval.

    An example that is the only one of its class cannot be held out. For classes of that kind the accuracy is inferred
    from the others, at a width of the interval that is honest about it; `untested` counts them.
    """

    accuracy: float
    low: float
    """Lower end of the interval of the accuracy on any number of new images."""
    high: float
    """Upper end of that interval."""
    examples: int
    """Examples that were held out."""
    exact: bool = True
    """True if it equals refitting without each example, False if it is a one-step approximation."""
    untested: int = 0
    """Classes of which nothing could be held out."""
    weight: float = 0.0
    """The number of independent tests that would say as much."""

    def interval(self, new_images: int) -> tuple[float, float]:
        """The 95% interval of the accuracy on a test set of `new_images`: wider, because that set is a sample too.

        It is the beta-binomial prediction. Compare the accuracy on your own test set with it.
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
    """Everything that holding out the examples says about a classifier."""

    score: ScoreEstimate
    classes: tuple[ClassEstimate, ...]
    """In the order of `classes_`."""
    confusion: tuple[tuple[int, ...], ...]
    """Held-out examples by their label (rows) and by the class that they were taken for (columns)."""
    confusions: tuple[Confusion, ...]
    """Pairs of classes, the most frequently confused first."""
    doubtful: tuple[Doubtful, ...]
    """Labels that are probably wrong, the most probably wrong first."""
    duplicates: tuple[DuplicateGroup, ...]
    needs: tuple[Need, ...]
    """Classes that more images would help, the neediest first."""
    version: int
    """The version of the classifier that this is about."""


def estimate_score(right: NDArray[np.bool_]) -> ScoreEstimate:
    """The estimate from many held-out examples alone, with Jeffreys' interval (Brown, Cai and DasGupta 2001)."""
    n, k = len(right), int(right.sum())
    low, high = (float(scipy.special.betaincinv(k + PRIOR, n - k + PRIOR, tail)) for tail in (TAIL, 1 - TAIL))
    return ScoreEstimate(k / n, low if k else 0.0, high if k < n else 1.0, n, weight=n + 2 * PRIOR)
