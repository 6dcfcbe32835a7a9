"""The page on views: it follows from its counts, and these are what the library measures."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from benchmarks import views
from handful.data.table import Benchmark
from handful.episodes import EpisodeSampler, FixedShots
from handful.meta.config import Plan, Recipe
from handful.meta.evaluate import evaluate
from handful.meta.run import Run

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_on_views_follows_from_its_counts() -> None:
    page = ROOT / views.PAGE
    counts = load_file(ROOT / views.COUNTS)
    written = page.read_text().splitlines()
    runs = list(dict.fromkeys(name.split(", ")[1] for name in counts))
    best = next(line for line in written if line.startswith("## Test classes")).rpartition(": ")[2]
    expected = views.page(counts, runs, best)
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
    counts = views.measured([tmp_path / "mine"], "val", [views.ALONE, "mirror"])
    assert list(counts) == [views.key("val", "mine", name, shot) for shot in (1, 5) for name in (views.ALONE, "mirror")]
    alone = evaluate(run.model.eval(), EpisodeSampler(tiny.val, FixedShots(3, 1, 4)), 5).accuracies
    assert counts["val, mine, the image alone, 1-shot"].tolist() == (12 * alone).round().tolist()
    assert "| mine | mirror |" in "\n".join(views.table(counts, "val", ["mine"], [views.ALONE, "mirror"]))
