"""Every head: scores of queries, one linear map for all of them, and leaving out each example against refits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from handful.classifier.heads import MAKERS, Head, RidgeHead, balanced, held_out_shares, maker
from handful.classifier.inputs import Matrix
from handful.errors import InvalidOptionError
from handful.solvers.factor import ridge_factor

WAY, LAM = 3, 0.5
every_learner = pytest.mark.parametrize("learner", MAKERS)


def problem(features: int) -> tuple[Matrix, Matrix]:
    """Three clusters of 3, 4 and 5 examples."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(WAY), [3, 4, 5])
    centres = 3 * generator.normal(size=(WAY, features))
    return centres[labels] + 0.3 * generator.normal(size=(len(labels), features)), np.eye(WAY)[labels]


def fitted(learner: str, X: Matrix, targets: Matrix, balance: bool = True) -> Head:
    return maker(learner).fit(RidgeHead(ridge_factor(torch.from_numpy(X), LAM), targets, balance), LAM)


@every_learner
@pytest.mark.parametrize("features", [4, 40], ids=["tall", "wide"])
def test_a_head_learns_clusters(learner: str, features: int) -> None:
    X, targets = problem(features)
    head = fitted(learner, X, targets)
    assert (head.scores(X).argmax(1) == targets.argmax(1)).all()
    np.testing.assert_allclose(head.fitted(), head.scores(X), atol=1e-9)


@every_learner
def test_the_linear_map_gives_the_scores_up_to_a_constant_of_the_query(learner: str) -> None:
    X, targets = problem(6)
    head, queries = fitted(learner, X, targets), np.random.default_rng(1).normal(size=(5, 6))
    gap = head.scores(queries) - head.linear()(queries)
    np.testing.assert_allclose(gap, gap[:, :1] @ np.ones((1, WAY)), atol=1e-10)


@pytest.mark.parametrize("learner", ["ridge", "prototypes"])
def test_leaving_out_each_example_equals_refits_where_it_says_so(learner: str) -> None:
    X, targets = problem(6)
    head = fitted(learner, X, targets)
    assert head.exact
    rest = [np.delete(np.arange(len(X)), i) for i in range(len(X))]
    refits = np.stack([fitted(learner, X[r], targets[r]).scores(X[i : i + 1])[0] for i, r in enumerate(rest)])
    held = head.held_out(np.arange(len(X)))
    if learner == "prototypes":  # in units of the features' size, which a refit takes without the example
        assert (held.argmax(1) == refits.argmax(1)).all()
    else:
        np.testing.assert_allclose(held, refits, atol=1e-9)


@every_learner
def test_a_class_with_no_other_example_cannot_be_answered(learner: str) -> None:
    X, targets = problem(6)
    keep = [0, *range(3, 12)]
    assert fitted(learner, X[keep], targets[keep]).held_out(np.arange(len(keep)))[0, 0] == -np.inf


def test_balancing_ridge_leaves_no_class_at_a_disadvantage() -> None:
    shares = np.array([0.1, 0.9])
    np.testing.assert_allclose(balanced(np.array([[0.1, 0.9]]), shares), [[0, 0]], atol=1e-15)
    assert balanced(np.array([[0.2, 0.8]]), shares).argmax() == 0


def test_held_out_shares_are_those_of_all_other_examples() -> None:
    np.testing.assert_allclose(held_out_shares(np.eye(2)[[0, 0, 1]], np.arange(3))[0], [0.5, 0.5])
    np.testing.assert_allclose(held_out_shares(np.eye(2)[[0, 0, 1]], np.array([0, 0, 1]))[0], [0, 1])


def test_an_unknown_learner_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidOptionError, match=r"ridge.*'magic'"):
        maker("magic")
