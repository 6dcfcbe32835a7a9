"""Everything that a fitted classifier knows, as one immutable value; a change returns a new one or raises."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from handful.classifier.duplicates import duplicate_groups, near_limit
from handful.classifier.heads import Head, RidgeHead, balanced, held_out_shares, maker, observed
from handful.classifier.inputs import Labels, Matrix, pictures
from handful.classifier.labels import coded, joined_labels
from handful.classifier.prior import Prior, PriorHead, choose_weight
from handful.classifier.selection import (
    RIDGE_SCALE,
    calibrate,
    choose_lam,
    foreignness,
    size_from,
    size_of,
    usual_scale,
    variety,
)
from handful.errors import InvalidOptionError
from handful.solvers.factor import RidgeFactor, ridge_factor

Lam = float | Literal["auto"]


@dataclass(frozen=True)
class Source:
    """The origin of one example; it is empty for an example that was given as features."""

    name: str = ""
    """The path or number of the example."""
    digest: str = ""
    """SHA-256 of the image file, or of the features if those were given."""
    thumbnail: bytes = b""
    """A small JPEG."""


@dataclass(frozen=True)
class Options:
    """Settings that do not change with the examples."""

    learner: str = "ridge"
    lam: Lam = "auto"
    balance: bool = True
    tune_limit: int = 300
    prior: Prior | None = None


@dataclass(frozen=True)
class State:
    """Examples, their classes, the factor of their ridge regression, and the scale of the scores."""

    options: Options
    classes: NDArray[Any]
    codes: Labels
    sources: tuple[Source, ...]
    origin: Matrix
    """Subtracted from all features; it changes no prediction, and avoids a loss of precision far from 0."""
    factor: RidgeFactor
    head_lam: float
    scale: float
    near: float
    """The squared distance below which images of one class are near duplicates."""
    tuned_at: int
    """The number of examples for which lambda, scale and the distance of near duplicates were chosen."""
    loss: float = 0.0
    """The leave-one-out loss at this lambda and scale, in nats."""
    version: int = 1
    """The number of changes since the first fit."""
    prior_weight: float = 0.0

    @property
    def features(self) -> Matrix:
        """The examples (n, e) minus the origin."""
        features: Matrix = self.factor.X.numpy()
        return features

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each example."""
        labels: NDArray[Any] = self.classes[self.codes]
        return labels

    @cached_property
    def targets(self) -> Matrix:
        """One-hot rows (n, way)."""
        targets = np.zeros((len(self.codes), len(self.classes)))
        targets[np.arange(len(self.codes)), self.codes] = 1
        return targets

    @cached_property
    def counts(self) -> Matrix:
        """Examples of each class."""
        counts: Matrix = self.targets.sum(0)
        return counts

    @cached_property
    def alike(self) -> bool:
        """Whether all examples have the same features, up to rounding."""
        starts = (2**i for i in range((len(self.codes) - 1).bit_length()))
        blocks = (self.features[start : 2 * start] for start in starts)
        return not any(  # the first block, which is the second example, usually decides
            (np.square(each - self.features[0]).sum(1) > 1e-13 * np.square(each + self.origin).sum(1).max()).any()
            for each in blocks
        )

    @cached_property
    def groups(self) -> Labels:
        """The group number of each example; near duplicates in a class form a group and are held out together."""
        return duplicate_groups(self.features, self.codes, _are_images(self.sources), self.near)

    @cached_property
    def group_sizes(self) -> NDArray[np.intp]:
        """The size of each example's group."""
        sizes: NDArray[np.intp] = np.bincount(self.groups)[self.groups]
        return sizes

    @cached_property
    def held_out(self) -> NDArray[np.intp]:
        """The examples that can be held out: those whose class has another example that is not a near duplicate."""
        return np.flatnonzero(self.counts[self.codes] > self.group_sizes)

    @cached_property
    def ridge(self) -> RidgeHead:
        """Ridge regression on the examples, which recognises unknown queries for every learner."""
        return RidgeHead(self.factor, self.targets, self.options.balance)

    @cached_property
    def head(self) -> Head:
        """The fitted learner that answers queries."""
        head = maker(self.options.learner).fit(self.ridge, self.head_lam)
        prior = self.options.prior
        if prior is None or not self.prior_weight:
            return head
        return PriorHead(self.factor, self.targets, head, self.prior_weight * prior.weights(self.classes))

    def scores(self, features: Matrix) -> Matrix:
        """Scores of queries (q, way), before the scale."""
        return self.head.scores(features - self.origin)

    @cached_property
    def held_out_scores(self) -> Matrix:
        """Scores of each example by a fit without its group (n, way); -inf for a class without other examples."""
        return self.head.held_out(self.groups)

    @cached_property
    def usual_scale(self) -> float:
        """The scale of the scores before any evidence."""
        return usual_scale(self.head.fitted(), self.codes, variety(self.squares, self.size))

    def unknown_scores(self, features: Matrix) -> Matrix:
        """The unknown score of each query, from its predictive variance and its best ridge score."""
        centred = features - self.origin
        scores = balanced(self.ridge.map(centred), self.counts / self.counts.sum())
        return self._foreignness(self.factor.variances(torch.from_numpy(centred)), scores)

    @cached_property
    def held_out_unknown_scores(self) -> Matrix:
        """The unknown score of each example that can be held out, by a fit without its group."""
        scores = self.ridge.predicted_without(self.groups)
        variances = self.factor.leave_group_out_variances(torch.from_numpy(self.groups))
        return self._foreignness(variances, balanced(scores, held_out_shares(self.targets, self.groups)))[self.held_out]

    def _foreignness(self, variances: Tensor, scores: Matrix) -> Matrix:
        best = scores.max(1) / np.sqrt(len(self.classes))
        return foreignness(variances.numpy() / self.size, best)

    @cached_property
    def squares(self) -> Matrix:
        """The squared norm of each original example."""
        squares: Matrix = np.square(self.features + self.origin).sum(1)
        return squares

    @cached_property
    def sums(self) -> Matrix:
        """The sum of the examples minus the origin."""
        sums: Matrix = self.features.sum(0)
        return sums

    @cached_property
    def size(self) -> float:
        """The size of the features, which is the unit of predictive variances."""
        size = size_from(self.sums / len(self.codes) + self.origin, float(self.squares.mean()))
        return size or size_of(self.features)

    def add(self, features: Matrix, labels: NDArray[Any], sources: Sequence[Source]) -> State:
        """The state with more examples of known or new classes."""
        classes, codes = coded(joined_labels(self.labels, labels))
        factor = self.factor.add(torch.from_numpy(features - self.origin))
        known, new = self._known(classes), range(len(self.codes), len(codes))
        if known is not None:
            known = np.vstack([known, np.zeros((len(labels), len(classes)))])
        state = self._changed(classes, codes, (*self.sources, *sources), factor, known, new)
        self._hand_on(state, np.arange(len(self.codes)), labels, features)
        return state

    def remove(self, index: Sequence[int]) -> State:
        """The state without some examples; a class disappears with its last example."""
        gone = list(index)
        kept = np.delete(np.arange(len(self.codes)), gone)
        classes, codes = coded(self.labels[kept])
        known = self._known(classes)
        if known is not None:
            known = self.factor.moved_residuals(torch.from_numpy(known), index).numpy()[kept]
        sources = tuple(self.sources[i] for i in kept)
        state = self._changed(classes, codes, sources, self.factor.remove(index), known, ())
        self._hand_on(state, kept, self.labels[gone])
        return state

    def relabel(self, index: Sequence[int], label: Any) -> State:
        """The state with another label for some examples; the factor stays, because it only depends on the features."""
        changed = joined_labels(self.labels, np.array([label]))
        changed[list(index)] = changed[-1]
        classes, codes = coded(changed[:-1])
        state = self._changed(classes, codes, self.sources, self.factor, self._known(classes), index)
        self._hand_on(state, np.arange(len(codes)), [label, *self.labels[list(index)]])
        return state

    def _known(self, classes: NDArray[Any]) -> Matrix | None:
        """The known residuals of ridge regression, with the columns of other classes; None if not known yet."""
        if "residuals" not in self.ridge.__dict__:
            return None
        residuals, stay = np.zeros((len(self.codes), len(classes))), np.isin(self.classes, classes)
        residuals[:, np.searchsorted(classes, self.classes[stay])] = self.ridge.residuals[:, stay]
        return residuals

    def _changed(
        self, classes: NDArray[Any], codes: Labels, sources: tuple[Source, ...], factor: RidgeFactor,
        known: Matrix | None, moved: Sequence[int],
    ) -> State:  # fmt: skip
        """The changed state; `known` are the residuals before some examples moved to their class."""
        state = State(
            self.options, classes, codes, sources, self.origin, factor, self.head_lam, self.scale, self.near,
            self.tuned_at, version=self.version + 1, prior_weight=self.prior_weight,
        )  # fmt: skip
        n = len(codes)
        if n <= self.options.tune_limit or not 0.8 * self.tuned_at <= n <= 1.25 * self.tuned_at:
            return state.retuned()
        if known is not None:
            before, targets = torch.from_numpy(known), torch.from_numpy(state.targets)
            state.ridge.__dict__["residuals"] = factor.moved_residuals(before, moved, targets).numpy()
        return state

    def _hand_on(self, state: State, kept: NDArray[np.intp], labels: Any, added: Matrix | None = None) -> None:
        """Pass what is known about the `kept` examples to a changed state; only classes of `labels` are regrouped."""
        if state.origin is not self.origin:  # a fit from scratch
            return
        known, new, gone = self.__dict__, state.__dict__, np.setdiff1d(np.arange(len(self.codes)), kept)
        if "sums" in known and "squares" in known:
            more = np.empty((0, len(self.origin))) if added is None else added
            new["sums"] = self.sums - self.features[gone].sum(0) + (more - self.origin).sum(0)
            new["squares"] = np.concatenate([self.squares[kept], np.square(more).sum(1)])
        if "groups" in known:
            place = np.full(len(self.codes), -1, dtype=np.intp)
            place[kept] = np.arange(len(kept))
            first = np.full(len(state.codes), -1, dtype=np.intp)
            first[: len(kept)] = place[np.unique(self.groups, return_index=True)[1][self.groups[kept]]]
            first[np.isin(state.classes, labels)[state.codes]] = -1
            new["groups"] = duplicate_groups(state.features, state.codes, _are_images(state.sources), state.near, first)

    def retuned(self) -> State:
        """The state of a fit from scratch to the same examples, with lambda and scale chosen again."""
        return fit_state(self.options, self.features + self.origin, self.labels, self.sources, self.version)


