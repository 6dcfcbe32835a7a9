"""FewShotClassifier as a citizen of scikit-learn: its own estimator checks, pipelines, searches and clones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from handful.classifier import FewShotClassifier
from handful.classifier.selection import softmax


@parametrize_with_checks([FewShotClassifier()])
def test_scikit_learn_accepts_the_classifier(
    estimator: FewShotClassifier, check: Callable[[FewShotClassifier], None]
) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        FewShotClassifier(balance=False, lam=0.5),
        FewShotClassifier(learner="prototypes"),
        FewShotClassifier(learner="logistic", lam=1.0),
        FewShotClassifier(learner="softmax", lam=1.0),
    ]
)
def test_scikit_learn_accepts_its_other_learners(
    estimator: FewShotClassifier, check: Callable[[FewShotClassifier], None]
) -> None:
    check(estimator)


def test_it_works_in_pipelines_searches_and_cross_validation() -> None:
    X, y = make_blobs(60, n_features=5, centers=3, random_state=0)
    names = np.array(["heron", "owl", "tern"])[y]
    pipeline = make_pipeline(StandardScaler(), FewShotClassifier())
    assert cross_val_score(pipeline, X, names, cv=3).min() > 0.9
    search = GridSearchCV(pipeline, {"fewshotclassifier__lam": ["auto", 0.1, 10.0]}, cv=3).fit(X, names)
    assert search.best_score_ > 0.9
    assert set(search.predict(X)) == {"heron", "owl", "tern"}


def test_a_clone_has_the_parameters_and_nothing_learnt() -> None:
    X, y = make_blobs(20, centers=2, random_state=0)
    copy = clone(FewShotClassifier(learner="prototypes", lam=2.0, balance=False, tune_limit=7).fit(X, y))
    assert copy.get_params()["tune_limit"] == 7
    assert not copy.__sklearn_is_fitted__()


def test_softmax_regression_is_scikit_learns() -> None:
    X, y = make_blobs(40, n_features=6, centers=4, cluster_std=4.0, random_state=1)
    ours = FewShotClassifier(learner="softmax", lam=2.0).fit(X, y)
    theirs = LogisticRegression(C=1 / 2.0, tol=1e-8, max_iter=1000).fit(X, y)
    # our bias is penalised, if hardly
    np.testing.assert_allclose(softmax(ours.decision_function(X)), softmax(theirs.decision_function(X)), atol=5e-3)


@pytest.mark.parametrize("n_features", [3, 200])
def test_without_balance_it_is_scikit_learns_ridge_classifier(n_features: int) -> None:
    X, y = make_blobs([30, 10, 4, 7], n_features=n_features, centers=None, cluster_std=6.0, random_state=1)
    queries = make_blobs(200, n_features=n_features, cluster_std=8.0, random_state=2)[0]
    ours = FewShotClassifier(lam=3.0, balance=False).fit(X, y)
    theirs = RidgeClassifier(alpha=3.0, solver="cholesky").fit(X, y)
    np.testing.assert_array_equal(ours.predict(queries), theirs.predict(queries))
    # theirs regresses on -1 and 1, ours on 0 and 1 times sqrt(4 classes); rounding of a well-posed system
    np.testing.assert_allclose(ours.decision_function(queries) - 1.0, theirs.decision_function(queries), atol=1e-9)
