"""What the examples say: an honest interval, mislabelled examples, confusions, neighbours, images worth labelling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit

from handful.classifier import FewShotClassifier
from handful.classifier.answers import ScoreEstimate
from handful.classifier.estimate import (
    DOUBT_SCALE,
    LOGIT_SPREAD,
    MISLABELLED,
    PER_CLASSES,
    PER_SHOTS,
    PER_SHOTS_SPREAD,
    STEP_SPREAD,
    STEPS,
    USUAL_LOGIT,
    USUAL_SHARE,
    inferred_accuracy,
    label_doubts,
)
from handful.classifier.selection import surprise
from handful.errors import InvalidOptionError
from tests.classifier.drawings import SHAPES, drawing, write_folder
from tests.classifier.test_classifier import NAMES, task


@pytest.mark.parametrize(
    ("shots", "spread", "together"), [(12, 1.0, 400_000), (12, 4.0, 400_000), (3, 0.05, 1), (30, 0.2, 4_000)]
)
def test_doubts_are_the_average_over_all_scales_and_shares(
    shots: int, spread: float, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, _, _ = task([shots] * 4, 30, spread=spread)
    y[[1, shots + 2]] = NAMES[[2, 3]]
    state = FewShotClassifier().fit(X, y)._state
    monkeypatch.setattr("handful.classifier.estimate.TOGETHER", together)
    held = state.held_out
    scores, rows = state.held_out_scores[held], np.arange(len(held))
    wrong, total = np.zeros(len(held)), 0.0
    for step in STEPS:
        logits = DOUBT_SCALE * state.usual_scale * np.exp(step) * scores
        own = np.exp(logits - logits.max(1, keepdims=True))
        own = own[rows, state.codes[held]] / own.sum(1)
        for share in MISLABELLED:
            labels = (1 - share) * own + share / 3 * (1 - own)
            weight = np.exp(np.log(labels).sum() - surprise(step / STEP_SPREAD) - share / USUAL_SHARE)
            wrong += weight * share / 3 * (1 - own) / labels
            total += weight
    assert label_doubts(state) == pytest.approx(wrong / total, abs=1e-5)  # float32, and scales that are left out


def test_mislabelled_examples_are_found_first() -> None:
    X, y, _, _ = task([12] * 4, 30)
    y[[3, 20, 41]] = NAMES[[2, 3, 0]]
    found = FewShotClassifier().fit(X, y).explain(k=3)
    assert {suspect.index for suspect in found.suspects} == {3, 20, 41}
    assert {(suspect.label, suspect.looks_like) for suspect in found.suspects} == {
        ("cat", "auk"),
        ("dog", "bee"),
        ("auk", "dog"),
    }
    probabilities = [suspect.probability for suspect in found.suspects]
    assert probabilities == sorted(probabilities, reverse=True)
    assert "looks like auk" in str(found)
    assert f"(the label is wrong with a probability of {100 * probabilities[0]:.0f}%)" in str(found)


def test_confused_classes_are_counted_as_refits_would() -> None:
    X, y, _, _ = task([10] * 3, 6, spread=2.5)
    clf = FewShotClassifier(lam=1.0).fit(X, y)
    guesses = [
        FewShotClassifier(lam=1.0).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[i : i + 1])[0]
        for i in range(len(X))
    ]
    counted = {(each.label, each.taken_for): each.count for each in clf.explain(k=99).confusions}
    for label in NAMES[:3]:
        for other in NAMES[:3]:
            wanted = sum(g == other and t == label for g, t in zip(guesses, y, strict=True))
            assert counted.get((label, other), 0) == (wanted if label != other else 0)
    shares = [each.share for each in clf.explain(k=99).confusions]
    assert all(0 < share <= 1 for share in shares)


def test_an_example_is_its_own_nearest_neighbour() -> None:
    X, y, _, _ = task([4, 5, 6])
    near = FewShotClassifier().fit(X, y).explain(X, k=3).neighbours
    assert [neighbours[0].index for neighbours in near] == list(range(15))
    assert all(abs(neighbours[0].similarity - 1) < 1e-9 for neighbours in near)
    assert all(neighbours[1].similarity >= neighbours[2].similarity for neighbours in near)


def test_nothing_suspicious_says_so() -> None:
    X, y, _, _ = task([6, 6], spread=0.1)
    assert "No example looks mislabelled" in str(FewShotClassifier().fit(X, y).explain())


@pytest.mark.parametrize("e", [5, 50])
def test_the_first_suggestion_takes_most_variance_from_the_doubtful(e: int) -> None:
    X, y, pool, _ = task([3, 4, 4], e)
    pool = pool[::9]
    clf = FewShotClassifier(lam=1.0).fit(X, y)
    state = clf._state
    doubt = 1 - clf.predict_proba(pool).max(1)
    centred = torch.from_numpy(pool - state.origin)
    left = [doubt @ state.factor.add(centred[i : i + 1]).variances(centred).numpy() for i in range(len(pool))]
    assert clf.suggest(pool, k=1) == [int(np.argmin(left))]


def test_suggestions_are_different_and_teach_more_than_chance() -> None:
    gains = []
    for seed in range(8):
        X, y, queries, truth = task([1] * 6, 25, seed, spread=1.3)
        pool, pool_labels = queries[::3], truth[::3]
        rest = np.arange(len(queries)) % 3 > 0
        clf = FewShotClassifier().fit(X, y)
        chosen = clf.suggest(pool, k=12)
        assert len(set(chosen)) == 12
        chance = np.random.default_rng(seed).choice(len(pool), 12, replace=False)
        scores = [
            FewShotClassifier()
            .fit(np.concatenate([X, pool[picked]]), np.concatenate([y, pool_labels[picked]]))
            .score(queries[rest], truth[rest])
            for picked in (chosen, chance)
        ]
        gains.append(scores[0] - scores[1])
    assert np.mean(gains) > 0


def test_suggested_images_are_named_as_they_were_given(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 2))
    clf = FewShotClassifier(cache=False).fit(folder)
    pool = [drawing(shape, 40 + number) for number, shape in enumerate(SHAPES)]
    positions = clf.suggest(clf.transform(pool), k=3)
    assert clf.suggest(np.stack([np.asarray(each) for each in pool]), k=3) == positions
    assert all(one is pool[i] for one, i in zip(clf.suggest(pool, k=3), positions, strict=True))
    paths = [tmp_path / "pool" / f"{number}.png" for number in range(len(pool))]
    paths[0].parent.mkdir()
    for path, image in zip(paths, pool, strict=True):
        image.save(path)
    assert clf.suggest(paths, k=3) == clf.suggest(tmp_path / "pool", k=3) == [paths[i] for i in positions]
    assert clf.suggest(str(tmp_path / "pool"), k=3) == [str(paths[i]) for i in positions]
    assert clf.suggest([], k=3) == []


def test_counts_that_make_no_sense_are_refused() -> None:
    X, y, pool, _ = task([3, 4])
    clf = FewShotClassifier().fit(X, y)
    with pytest.raises(InvalidOptionError, match="at least 1"):
        clf.suggest(pool, k=0)
    with pytest.raises(InvalidOptionError, match="at least 1"):
        clf.explain(k=-1)
    assert len(clf.suggest(pool[:2], k=5)) == 2


QUERIES = 120


def held(shots: int, rng: np.random.Generator) -> bool:
    """Whether the interval holds the accuracy of new images, in a task whose difficulty and slope are drawn."""
    way = int(rng.integers(5, 21))
    logit = USUAL_LOGIT - PER_CLASSES * np.log(way / 10) + LOGIT_SPREAD * rng.normal()
    slope = PER_SHOTS + PER_SHOTS_SPREAD * rng.normal()
    right = rng.binomial(shots, expit(logit + slope * np.log(max(shots - 1, 1))), way) if shots > 1 else np.zeros(way)
    tested = np.full(way, shots if shots > 1 else 0)
    mean, weight = inferred_accuracy(right, tested, np.full(way, float(shots)))
    truth = rng.binomial(QUERIES, expit(logit + slope * np.log(shots))) / QUERIES
    low, high = ScoreEstimate(mean, 0, 1, way * shots, weight=weight).interval(QUERIES)
    return bool(low <= truth <= high)


@pytest.mark.parametrize("shots", [1, 2, 3, 5, 10])
def test_the_interval_holds_the_truth_as_often_as_it_says(shots: int) -> None:
    rng = np.random.default_rng(shots)
    share = np.mean([held(shots, rng) for _ in range(400)])
    assert 0.92 <= share <= 0.985  # 95%, with three standard errors of 400 tasks


def test_one_image_per_class_leaves_the_spread_of_similar_tasks() -> None:
    mean, weight = inferred_accuracy(np.zeros(10), np.zeros(10), np.ones(10))
    assert 0.65 < mean < 0.8
    assert 3 < weight < 12
