"""What a fitted classifier can tell beyond its answers: how good, how foreign, what is odd, what to label next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sklearn.utils.validation import check_is_fitted

from handful.errors import InvalidOptionError, NotEnoughImagesError
from handful.estimator.cholesky import Matrix
from handful.estimator.estimate import ScoreEstimate, estimate_score
from handful.estimator.explain import Explanation, explain, suggest
from handful.estimator.rejection import rejection_threshold
from handful.estimator.state import State


class Looking(ABC):
    """The part of `FewShotClassifier` that looks at what was learnt and changes nothing."""

    _state: State

    @abstractmethod
    def _features(self, X: Any) -> Matrix:
        """Features of queries in any form."""

    @property
    def score_estimate_(self) -> ScoreEstimate:
        """Accuracy by leave-one-out, with its 95% interval."""
        check_is_fitted(self)
        state, held = self._state, self._state.held_out
        right = state.held_out_scores[held].argmax(1) == state.codes[held]
        return estimate_score(right, state.head.exact)

    def unknown_score(self, X: Any) -> Matrix:
        """How much each query looks like none of the classes; `unknown_threshold` says from where on it does."""
        features = self._features(X)
        return self._state.unknown_scores(features)

    def unknown_threshold(self, false_rejection: float = 0.05) -> float:
        """The unknown score that this share of new images of known classes exceeds, judging by held-out examples."""
        check_is_fitted(self)
        if not 0 <= false_rejection < 1:
            raise InvalidOptionError(f"false_rejection is a share in [0, 1), but got {false_rejection}.")
        scores = self._state.held_out_unknown_scores
        if not len(scores):
            raise NotEnoughImagesError(
                "A threshold for unknown queries is set by holding out examples, but every class has one only. "
                "Give at least one class a second example, or compare unknown_score with a threshold of your own."
            )
        return rejection_threshold(scores, false_rejection)

    def explain(self, X: Any = None, k: int = 5) -> Explanation:
        """The k examples that most look mislabelled, the k most confused pairs of classes and, for queries X, the k
        nearest examples of each.
        """
        check_is_fitted(self)
        _require_count(k)
        return explain(self._state, None if X is None else self._features(X), k)

    def suggest(self, X: Any, k: int = 10) -> list[int]:
        """The positions of the k unlabelled images (or features) that are most worth labelling, best first."""
        check_is_fitted(self)
        _require_count(k)
        return suggest(self._state, self._features(X), k)


def _require_count(k: int) -> None:
    if k < 1:
        raise InvalidOptionError(f"k must be at least 1, but got {k}.")
