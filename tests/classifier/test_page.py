"""The page of a classifier: its figures, its doubtful labels, and nothing in it that a name could break."""

from __future__ import annotations

import re

import numpy as np
import pytest

from handful.classifier import FewShotClassifier
from handful.classifier import page as pages
from handful.classifier.inputs import Picture
from handful.classifier.page import inspection_page
from tests.classifier.drawings import SHAPES, drawing, encoded
from tests.classifier.test_classifier import task


def test_the_figures_are_those_of_the_estimate() -> None:
    X, y, _, _ = task([4, 5, 3], spread=2.0)
    clf = FewShotClassifier().fit(X, y)
    page, score = inspection_page(clf, "birds.handful"), clf.score_estimate_
    assert f"{100 * score.accuracy:.1f}%" in page
    assert f"{100 * score.low:.0f} to {100 * score.high:.0f}%" in page
    assert f"lambda {clf.lam_:.3g}" in page
    assert page.count("data-example=") >= 12
    assert "handful predict birds.handful " in page


def test_the_examples_behind_a_confusion_are_named_in_its_cell() -> None:
    X, y, _, _ = task([6, 6])
    y = y.copy()
    y[0] = y[-1]  # a wrong label: held out, it is taken for its true class
    page = inspection_page(FewShotClassifier().fit(X, y), "a")
    assert '<button data-examples="0">1</button>' in page


def test_all_examples_that_are_taken_for_another_class_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SHOWN", 2)
    X, y, _, _ = task([6, 6])
    page = inspection_page(FewShotClassifier().fit(X, y), "a")
    assert page.count("4 not shown") == 2
    rng = np.random.default_rng(0)
    noise = FewShotClassifier().fit(rng.normal(size=(40, 3)), ["a", "b"] * 20)
    wrong = np.flatnonzero(noise.state_.held_out_scores.argmax(1) != noise.state_.codes)
    page = inspection_page(noise, "a")
    assert 40 - sum(map(int, re.findall(r"(\d+) not shown", page))) == len(wrong) > 4
    assert all(f'data-example="{index}"' in page for index in wrong)


def test_a_large_table_of_confusions_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    clf = FewShotClassifier().fit(rng.normal(size=(12, 3)), ["a", "b", "c"] * 4)
    assert "data-examples=" in inspection_page(clf, "a")
    monkeypatch.setattr(pages, "LARGEST_TABLE", 2)
    assert "data-examples=" not in inspection_page(clf, "a")


def test_names_are_escaped() -> None:
    X, _, _, _ = task([3, 3])
    page = inspection_page(FewShotClassifier().fit(X, ["<script>alert(1)</script>", "b&c"] * 3), "<blink>.handful")
    assert "<script>alert" not in page
    assert "<blink>" not in page
    assert "b&amp;c" in page


def test_unlabelled_images_that_are_worth_labelling_are_shown() -> None:
    images = [drawing(shape, seed) for shape in SHAPES for seed in range(2)]
    clf = FewShotClassifier("characters", cache=False).fit(images, np.repeat(SHAPES, 2))
    pool = [Picture(f"new{seed}.png", encoded(drawing("hook", seed))) for seed in range(50, 55)]
    page = inspection_page(clf, "a", pool, k=2)
    assert sum(picture.name in page for picture in pool) == 2
    assert 'data-example="new1"' in page
    assert 'data-example="new2"' not in page