def fit_state(
    options: Options, features: Matrix, labels: NDArray[Any], sources: Sequence[Source], version: int = 1
) -> State:
    """Learn from features (n, e) and labels (n,)."""
    chosen = maker(options.learner)
    classes, codes = coded(labels)
    origin = features.mean(0)
    centred, targets = features - origin, np.eye(len(classes))[codes]
    images = _are_images(sources)
    near = near_limit(centred, codes, images)
    given = options.lam if options.learner == "ridge" else "auto"
    if given == "auto":
        once = np.unique(duplicate_groups(centred, codes, images, near), return_index=True)[1]
        lam = _ridge_lam(options, centred[once], targets[once], codes[once])
    else:
        lam = _positive(given)
    factor = ridge_factor(torch.from_numpy(centred), lam)
    state = State(options, classes, codes, tuple(sources), origin, factor, lam, 1.0, near, len(codes), version=version)
    if options.prior is not None:
        weight = choose_weight(state.head, options.prior.weights(classes), state.groups)
        state = replace(state, prior_weight=weight)
    candidates = [multiple * size_of(centred) for multiple in chosen.grid] or [lam]
    if options.lam != "auto":
        candidates = [_positive(options.lam)]
    return min((_calibrated(replace(state, head_lam=each)) for each in candidates), key=lambda each: each.loss)


