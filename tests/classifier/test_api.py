"""What others build on: answers, versions, snapshots, and changes by an example's identity; also from many threads."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from handful.classifier import FewShotClassifier, ImageEmbedding
from handful.errors import InvalidOptionError
from tests.classifier.test_classifier import NAMES, assert_same, task


def test_an_answer_has_one_json_form_and_names_its_version() -> None:
    X, y, queries, _ = task([4, 5, 3])
    clf = FewShotClassifier().fit(X, y)
    (answer,) = clf.answer(queries[:1], top=2, nearest_examples=4)
    assert answer.label == clf.predict(queries[:1])[0]
    assert answer.probability == clf.predict_proba(queries[:1]).max()
    assert [choice.probability for choice in answer.top] == sorted(clf.predict_proba(queries[:1])[0])[:0:-1]
    assert answer.version == clf.version_ == 1
    assert answer.unknown_score == clf.unknown_score(queries[:1])[0]
    assert len(answer.nearest) == 4
    written = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    names = {"image", "label", "probability", "top", "unknown_score", "rejected", "nearest", "version"}
    assert set(written) == names
    assert set(written["top"][0]) == {"label", "probability"}
    assert set(written["nearest"][0]) == {"index", "name", "label", "similarity"}
    with pytest.raises(FrozenInstanceError):
        answer.label = "yak"  # type: ignore[misc]


def test_answers_reject_what_predict_rejects() -> None:
    X, y, queries, _ = task([8] * 5, 40)
    clf = FewShotClassifier().fit(X[y != NAMES[4]], y[y != NAMES[4]])
    wanted = clf.predict(queries, unknown="reject", false_rejection=0.1)
    answers = clf.answer(queries, false_rejection=0.1)
    assert [answer.label for answer in answers] == list(wanted)
    assert {answer.rejected for answer in answers} == {True, False}


def test_every_change_counts_as_a_version_and_a_snapshot_keeps_its_own() -> None:
    X, y, queries, _ = task([4, 5, 3])
    clf = FewShotClassifier().fit(X[:9], y[:9])
    before = clf.snapshot()
    expected = before.decision_function(queries)
    clf.partial_fit(X[9:], y[9:]).forget(index=0).relabel("auk", index=5)
    assert (before.version_, clf.version_) == (1, 4)
    assert list(before.classes_) == ["auk", "bee"]
    np.testing.assert_array_equal(before.decision_function(queries), expected)
    before.forget(index=0)
    assert len(clf.labels_) == 11
    assert clf.fit(X, y).version_ == 5


@pytest.mark.parametrize("limit", [0, 300])
@pytest.mark.parametrize("e", [5, 40])
def test_relabelling_equals_learning_with_the_right_label(e: int, limit: int) -> None:
    X, y, queries, _ = task([4, 5, 3], e)
    wrong = y.copy()
    wrong[[2, 6]] = "cat"
    clf = FewShotClassifier(tune_limit=limit).fit(X, wrong)
    examples = clf.examples_
    clf.relabel(str(y[2]), digest=examples[2].digest).relabel(str(y[6]), index=6)
    assert_same(clf.retune(), FewShotClassifier(tune_limit=limit).fit(X, y), queries)
    assert [each.digest for each in clf.examples_] == [each.digest for each in examples]
    clf.forget(digest=examples[0].digest)
    assert_same(clf.retune(), FewShotClassifier(tune_limit=limit).fit(X[1:], y[1:]), queries)


def test_an_unknown_digest_and_two_ways_at_once_are_refused() -> None:
    X, y, _, _ = task([4, 5, 3])
    clf = FewShotClassifier().fit(X, y)
    with pytest.raises(InvalidOptionError, match="digest 'abc'"):
        clf.forget(digest="abc")
    with pytest.raises(InvalidOptionError, match=r"index.*image.*digest"):
        clf.relabel("auk", index=0, digest=clf.examples_[0].digest)
    assert clf.version_ == 1


def test_the_estimate_is_plain_json_and_agrees_with_its_parts() -> None:
    X, y, _, _ = task([4, 5, 1, 6], spread=2.0)
    found = FewShotClassifier().fit(X, y).estimate()
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert [each["label"] for each in written["classes"]] == list(NAMES[:4])
    assert [each.tested for each in found.classes] == [4, 5, 0, 6]
    assert np.sum(found.confusion) == 15
    assert found.needs[0].label == "cat"
    assert "only one picture" in found.needs[0].reason


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "answer", "decision_function", "explain", "suggest"])
def test_an_update_in_the_middle_of_a_question_does_not_change_its_answer(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, queries, _ = task([3, 3, 3], 6)
    clf = FewShotClassifier(lam=1.0, tune_limit=0).fit(X, y)
    before = repr(getattr(clf, ask)(queries))
    state, between = vars(clf)["_state"], [True]

    def read(self: FewShotClassifier) -> Any:
        """What was learnt; after it has been read for the first time, another class comes before all others."""
        found = vars(self)["_state"]
        if self is clf and between:
            between.clear()
            vars(clf)["_state"] = state.add(queries[:2], np.array(["aaa"] * 2), state.sources[:2])
        return found

    monkeypatch.setattr(FewShotClassifier, "_state", property(read), raising=False)
    assert repr(getattr(clf, ask)(queries)) == before


@pytest.mark.slow
def test_every_answer_belongs_to_one_version_while_other_threads_change_the_classifier() -> None:
    X, y, queries, _ = task([3, 3, 3], 6)
    extra = np.random.default_rng(1).normal(size=(1, 6))
    clf = FewShotClassifier(lam=1.0, tune_limit=0).fit(X, y)
    started, updates, done = clf.version_, 10_000, threading.Event()
    first, second = "aaa", "zzz"  # before and after all others, so that a new class moves the columns of the others
    possible = [{*NAMES[:3]}, {*NAMES[:3], first}, {*NAMES[:3], second}, {*NAMES[:3], first, second}]

    def write(name: str) -> None:
        for step in range(updates // 4):
            clf.partial_fit(extra, [name])
            if step % 50 == 0:
                with pytest.raises(ValueError, match="features"):
                    clf.partial_fit(extra[:, :3], [name])
            clf.forget(label=name)

    def read() -> int:
        answers = 0
        while not done.wait(0.005):
            (answer,) = clf.answer(queries[:1], top=9)
            assert {choice.label for choice in answer.top} in possible
            assert sum(choice.probability for choice in answer.top) == pytest.approx(1)
            assert clf.predict(X[:1])[0] == "auk"
            answers += 1
        return answers

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(read) for _ in range(8)]
        writers = [pool.submit(write, name) for name in (first, second)]
        wait(writers)
        done.set()
        assert all(reader.result() > 0 for reader in readers)
        assert all(writer.exception() is None for writer in writers)
    assert clf.version_ == started + updates  # no update is lost
    assert list(clf.classes_) == list(NAMES[:3])


def test_labels_of_images_may_be_a_tensor() -> None:
    images, labels = (
        torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 0, 0, 1, 1, 1]),
    )
    embedding = ImageEmbedding(nn.Sequential(nn.AvgPool2d(4)), size=16)
    assert FewShotClassifier(embedding, cache=False).fit(images, labels).classes_.tolist() == [0, 1]


def test_numbers_of_numpy_can_be_saved(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(6, 4)), [0, 0, 0, 1, 1, 1]
    FewShotClassifier(lam=np.int64(2), balance=np.bool_(False)).fit(X, y).save(tmp_path / "a.handful")
    assert FewShotClassifier.load(tmp_path / "a.handful").lam == 2


def test_a_fit_forgets_the_feature_names_of_the_one_before() -> None:
    X, y = np.random.default_rng(0).normal(size=(6, 4)), [0, 0, 0, 1, 1, 1]
    classifier = FewShotClassifier().fit(X, y)
    classifier.feature_names_in_ = np.array(list("abcd"), dtype=object)
    assert not hasattr(classifier.fit(X[:, :3], y), "feature_names_in_")


@pytest.mark.filterwarnings("ignore:The features of all examples are the same")
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_features_that_are_all_the_same_are_explained_and_give_finite_scores(value: float) -> None:
    classifier = FewShotClassifier().fit(np.full((4, 3), value), [0, 0, 1, 1])
    assert str(classifier.score_estimate_).startswith("50%, which is chance")
    assert np.isfinite(classifier.unknown_score(np.full((4, 3), value))).all()
