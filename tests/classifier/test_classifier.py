"""FewShotClassifier on features: updates equal fresh fits, leave-one-out equals refits, failures change nothing."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError

from handful.classifier import FewShotClassifier
from handful.errors import HandfulError, InvalidOptionError, NotEnoughClassesError, NotEnoughImagesError

NAMES = np.array(["auk", "bee", "cat", "dog", "elk", "fox"])


def task(
    counts: list[int], e: int = 20, seed: int = 0, spread: float = 1.0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Gaussian classes with the given numbers of examples, and 30 queries per class."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(len(counts), e))
    X = np.concatenate([mean + spread * rng.normal(size=(n, e)) for mean, n in zip(means, counts, strict=True)])
    queries = np.concatenate([mean + spread * rng.normal(size=(30, e)) for mean in means])
    return X, NAMES[: len(counts)].repeat(counts), queries, NAMES[: len(counts)].repeat(30)


def assert_same(one: FewShotClassifier, other: FewShotClassifier, queries: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(one.classes_, other.classes_)
    np.testing.assert_allclose(one.lam_, other.lam_, rtol=1e-8)
    # the scale is found by search to a relative 1e-4, from inputs that differ in rounding
    np.testing.assert_allclose(one.scale_, other.scale_, rtol=1e-6)
    for method in ("decision_function", "unknown_score"):
        np.testing.assert_allclose(getattr(one, method)(queries), getattr(other, method)(queries), rtol=1e-8, atol=1e-8)
    assert one.score_estimate_ == other.score_estimate_


@settings(max_examples=25, deadline=None)
@given(
    e=st.sampled_from([3, 40]),
    lam=st.sampled_from(["auto", 0.5]),
    learner=st.sampled_from(["ridge", "prototypes"]),
    limit=st.sampled_from([0, 300]),
    moves=st.lists(st.tuples(st.sampled_from(["add", "forget", "class"]), st.integers(0, 999)), min_size=1, max_size=8),
)
def test_any_sequence_of_updates_equals_a_fresh_fit(
    e: int, lam: Any, learner: str, limit: int, moves: list[tuple[str, int]]
) -> None:
    X, y, queries, _ = task([3, 1, 4, 2, 5, 3], e)
    options = {"learner": learner, "lam": lam, "tune_limit": limit}
    start = 8  # the rest is added in the course of the moves
    updated = FewShotClassifier(**options).fit(X[:start], y[:start])
    held = list(range(start))
    for kind, pick in moves:
        outside = [i for i in range(len(X)) if i not in held]
        if kind == "add" and outside:
            i = outside[pick % len(outside)]
            updated.partial_fit(X[i : i + 1], y[i : i + 1])
            held.append(i)
        elif kind == "forget" and len(set(y[held[: pick % len(held)]]) | set(y[held[pick % len(held) + 1 :]])) > 1:
            updated.forget(index=pick % len(held))
            del held[pick % len(held)]
        elif kind == "class" and len(set(y[held])) > 2:
            label = sorted(set(y[held]))[pick % len(set(y[held]))]
            updated.forget(label=label)
            held = [i for i in held if y[i] != label]
    fresh = FewShotClassifier(**options).fit(X[held], y[held])
    np.testing.assert_array_equal(updated.labels_, y[held])
    assert_same(updated.retune() if limit == 0 else updated, fresh, queries)


def test_beyond_the_limit_an_update_keeps_lambda_until_a_quarter_has_changed() -> None:
    X, y, queries, _ = task([10, 10, 10, 12], e=15)
    clf = FewShotClassifier(tune_limit=0).fit(X[:30], y[:30])
    lam = clf.lam_
    clf.partial_fit(X[30:37], y[30:37])
    assert clf.lam_ == lam
    fresh = FewShotClassifier(lam=lam).fit(X[:37], y[:37])
    np.testing.assert_allclose(clf.decision_function(queries), fresh.decision_function(queries), atol=1e-8)
    clf.partial_fit(X[37:], y[37:])
    assert_same(clf, FewShotClassifier(tune_limit=0).fit(X, y), queries)


@pytest.mark.parametrize("learner", ["ridge", "prototypes"])
@pytest.mark.parametrize("e", [4, 60])
@pytest.mark.parametrize("balance", [True, False])
def test_held_out_examples_are_right_where_refits_are(learner: str, e: int, balance: bool) -> None:
    X, y, _, _ = task([3, 6, 1, 4], e, spread=2.0)
    clf = FewShotClassifier(learner=learner, lam=2.0, balance=balance).fit(X, y)
    right = []
    for i in np.flatnonzero(y != NAMES[2]):
        without = FewShotClassifier(learner=learner, lam=2.0, balance=balance).fit(np.delete(X, i, 0), np.delete(y, i))
        right.append(without.predict(X[i : i + 1])[0] == y[i])
    found = clf.estimate()
    assert sum(each.right for each in found.classes) == sum(right)
    assert np.trace(found.confusion) == sum(right)
    assert found.score.examples == 13
    assert found.score.untested == 1
    assert found.score.exact


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["logistic", "softmax"])
@pytest.mark.parametrize("lam", [0.1, 10.0])
def test_approximate_leave_one_out_removes_most_of_the_optimism_of_the_fit(learner: str, lam: float) -> None:
    X, y, _, _ = task([6, 7, 8], 5, spread=1.5)
    clf = FewShotClassifier(learner=learner, lam=lam).fit(X, y)
    refits = [
        FewShotClassifier(learner=learner, lam=lam)
        .fit(np.delete(X, i, 0), np.delete(y, i))
        .decision_function(X[i : i + 1])[0]
        for i in range(len(X))
    ]
    gap = np.abs(clf._state.held_out_scores - refits).mean()
    # one Newton step from the fit; at the weaker regularisation the refits are further away
    assert gap < 0.5 * np.abs(clf._state.scores(X) - refits).mean()
    assert not clf.score_estimate_.exact
    assert str(clf.score_estimate_).startswith("about")


@pytest.mark.parametrize("learner", ["ridge", "logistic", "softmax"])
def test_balance_saves_a_class_that_has_few_examples(learner: str) -> None:
    X, y, queries, truth = task([20, 20, 20, 2], 30, spread=1.6)
    rare = truth == NAMES[3]
    plain = FewShotClassifier(learner=learner, balance=False).fit(X, y)
    fair = FewShotClassifier(learner=learner, balance=True).fit(X, y)
    assert fair.score(queries[rare], truth[rare]) > plain.score(queries[rare], truth[rare]) + 0.2
    assert fair.score(queries, truth) > plain.score(queries, truth)


def test_probabilities_are_calibrated_on_new_examples() -> None:
    gaps = []
    for seed in range(12):
        X, y, queries, truth = task([12] * 6, 30, seed, spread=2.2)
        clf = FewShotClassifier().fit(X, y)
        gaps.append(clf.predict_proba(queries).max(1).mean() - clf.score(queries, truth))
    # the scale of one task follows its 72 examples, whose own accuracy has a standard deviation of 0.05, and the
    # scale that is usual for images, which these features pull by 0.05
    assert abs(np.mean(gaps)) < 0.06
    assert np.std(gaps) < 0.08


def test_a_shift_of_all_features_changes_nothing() -> None:
    X, y, queries, _ = task([3, 4, 5])
    far = 1e5
    one, other = FewShotClassifier(lam=1.0).fit(X, y), FewShotClassifier(lam=1.0).fit(X + far, y)
    # features near 1e5 keep 16 - 5 digits
    np.testing.assert_allclose(one.decision_function(queries), other.decision_function(queries + far), atol=1e-8)


def test_one_example_a_class_is_enough_to_learn_but_not_to_estimate() -> None:
    X, y, queries, truth = task([1] * 5, spread=0.3)
    clf = FewShotClassifier().fit(X, y)
    assert clf.score(queries, truth) > 0.95
    assert clf.score_estimate_.examples == 0
    assert "untested" in str(clf.score_estimate_)
    assert clf.score_estimate_.high - clf.score_estimate_.low > 0.4
    with pytest.raises(NotEnoughImagesError, match="second example"):
        clf.predict(queries, unknown="reject")


def test_strangers_are_rejected_and_members_are_not() -> None:
    X, y, queries, truth = task([8] * 6, 40)
    known, stranger = y != NAMES[5], truth == NAMES[5]
    clf = FewShotClassifier().fit(X[known], y[known])
    answers = clf.predict(queries, unknown="reject", false_rejection=0.1)
    rejected = np.array([answer is None for answer in answers])
    assert rejected[stranger].mean() > 0.7
    assert rejected[~stranger].mean() < 0.2
    plain = clf.predict(queries)
    np.testing.assert_array_equal(answers[~rejected], plain[~rejected])


@pytest.mark.parametrize(
    ("action", "error"),
    [
        (lambda clf, X, y: clf.fit(X[:2], y[:2]), NotEnoughClassesError),
        (lambda clf, X, y: clf.fit(X, y[:-1]), ValueError),
        (lambda clf, X, y: clf.fit(X[:0], y[:0]), ValueError),
        (lambda clf, X, y: clf.partial_fit(X[:, :5], y), ValueError),
        (lambda clf, X, y: clf.partial_fit(np.full_like(X, np.nan), y), ValueError),
        (lambda clf, X, y: clf.forget(index=99), InvalidOptionError),
        (lambda clf, X, y: clf.forget(index=[0, -1]), InvalidOptionError),
        (lambda clf, X, y: clf.forget(label="yak"), InvalidOptionError),
        (lambda clf, X, y: clf.forget(), InvalidOptionError),
        (lambda clf, X, y: clf.forget(index=range(4, 9)), NotEnoughClassesError),
        (lambda clf, X, y: clf.forget(index=range(9)), NotEnoughClassesError),
    ],
)
def test_a_change_that_fails_leaves_the_classifier_as_it_was(action: Any, error: type[Exception]) -> None:
    X, y, queries, _ = task([4, 5])
    clf = FewShotClassifier().fit(X, y)
    before = copy.deepcopy(clf)
    with pytest.raises(error):
        action(clf, X, y)
    assert clf.n_features_in_ == before.n_features_in_
    assert_same(clf, before, queries)


@pytest.mark.parametrize(
    "options",
    [{"learner": "forest"}, {"lam": -1.0}, {"lam": np.nan}, {"lam": "best"}, {"learner": "logistic", "lam": 0}],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    X, y, _, _ = task([4, 5])
    with pytest.raises(HandfulError, match=r"learner|lam"):
        FewShotClassifier(**options).fit(X, y)


def test_an_unfitted_classifier_says_so() -> None:
    for ask in (lambda clf: clf.classes_, lambda clf: clf.score_estimate_, lambda clf: clf.forget(index=0)):
        with pytest.raises(NotFittedError):
            ask(FewShotClassifier())
