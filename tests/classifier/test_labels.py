"""Labels have one type, whether they are given, typed or sent, and are sorted into classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from handful.classifier import FewShotClassifier
from handful.classifier.labels import coded, joined_labels, label_from
from handful.errors import InvalidOptionError, NotEnoughClassesError
from tests.classifier.test_classifier import task


@pytest.mark.parametrize("labels", [[3, 7], [True, False], ["a", "b"]])
def test_labels_keep_their_type_and_others_are_refused(labels: list[Any]) -> None:
    X, _, _, _ = task([4, 4])
    clf = FewShotClassifier().fit(X, labels * 4)
    assert type(clf.predict(X[:1]).tolist()[0]) is type(labels[0])
    assert type(clf.answer(X[:1])[0].label) is type(labels[0])
    other = {int: "a", bool: 1, str: 5}[type(labels[0])]
    with pytest.raises(InvalidOptionError, match="type"):
        clf.partial_fit(X[:1], [other])
    with pytest.raises(InvalidOptionError, match="type"):
        clf.relabel(other, index=0)
    with pytest.raises(InvalidOptionError, match="one type"):
        FewShotClassifier().fit(X, [*labels * 3, labels[0], other])
    assert clf.classes_.tolist() == sorted(labels)


def test_a_label_that_is_typed_or_sent_has_the_type_of_the_others() -> None:
    assert label_from("heron", np.array(["auk", "bee"])) == "heron"
    assert label_from("12", np.array([3, 4])) == 12
    assert label_from("4", np.array([3, 4])) == 4
    assert label_from("False", np.array([False, True])) is False
    for text, classes in (("heron", [3, 4]), ("1.5", [3, 4]), ("maybe", [False, True])):
        with pytest.raises(InvalidOptionError, match=f"(whole numbers|booleans).*'{text}'"):
            label_from(text, np.array(classes))
    for text in ("nan", "inf"):
        with pytest.raises(InvalidOptionError, match=f"numbers.*'{text}'"):
            label_from(text, np.array([0.5, 1.0]))
    for text in ("", "two\nlines", "x" * 201):
        with pytest.raises(InvalidOptionError, match="1 to 200"):
            label_from(text, np.array(["auk", "bee"]))


def test_a_label_must_be_finite_because_files_hold_no_other_numbers() -> None:
    X, _, _, _ = task([3, 3])
    clf = FewShotClassifier().fit(X, [1.0, 2.0] * 3)
    for label in (float("nan"), float("inf")):
        with pytest.raises(InvalidOptionError, match="NaN or infinite"):
            clf.relabel(label, index=0)
        with pytest.raises(ValueError, match=r"(?i)nan|inf"):
            clf.partial_fit(X[:1] + 1, [label])
    assert clf.classes_.tolist() == [1.0, 2.0]


def test_classes_are_sorted_and_numbered_and_two_at_least() -> None:
    classes, codes = coded(np.array(["b", "a", "b"]))
    assert (classes.tolist(), codes.tolist()) == (["a", "b"], [1, 0, 1])
    with pytest.raises(NotEnoughClassesError, match=r"'b'.*n_samples = 2"):
        coded(np.array(["b", "b"]))
    with pytest.raises(NotEnoughClassesError):
        coded(np.array([]))


def test_labels_of_two_types_are_not_joined() -> None:
    assert joined_labels(np.array([1, 2]), np.array([3], np.uint8)).tolist() == [1, 2, 3]
    with pytest.raises(InvalidOptionError, match=r"whole numbers \(.*1.*text \(.*'a'"):
        joined_labels(np.array([1, 2]), np.array(["a"]))
