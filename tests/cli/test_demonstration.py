"""The demonstration: its table in words, its baselines, and the report that it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from handful.cli.demonstration import KINDS, RECIPE, Flatten, Row, text_table
from handful.meta.evaluate import Evaluation
from tests.cli.cases import run_handful


@pytest.mark.slow
def test_the_demonstration_writes_a_report_with_its_table(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    words = ["--episodes", "300", "--train-episodes", "100", "--threads", "1"]
    shown = run_handful("demo", "--out", out, *words).stdout
    page = (out / "report.html").read_text()
    for name in ("R2-D2", "Prototypical networks", "Untrained, nearest mean", "Raw pixels"):
        assert name in shown
        assert name in page
    assert "http" not in page.replace("http://www.w3.org", "")  # self-contained
    results = json.loads((out / "results.json").read_text())
    trained, untrained, pixels = (
        results[name][0] for name in ("R2-D2", "Untrained, nearest mean", "Raw pixels, nearest mean")
    )
    assert trained["mean"] - trained["ci95"] > untrained["mean"] + untrained["ci95"]
    assert trained["mean"] - trained["ci95"] > pixels["mean"] + pixels["ci95"]


def test_the_table_is_aligned_and_in_percent() -> None:
    accuracies = torch.tensor([0.5, 0.75], dtype=torch.float64)
    sizes = {"episodes": 2, "way": 5, "shot": 1, "query": 15, "seed": 0}
    words = {"limits": "inductive", "split": "test", "route": "features"}
    result = Evaluation(0.625, 0.245, accuracies, **sizes, **words, inductive=True, seconds=0.1)
    head, *lines = text_table([Row("R2-D2", (result,) * 4), Row("Untrained, nearest mean", (result,) * 4)])
    assert all(f"{way}-way {shot}-shot" in head for way, shot in KINDS)
    assert len({len(line) for line in (head, *lines)}) == 1
    assert lines[0].split()[1:4] == ["62.50", "±", "24.50"]


def test_raw_pixels_are_features() -> None:
    images = torch.rand(2, 1, 3, 3)
    torch.testing.assert_close(Flatten()(images), images.reshape(2, 9))


def test_the_recipe_draws_its_own_data_and_ends_its_schedule_with_its_episodes() -> None:
    assert RECIPE.data == "glyphs"
    assert RECIPE.plan.rate_at(RECIPE.plan.episodes) == pytest.approx(0.0, abs=1e-12)
