"""The page on views: it follows from its counts, and these are what the library measures."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks import views
from handful import FewShotModel
from handful.data.table import Benchmark
from handful.embeddings import Centred, MeanOverViews
from handful.episodes import EpisodeSampler, FixedShots
from handful.learners import with_lam
from handful.meta.config import Plan, Recipe
from handful.meta.evaluate import evaluate
from handful.meta.features import mean_features
from handful.meta.run import Run

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_on_views_follows_from_its_counts() -> None:
    page = ROOT / views.PAGE
    counts = load_file(ROOT / views.COUNTS)
    written = page.read_text().splitlines()
    runs = list(dict.fromkeys(name.split(", ")[1] for name in counts))
    expected = views.page(counts, runs)
    assert written[: len(expected)] == expected
    assert {len(each) for each in counts.values()} == {views.EPISODES}


def test_views_are_measured_by_run_and_shot(tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("handful.data.load", lambda name: tiny)
    monkeypatch.setattr(views, "WAY", 3)
    monkeypatch.setattr(views, "QUERIES", {1: 4, 5: 2})
    monkeypatch.setattr(views, "EPISODES", 5)
    plan = Plan(episodes=1, validate_every=0)
    recipe = Recipe(data="tiny", width="32C", way=3, images_per_class=4, max_shot=2, plan=plan)
    run = Run(tmp_path / "run", recipe, tiny)
    run.start()
    list(run.train())
    for shot in (1, 5):
        shutil.copy(run.folder / "last.safetensors", tmp_path / f"mine-best-{shot}-shot.safetensors")
    settings = [views.ALONE, "mirror", "mirror, shift-2, lambda 250, centred"]
    counts = views.measured(tmp_path / "mine", 1, "val", settings)
    assert list(counts) == [views.key("val", "mine", name, 1) for name in settings]
    model, episodes = run.model.eval(), EpisodeSampler(tiny.val, FixedShots(3, 1, 4))
    mean = MeanOverViews(model.embedding, mirror=True, shift=2)
    centred = Centred(mean, mean_features(model.embedding, tiny.train))
    for name, expected in (
        (views.ALONE, model),
        ("mirror", FewShotModel(MeanOverViews(model.embedding, mirror=True), model.learner)),
        (settings[-1], FewShotModel(centred, with_lam(model.learner, 250.0))),
    ):
        right = evaluate(expected, episodes, 5).accuracies
        assert counts[views.key("val", "mine", name, 1)].tolist() == (12 * right).round().tolist()


def test_the_setting_that_is_tested_is_the_best_on_validation_classes() -> None:
    right = dict.fromkeys(views.SETTINGS, 100)
    counts = {
        views.key("val", "mine", name, 1): torch.full((3,), each) for name, each in (right | {"shift": 120}).items()
    }
    assert views.tested(counts, "mine", 1) == [views.ALONE, views.TEN, "shift"]
    counts |= {views.key("test", "mine", name, 1): torch.full((3,), 110) for name in right}
    table = views.table(counts, "val", ["mine"], 1)
    assert len(table) == 2 + len(views.SETTINGS)
    assert "| mine | shift | 51.06 ± 0.00 | +8.51 ± 0.00 |" in table
    assert [line.split(" | ")[1] for line in views.table(counts, "test", ["mine"], 1)[2:]] == [
        views.ALONE, views.TEN, "shift",
    ]  # fmt: skip
