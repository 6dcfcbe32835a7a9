"""The scripts that measure the classifier: they run, and what they report follows from the tasks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import estimator
from benchmarks.own_images import honesty, measure, peers, suggestion_gain, tasks
from benchmarks.own_images_report import OURS, report
from benchmarks.photo_sets import SETS, by_class, drawn
from handful import FewShotClassifier


@pytest.mark.slow
def test_tasks_are_measured_and_reported() -> None:
    rng = np.random.default_rng(0)
    family = [rng.normal(size=12) + 0.8 * rng.normal(size=(24, 12)) for _ in range(20)]
    rows = [{"shot": shot, **measure(task)} for shot, task in tasks([family], 0, 1, seed=0)]
    again = [{"shot": shot, **measure(task)} for shot, task in tasks([family], 0, 1, seed=0)]
    assert rows == again
    more = [
        {"shot": shot, **honesty(FewShotClassifier().fit(task.examples, task.labels), task)}
        for shot, task in tasks([family], 1, 2, seed=0)
    ]
    assert not {row["truth"] for row in more} <= {row["truth"] for row in rows}
    gains = [suggestion_gain([family], [0, number]) for number in range(2)]
    text = report({"one": [*rows, *more], "two": rows}, {"one": gains, "two": gains}, "python -m this")
    assert all(f"| {name} |" in text for name in peers())
    mean = np.mean([row["accuracy"][OURS] for row in rows if row["shot"]])
    assert f"| {OURS} | {100 * mean:.1f} | {100 * mean:.1f} |" in text


def test_tasks_have_the_sizes_that_they_promise() -> None:
    family = [np.full((24, 3), float(c)) for c in range(24)]
    for shot, task in tasks([family], 0, 4, seed=3):
        assert 5 <= len(task.shots) <= 20
        assert set(task.shots) <= ({shot} if shot else set(range(1, 11)))
        assert np.bincount(task.labels).tolist() == list(task.shots)
        assert np.bincount(task.truth).tolist() == [12] * len(task.shots)
        assert not set(task.strangers[:, 0]) & set(task.examples[:, 0])


@pytest.mark.slow
def test_the_speed_comparisons_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimator, "CLASSES", 4)
    monkeypatch.setattr(estimator, "E", 30)
    monkeypatch.setattr(estimator, "SHOTS", 130)
    for compare in (
        estimator.fitting,
        estimator.adding,
        estimator.new_class,
        estimator.forgetting,
        estimator.predicting,
    ):
        medians = compare(rounds=1)
        assert next(iter(medians)).startswith("FewShotClassifier")
        assert len(medians) >= 4


def test_sets_of_photographs_are_drawn_the_same_way_each_time_without_common_classes() -> None:
    paths = [f"train/class{c:02}/{i:03}.jpg" for c in range(80) for i in range(40)] + ["train/few/1.jpg", "notes.txt"]
    classes = by_class("flowers", paths)
    test, dev = drawn(classes, SETS["flowers"])
    assert (test, dev) == drawn({name: classes[name][::-1] for name in reversed(classes)}, SETS["flowers"])
    assert (len(test), len(dev)) == (24, 30)
    assert not set(test) & set(dev)
    assert "few" not in test | dev
    assert all(len(set(images)) == 22 and set(images) <= set(classes[name]) for name, images in test.items())
    assert list(by_class("pets", ["images/Great_Dane_7.jpg"])) == ["Great_Dane"]
