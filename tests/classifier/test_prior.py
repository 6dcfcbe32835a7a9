"""Ridge regression towards class vectors: the closed form, its weight, exact updates, and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handful.classifier import FewShotClassifier
from handful.classifier.inputs import Matrix
from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from tests.classifier.test_classifier import NAMES, assert_same, task


def vectors(way: int, e: int, seed: int = 0, noise: float = 0.2) -> dict[Any, Matrix]:
    """The true means of the classes of `task`, far from the origin and disturbed, as text embeddings would be."""
    means = np.random.default_rng(seed).normal(size=(way, e))
    rng = np.random.default_rng([seed, 1])
    return dict(zip(NAMES[:way].tolist(), 3 + means + noise * rng.normal(size=(way, e)), strict=True))


def closed_form(clf: FewShotClassifier, X: Matrix, y: Any, queries: Matrix) -> Matrix:
    """Scores of the minimum of ||T - X W - b||^2 + lam ||W - P||^2, at the lambda and weight of the classifier."""
    shares = (y[:, None] == clf.classes_).mean(0)
    targets = np.sqrt(len(shares)) * (y[:, None] == clf.classes_)
    if clf.balance:
        targets = ((y[:, None] == clf.classes_) - shares) / np.sqrt(shares)
    given = [each for each in clf.classes_ if each in clf.prior]
    mean = np.mean([clf.prior[each] for each in given], 0)
    P = clf.prior_weight_ * np.stack([clf.prior[c] - mean if c in given else 0 * mean for c in clf.classes_], 1)
    centred = X - X.mean(0)
    W = np.linalg.solve(centred.T @ centred + clf.lam_ * np.eye(X.shape[1]), centred.T @ targets + clf.lam_ * P)
    scores: Matrix = (queries - X.mean(0)) @ W + targets.mean(0)
    return scores


@pytest.mark.parametrize("e", [4, 30])
@pytest.mark.parametrize("balance", [True, False])
def test_scores_and_leave_one_out_equal_the_closed_form(e: int, balance: bool) -> None:
    X, y, queries, _ = task([4, 5, 3, 3], e, spread=3)
    prior = vectors(3, e)  # the fourth class has no vector
    clf = FewShotClassifier(prior=prior, balance=balance).fit(X, y)
    assert clf.prior_weight_ > 0
    np.testing.assert_allclose(clf.decision_function(queries), closed_form(clf, X, y, queries), atol=1e-9)
    held = [closed_form(clf, np.delete(X, i, 0), np.delete(y, i), X[i : i + 1])[0] for i in range(len(X))]
    np.testing.assert_allclose(clf.state_.held_out_scores, held, atol=1e-9)
    linear = clf.state_.head.linear()
    np.testing.assert_allclose(linear(queries - clf.state_.origin), clf.decision_function(queries), atol=1e-9)


def test_weight_0_equals_no_prior() -> None:
    X, y, queries, _ = task([3, 4, 2])
    same = dict.fromkeys(NAMES[:3].tolist(), np.ones(20))  # vectors that are all the same say nothing
    clf = FewShotClassifier(prior=same).fit(X, y)
    assert clf.prior_weight_ == 0
    plain = FewShotClassifier().fit(X, y)
    np.testing.assert_array_equal(clf.predict_proba(queries), plain.predict_proba(queries))
    assert_same(clf, plain, queries)


def test_at_one_shot_a_helpful_prior_is_used_and_a_random_one_is_not() -> None:
    gains, weights = [], []
    for seed in range(8):
        X, y, queries, truth = task([1] * 6, 64, seed, spread=2.5)
        plain = FewShotClassifier().fit(X, y).score(queries, truth)
        random = {name: np.random.default_rng([seed, 9, i]).normal(size=64) for i, name in enumerate(NAMES)}
        fits = [FewShotClassifier(prior=prior).fit(X, y) for prior in (vectors(6, 64, seed), random)]
        gains.append([fit.score(queries, truth) - plain for fit in fits])
        weights.append([fit.prior_weight_ for fit in fits])
    helpful, useless = np.mean(gains, 0)
    assert helpful > 0.2
    assert useless > -0.03
    assert np.mean(weights, 0)[1] < 0.2 * np.mean(weights, 0)[0]
    assert np.median(weights, 0)[1] == 0


@pytest.mark.parametrize("e", [4, 30])
def test_updates_equal_fresh_fits(e: int) -> None:
    X, y, queries, _ = task([4, 5, 3, 3], e, spread=3)
    prior = vectors(4, e)
    del prior["dog"]
    clf = FewShotClassifier(prior=prior).fit(X[:12], y[:12]).partial_fit(X[12:], y[12:])
    assert clf.prior_weight_ > 0
    assert_same(clf, FewShotClassifier(prior=prior).fit(X, y), queries)
    moved = y.copy()
    moved[0] = "bee"
    assert_same(clf.relabel("bee", index=0), FewShotClassifier(prior=prior).fit(X, moved), queries)
    left = y != "bee"
    left[0] = False
    rest = {label: vector for label, vector in prior.items() if label != "bee"}
    assert_same(clf.forget(label="bee"), FewShotClassifier(prior=rest).fit(X[left], y[left]), queries)
    # the vector of a forgotten class waits for it
    again = clf.partial_fit(X[~left], moved[~left])
    order = np.concatenate([np.flatnonzero(left), np.flatnonzero(~left)])
    assert_same(again, FewShotClassifier(prior=prior).fit(X[order], moved[order]), queries)


def test_a_prior_survives_its_file(tmp_path: Path) -> None:
    X, y, queries, _ = task([3, 4, 2], 12, spread=3)
    clf = FewShotClassifier(prior=vectors(3, 12)).fit(X[:8], y[:8])
    clf.save(tmp_path / "a.handful")
    loaded = FewShotClassifier.load(tmp_path / "a.handful")
    assert loaded.prior_weight_ == clf.prior_weight_ > 0
    assert_same(loaded, clf, queries)
    assert_same(loaded.partial_fit(X[8:], y[8:]), clf.partial_fit(X[8:], y[8:]), queries)
    tensors, facts = read_checkpoint(tmp_path / "a.handful")
    for change in (
        {"prior_labels": ["auk", "bee"]},
        {"prior_labels": ["auk", "bee", 3]},
        {"prior_labels": ["auk", "bee", "bee"]},
        {"prior_weight": -1.0},
        {"prior_weight": float("inf")},
        {"learner": "prototypes"},
    ):
        write_checkpoint(tmp_path / "b.handful", tensors, {**facts, **change})
        with pytest.raises(CheckpointError):
            FewShotClassifier.load(tmp_path / "b.handful")
    for damaged in (tensors["prior"][:, 1:].clone(), tensors["prior"].float(), tensors["prior"] * float("nan")):
        write_checkpoint(tmp_path / "b.handful", {**tensors, "prior": damaged}, facts)
        with pytest.raises(CheckpointError):
            FewShotClassifier.load(tmp_path / "b.handful")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"prior": {"yak": np.ones(20)}}, "'yak'.* auk, bee"),
        ({"prior": {"auk": np.ones(19)}}, r"20 .*'auk'.*\(19,\)"),
        ({"prior": {"auk": np.full(20, np.nan)}}, "20 finite .*'auk'"),
        ({"prior": {"auk": ["a"] * 20}}, "20 finite .*'auk'"),
        ({"prior": np.ones((2, 20))}, "'heron'.*'owl'"),
        ({"prior": {}}, "'heron'.*'owl'"),
        ({"prior": {"auk": np.ones(20)}, "learner": "logistic"}, "learner='ridge'.*learner='logistic'"),
    ],
)
def test_a_prior_that_cannot_work_is_refused_with_the_reason(options: dict[str, Any], reason: str) -> None:
    X, y, _, _ = task([4, 5])
    with pytest.raises(InvalidOptionError, match=reason):
        FewShotClassifier(**options).fit(X, y)
