"""Pictures that occur twice: exact copies count once, near copies are held out together, two classes are an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handful.classifier import FewShotClassifier, duplicates
from handful.classifier.duplicates import duplicate_groups
from handful.classifier.estimate import estimate, label_doubts
from handful.classifier.examples import Options, Source, fit_state
from handful.errors import DataError
from tests.classifier.drawings import SHAPES, drawing, write_folder
from tests.classifier.test_classifier import NAMES, assert_same, task


def copied(folder: Path, target: Path) -> Path:
    """A folder with every file twice."""
    for file in sorted(folder.glob("*/*")):
        (target / file.parent.name).mkdir(parents=True, exist_ok=True)
        for name in (file.name, f"copy of {file.name}"):
            (target / file.parent.name / name).write_bytes(file.read_bytes())
    return target


def test_copying_every_file_changes_nothing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "once", dict.fromkeys(SHAPES, 3))
    once = FewShotClassifier(cache=False).fit(folder)
    twice = FewShotClassifier(cache=False).fit(copied(folder, tmp_path / "twice"))
    assert len(twice.labels_) == 12
    assert twice.learnt_.added == 12
    assert len(twice.learnt_.repeated) == 12
    assert twice.score_estimate_ == once.score_estimate_


def test_learning_the_same_folder_twice_changes_nothing_and_says_so(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))
    clf = FewShotClassifier(cache=False).fit(folder)
    before = clf.snapshot()
    clf.partial_fit(folder)
    assert clf.version_ == before.version_
    assert clf.learnt_.added == 0
    assert "Nothing changed: 12 images already known" in str(clf.learnt_)
    drawing("bar", 77).save(folder / "bar" / "new.png")
    clf.partial_fit(folder)
    assert "1 image learnt, 12 images already known" in str(clf.learnt_)


def test_the_same_picture_in_two_classes_is_an_error_that_names_both(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))
    clf = FewShotClassifier(cache=False).fit(folder)
    twin = folder / "hook" / "twin.png"
    twin.write_bytes((folder / "bar" / "1.png").read_bytes())
    for learn in (FewShotClassifier(cache=False).fit, clf.partial_fit):
        with pytest.raises(DataError, match=r"bar.1\.png .*'bar'.*twin\.png .*'hook'"):
            learn(folder)
    with pytest.raises(DataError, match=r"bar.1\.png .*'bar'.*twin\.png .*'hook'"):
        clf.partial_fit([twin], ["hook"])  # the other one was learnt before
    assert clf.version_ == 1
    clf.relabel("hook", image=folder / "bar" / "1.png")
    assert (clf.labels_ == "hook").sum() == 4


@pytest.mark.parametrize("learner", ["ridge", "prototypes"])
@pytest.mark.parametrize("e", [6, 40])
def test_near_duplicates_are_held_out_together_as_refits_would(learner: str, e: int) -> None:
    X, y, _, _ = task([3, 4, 3], e, spread=2.0)
    X, y = np.vstack([X, X[[0, 4]]]), np.concatenate([y, y[[0, 4]]])
    state = FewShotClassifier(learner=learner, lam=2.0).fit(X, y)._state
    assert state.groups[0] == state.groups[10] != state.groups[1]
    for group in np.unique(state.groups):
        left = state.groups != group
        refit = FewShotClassifier(learner=learner, lam=2.0).fit(X[left], y[left])._state
        # prototypes are in units of the features' size, which the refit measures again
        unit = 1.0 if learner == "ridge" else refit.head._size / state.head._size  # type: ignore[attr-defined]
        expected = unit * refit.scores(X[~left])
        np.testing.assert_allclose(state.held_out_scores[~left], expected, rtol=1e-8, atol=1e-8)
        if learner == "prototypes":
            continue  # the ridge regression beside them has a lambda that each refit chooses
        variances = refit.factor.variances(_tensor(X[~left] - refit.origin)).numpy()
        held = state.factor.leave_group_out_variances(_tensor(state.groups)).numpy()[~left]
        np.testing.assert_allclose(held, variances, rtol=1e-7, atol=1e-9)


def test_features_of_altered_copies_are_near_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(24, 60)), np.arange(24) % 4
    altered = X + 0.2 * rng.normal(size=X.shape)
    both, twice = np.vstack([X, altered]), np.tile(codes, 2)
    groups = duplicate_groups(both, twice, np.ones(48, dtype=bool))
    np.testing.assert_array_equal(groups[:24], groups[24:])
    assert len(np.unique(groups)) == 24
    # what was given as features is no picture, so only equal rows are duplicates
    assert len(np.unique(duplicate_groups(both, twice, np.zeros(48, dtype=bool)))) == 48
    assert len(np.unique(duplicate_groups(np.vstack([X, X]), twice, np.zeros(48, dtype=bool)))) == 24


def test_altered_copies_of_all_images_do_not_move_the_estimate() -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(size=(5, 40))
    y = np.arange(5).repeat(4)
    X = means[y] + 2.0 * rng.normal(size=(20, 40))

    def picture(row: Any) -> Any:
        return np.clip(128 + 20 * row, 0, 255).astype(np.uint8).reshape(5, 8)

    def embedded(images: Any) -> Any:
        return images.mean(1).flatten(1)

    from handful.classifier import ImageEmbedding

    embedding = ImageEmbedding(embedded, size=8, fit="squash")
    once = FewShotClassifier(embedding, cache=False).fit([picture(row) for row in X], y)
    near = [picture(row + 0.1 * rng.normal(size=40)) for row in X]
    twice = FewShotClassifier(embedding, cache=False).fit([*map(picture, X), *near], np.tile(y, 2))
    assert len(twice.estimate().duplicates) == 20
    # with leave-one-out alone every image is recognised by its copy, and the estimate is 100%
    assert abs(twice.score_estimate_.accuracy - once.score_estimate_.accuracy) < 0.03


def test_equal_features_are_all_kept() -> None:
    X, y, queries, _ = task([3, 3])
    both = FewShotClassifier(lam=1.0).fit(np.vstack([X, X[:1]]), [*y, "bee"])
    assert len(both.labels_) == 7
    assert_same(both.forget(index=6).retune(), FewShotClassifier(lam=1.0).fit(X, y), queries)
    assert list(NAMES[:2]) == list(both.classes_)


def _tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)


def test_different_images_of_compact_classes_are_no_duplicates() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(3), 8)
    features = 20 * rng.normal(size=(3, 40))[codes] + rng.normal(size=(24, 40))  # far apart, each class close together
    assert len(np.unique(duplicate_groups(features, codes, np.ones(24, dtype=bool)))) == 24
    altered = features + 0.1 * rng.normal(size=features.shape)
    groups = duplicate_groups(np.vstack([features, altered]), np.tile(codes, 2), np.ones(48, dtype=bool))
    assert (groups[:24] == groups[24:]).all()
    assert len(np.unique(groups)) == 24


@pytest.mark.parametrize("pairs", [1, 40])
def test_groups_do_not_depend_on_how_many_pairs_are_compared_at_once(
    pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    X = draw.integers(0, 3, (60, 2)) + 1e-3 * draw.normal(size=(60, 2))
    codes, images = draw.integers(0, 3, 60), draw.random(60) < 0.7
    whole = duplicate_groups(X, codes, images)
    assert 10 < whole.max() < 50
    monkeypatch.setattr(duplicates, "PAIRS", pairs)
    np.testing.assert_array_equal(duplicate_groups(X, codes, images), whole)


def test_what_a_changed_state_is_handed_equals_what_a_fresh_look_finds() -> None:
    """Groups, sizes and doubts after updates that do not fit anew; the first of a group goes, and a new one joins."""
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(8, 30)), 6, 0) + rng.normal(size=(48, 30))
    rows[[1, 13, 20]] = rows[[0, 12, 19]] + 0.01 * rng.normal(size=(3, 30))  # near duplicates in three classes
    labels = np.repeat([f"class {code}" for code in range(8)], 6)
    sources = [Source(f"{row}.png", f"{row:064x}") for row in range(48)]
    state = fit_state(Options(tune_limit=0), rows, labels, sources)
    estimate(state)
    assert sorted(state.group_sizes.tolist())[-6:] == [2] * 6
    twin = rows[30:31] + 0.01 * rng.normal(size=(1, 30))
    for changed in (
        state.relabel([19], "class 7"),
        state.remove([0, 19]),
        state.add(twin, labels[30:31], [Source("twin.png", "f" * 64)]),
        state.relabel([12, 13], "class 0").remove([5]).add(twin, labels[30:31], [Source("twin.png", "f" * 64)]),
    ):
        assert changed.origin is state.origin
        assert {"groups", "sums", "squares"} <= changed.__dict__.keys()
        fresh = replace(changed)  # the same values, and nothing known of them
        assert changed.groups.tolist() == fresh.groups.tolist()
        assert changed.usual_scale == pytest.approx(fresh.usual_scale, rel=1e-12)
        assert label_doubts(changed) == pytest.approx(label_doubts(fresh), abs=1e-6)  # computed in float32
        assert changed.held_out_unknown_scores == pytest.approx(fresh.held_out_unknown_scores, abs=1e-9)