def _calibrated(state: State) -> State:
    held = state.held_out
    weights = 1 / state.group_sizes[held]  # a group of near duplicates counts as one example
    calibration = calibrate(state.held_out_scores[held], state.codes[held], state.usual_scale, weights=weights)
    return replace(state, scale=calibration.scale, loss=calibration.loss)


def _are_images(sources: Sequence[Source]) -> NDArray[np.bool_]:
    return np.array([bool(source.name) for source in sources])


def _ridge_lam(options: Options, centred: Matrix, targets: Matrix, codes: Labels) -> float:
    shares, held = held_out_shares(targets, np.arange(len(codes))), np.flatnonzero(targets.sum(0)[codes] > 1)
    scored = balanced if options.balance else observed

    def loss(predictions: Matrix) -> float:
        return calibrate(scored(predictions, shares)[held], codes[held], RIDGE_SCALE, precision=0.05).loss

    return choose_lam(centred, targets, loss)


def _positive(lam: Lam) -> float:
    if isinstance(lam, str) or not (np.isfinite(lam) and lam > 0):
        raise InvalidOptionError(f"lam must be 'auto' or a positive number, but got {lam!r}.")
    return float(lam)


def rows_checked(index: int | Sequence[int], n: int) -> list[int]:
    """Valid positions among n examples, without repetition; `index` may be a mask of n booleans."""
    given = np.atleast_1d(np.asarray(index))
    if given.dtype.kind == "b" and given.shape == (n,):
        given = np.flatnonzero(given)
    if given.size and given.dtype.kind not in "iu":
        raise InvalidOptionError(
            f"index takes whole numbers or a mask of {n} booleans, but got {given.dtype} of shape {given.shape}."
        )
    rows = [int(row) for row in given]
    outside = [row for row in rows if not 0 <= row < n]
    if outside:
        raise InvalidOptionError(f"There is no example {outside[0]}: they are numbered from 0 to {n - 1}.")
    return sorted(set(rows))


def rows_of_label(state: State, label: Any) -> list[int]:
    """All examples of a class."""
    rows = np.flatnonzero(state.classes[state.codes] == label)
    if not len(rows):
        known = ", ".join(str(each) for each in state.classes[:10])
        raise InvalidOptionError(f"There is no class {label!r} to forget. The classes are {known}.")
    return [int(row) for row in rows]


def rows_of_digest(state: State, digest: str) -> list[int]:
    """All examples with this digest."""
    rows = [row for row, source in enumerate(state.sources) if digest and source.digest == digest]
    if not rows:
        raise InvalidOptionError(f"None of the {len(state.sources)} examples has the digest '{digest}'.")
    return rows


def rows_of_image(state: State, image: Any) -> list[int]:
    """All examples with the content of this image or, if there are none, with its name."""
    name = str(image) if isinstance(image, str | Path) else ""
    digest = ""
    if not name or Path(name).is_file():
        (picture,) = pictures([image])
        digest = hashlib.sha256(picture.read()).hexdigest()
    by_content = [row for row, source in enumerate(state.sources) if digest and source.digest == digest]
    rows = by_content or [row for row, source in enumerate(state.sources) if name and source.name == name]
    if not rows:
        raise InvalidOptionError(
            f"None of the {len(state.sources)} examples is {f'the image {name}' if name else 'this image'}."
        )
    return rows
