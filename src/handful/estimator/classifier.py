"""`FewShotClassifier`: a scikit-learn classifier that learns from a handful of examples, exactly and at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from handful.errors import InvalidOptionError, NotEnoughImagesError
from handful.estimator.calibration import ScoreEstimate, estimate_score, softmax
from handful.estimator.cholesky import Matrix
from handful.estimator.sources import Source
from handful.estimator.state import Lam, Options, fit_state


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Ridge regression (or another learner) on features, with exact updates and exact leave-one-out.

    `lam="auto"` chooses lambda by leave-one-out. `balance` treats all classes as equally likely however many examples
    each has; without it the ridge learner follows their shares. Up to `tune_limit` examples, `partial_fit` and `forget`
    choose lambda and scale anew, so that they equal a fresh fit in every respect; beyond it they keep both until
    the number of examples has changed by a quarter, and equal a fresh fit at that lambda.
    """

    def __init__(
        self, learner: str = "ridge", lam: Lam = "auto", *, balance: bool = True, tune_limit: int = 300
    ) -> None:
        self.learner = learner
        self.lam = lam
        self.balance = balance
        self.tune_limit = tune_limit

    def fit(self, X: Any, y: Any) -> FewShotClassifier:
        """Learn from features (n, e) and labels, forgetting what was learnt before."""
        with self._unchanged_on_error():
            features, labels, sources = self._examples(X, y, first=True)
            options = Options(self.learner, self.lam, self.balance, self.tune_limit)
            self._state = fit_state(options, features, labels, sources)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> FewShotClassifier:
        """Learn from more examples, of classes old or new.

        `classes` is accepted because scikit-learn's convention has it, and is not needed: a class exists from its
        first example on.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        with self._unchanged_on_error():
            self._state = self._state.add(*self._examples(X, y, first=False))
        return self

    def forget(self, *, index: int | Sequence[int] | None = None, label: Any = None) -> FewShotClassifier:
        """Unlearn examples by their position in the order of learning, or a whole class, as if they had never been."""
        check_is_fitted(self)
        if (index is None) == (label is None):
            raise InvalidOptionError("forget takes either index=... or label=..., one of the two.")
        rows = self._rows_of(label) if index is None else self._checked_rows(index)
        self._state = self._state.remove(rows)
        return self

    def retune(self) -> FewShotClassifier:
        """Choose lambda and scale anew, as a fresh fit to the same examples does."""
        check_is_fitted(self)
        self._state = self._state.retuned()
        return self

    def decision_function(self, X: Any) -> Matrix:
        """Scores (q, way); for two classes, the score of the second over that of the first, (q,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities (q, way), in the order of `classes_`, with the scale that leave-one-out finds most likely."""
        scores = self._scores(X)
        return softmax(self._state.scale * scores)

    def predict(
        self, X: Any, *, unknown: Literal["reject"] | None = None, false_rejection: float = 0.05
    ) -> NDArray[Any]:
        """The most probable class of each query.

        With `unknown="reject"`, queries that look like none of the classes get None, by a threshold at which
        `false_rejection` of the held-out examples would be rejected.
        """
        features = self._features(X)
        labels: NDArray[Any] = self.classes_[self._state.scores(features).argmax(1)]
        if unknown is None:
            return labels
        if unknown != "reject":
            raise InvalidOptionError(f"unknown must be None or 'reject', but got {unknown!r}.")
        rejected = self._state.unknown_scores(features) > self.unknown_threshold(false_rejection)
        answers = labels.astype(object)
        answers[rejected] = None
        return answers

    def unknown_score(self, X: Any) -> Matrix:
        """How much each query looks like none of the classes: about -1 for a clear member, 1 for a stranger."""
        return self._state.unknown_scores(self._features(X))

    def unknown_threshold(self, false_rejection: float = 0.05) -> float:
        """The unknown score that this share of the held-out examples exceeds."""
        check_is_fitted(self)
        if not 0 <= false_rejection < 1:
            raise InvalidOptionError(f"false_rejection is a share in [0, 1), but got {false_rejection}.")
        scores = self._state.held_out_unknown_scores
        if not len(scores):
            raise NotEnoughImagesError(
                "A threshold for unknown queries is set by holding out examples, but every class has one only. "
                "Give at least one class a second example, or compare unknown_score with a threshold of your own."
            )
        return float(np.quantile(scores, 1 - false_rejection))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of all scores and probabilities."""
        check_is_fitted(self)
        return self._state.classes

    @property
    def labels_(self) -> NDArray[Any]:
        """The label of each example, in the order of learning."""
        check_is_fitted(self)
        labels: NDArray[Any] = self._state.classes[self._state.codes]
        return labels

    @property
    def lam_(self) -> float:
        """The lambda in use."""
        check_is_fitted(self)
        return self._state.head_lam

    @property
    def scale_(self) -> float:
        """What scores are multiplied with before softmax."""
        check_is_fitted(self)
        return self._state.scale

    @property
    def score_estimate_(self) -> ScoreEstimate:
        """Accuracy by leave-one-out, with its 95% interval."""
        check_is_fitted(self)
        state, held = self._state, self._state.held_out
        right = state.held_out_scores[held].argmax(1) == state.codes[held]
        return estimate_score(right, state.head.exact)

    def __sklearn_is_fitted__(self) -> bool:
        return "_state" in self.__dict__

    def _scores(self, X: Any) -> Matrix:
        features = self._features(X)
        return self._state.scores(features)

    def _features(self, X: Any) -> Matrix:
        check_is_fitted(self)
        features: Matrix = validate_data(self, X, reset=False, dtype=np.float64)
        return features

    def _examples(self, X: Any, y: Any, first: bool) -> tuple[Matrix, NDArray[Any], tuple[Source, ...]]:
        features, labels = validate_data(self, X, y, reset=first, dtype=np.float64)
        check_classification_targets(labels)
        return features, labels, (Source(),) * len(labels)

    def _rows_of(self, label: Any) -> list[int]:
        rows = np.flatnonzero(self.labels_ == label)
        if not len(rows):
            known = ", ".join(str(each) for each in self.classes_[:10])
            raise InvalidOptionError(f"There is no class {label!r} to forget. The classes are {known}.")
        return [int(row) for row in rows]

    def _checked_rows(self, index: int | Sequence[int]) -> list[int]:
        n = len(self._state.codes)
        rows = [int(row) for row in np.atleast_1d(np.asarray(index, dtype=np.int64))]
        outside = [row for row in rows if not 0 <= row < n]
        if outside:
            raise InvalidOptionError(f"There is no example {outside[0]}: they are numbered from 0 to {n - 1}.")
        return sorted(set(rows))

    @contextmanager
    def _unchanged_on_error(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
