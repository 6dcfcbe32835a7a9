"""What a classifier knows, as one value: rows by label, digest or image, and changed copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handful.classifier import FewShotClassifier
from handful.classifier.examples import (
    Options,
    Source,
    State,
    fit_state,
    rows_checked,
    rows_of_digest,
    rows_of_image,
    rows_of_label,
)
from handful.errors import InvalidOptionError
from tests.classifier.drawings import drawing
from tests.classifier.test_classifier import task


def state(counts: list[int], **options: Any) -> State:
    X, y, _, _ = task(counts)
    return fit_state(Options(**options), X, y, [Source(digest=str(i)) for i in range(len(X))])


def test_a_change_makes_a_new_state_and_leaves_the_old_one() -> None:
    old = state([3, 4])
    X, y, _, _ = task([3, 4, 2])
    new = old.add(X[7:], y[7:], [Source(digest="new")] * 2)
    assert (len(old.codes), len(new.codes), old.version, new.version) == (7, 9, 1, 2)
    assert new.classes.tolist() == [*old.classes, y[-1]]
    back = new.remove([7, 8])
    assert back.version == 3
    assert back.classes.tolist() == old.classes.tolist()  # a class goes with its last example
    np.testing.assert_allclose(back.features + back.origin, old.features + old.origin, atol=1e-12)
    moved = old.relabel([0], old.classes[1])
    assert (moved.counts.tolist(), old.counts.tolist()) == ([2, 5], [3, 4])


def test_an_example_without_another_of_its_class_cannot_be_held_out() -> None:
    alone = state([3, 1, 2])
    assert alone.held_out.tolist() == [0, 1, 2, 4, 5]
    assert np.isneginf(alone.held_out_scores[3, 1])


@pytest.mark.parametrize("lam", [0.0, -1.0, np.inf, np.nan, "much"])
def test_a_lambda_that_is_not_positive_is_refused(lam: Any) -> None:
    with pytest.raises(InvalidOptionError, match=f"lam .*{lam}"):
        state([3, 3], lam=lam)


def test_rows_are_found_by_number_label_and_digest() -> None:
    known = state([3, 4])
    assert rows_checked([5, 1, 5], 7) == [1, 5]
    assert rows_checked([], 7) == []
    assert rows_checked(known.codes == 0, 7) == [0, 1, 2]
    for index in ([True, False], [1.7], ["1"]):
        with pytest.raises(InvalidOptionError, match="whole numbers or a mask of 7 booleans"):
            rows_checked(index, 7)
    assert rows_checked(2, 7) == [2]
    for outside in (7, -1):
        with pytest.raises(InvalidOptionError, match=rf"{outside}\b.* 0 to 6"):
            rows_checked(outside, 7)
    assert rows_of_label(known, known.classes[1]) == [3, 4, 5, 6]
    with pytest.raises(InvalidOptionError, match="'yak'"):
        rows_of_label(known, "yak")
    assert rows_of_digest(known, "4") == [4]
    for digest in ("x", ""):
        with pytest.raises(InvalidOptionError, match=f"7 examples .*'{digest}'"):
            rows_of_digest(known, digest)


def test_an_image_is_found_by_its_content_also_under_another_name(tmp_path: Path) -> None:
    paths = []
    for shape in ("bar", "circle"):
        paths.append(tmp_path / f"{shape}.png")
        drawing(shape, 0).save(paths[-1])
    clf = FewShotClassifier("characters", cache=False).fit(paths, ["bar", "circle"])
    renamed = paths[1].rename(tmp_path / "renamed.png")
    assert rows_of_image(clf.state_, renamed) == [1]
    assert rows_of_image(clf.state_, paths[1]) == [1]  # by its name, because the file is gone
    with pytest.raises(InvalidOptionError, match=r"other\.png"):
        rows_of_image(clf.state_, tmp_path / "other.png")


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 70])
def test_examples_are_alike_unless_one_of_them_differs(count: int) -> None:
    X = np.ones((count, 6)) / 3
    labels = np.array(["a", "b"] * count)[:count]
    assert fit_state(Options(), X, labels, [Source()] * count).alike
    for row in (0, count // 2, count - 1):
        other = X.copy()
        other[row, 0] += 1e-3
        assert not fit_state(Options(), other, labels, [Source()] * count).alike
