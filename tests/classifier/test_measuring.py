"""The scripts that measure the classifier: they run, and what they report follows from the tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import estimator
from benchmarks.own_images import measure, peers, tasks
from benchmarks.own_images_report import OURS, plot, report, summary


@pytest.mark.slow
def test_tasks_are_measured_summed_up_and_reported(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    family = [rng.normal(size=12) + 0.8 * rng.normal(size=(20, 12)) for _ in range(20)]
    rows = [measure(task) for task in tasks([family], 3, 8, seed=0)]
    again = [measure(task) for task in tasks([family], 3, 8, seed=0)]
    assert [row["accuracy"][OURS] for row in rows] == [row["accuracy"][OURS] for row in again]
    found = summary(rows)
    assert found["accuracy"][OURS]["mean"] == pytest.approx(np.mean([row["accuracy"][OURS] for row in rows]))
    assert 0.5 < found["unknown"]["auroc"] <= 1
    text = report({"one": found, "two": found}, {"one": "a", "two": "b"}, "python -m this")
    assert all(f"| {name} |" in text for name in peers())
    plot({"one": rows, "two": rows}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_tasks_have_the_sizes_that_they_promise() -> None:
    family = [np.full((20, 3), float(c)) for c in range(24)]
    for task in tasks([family], 20, 10, seed=3):
        assert 5 <= len(task.shots) <= 20
        assert set(task.shots) <= set(range(1, 11))
        assert np.bincount(task.labels).tolist() == list(task.shots)
        assert np.bincount(task.truth).tolist() == [10] * len(task.shots)
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
