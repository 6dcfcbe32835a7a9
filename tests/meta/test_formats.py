"""Runs of older versions can be read, evaluated and continued; runs of newer versions are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from handful import data
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import CheckpointError
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from handful.meta.config import recipe_from_json
from handful.meta.evaluate import evaluate
from handful.meta.run import Run, load_model, read_recipe

OLD = Path(__file__).parent.parent / "formats" / "run-0.1"


def test_a_run_of_version_0_1_evaluates_to_what_it_did_then() -> None:
    model, test = load_model(OLD), data.load("glyphs").test
    for row in json.loads((OLD / "expected.json").read_text()):
        sampler = EpisodeSampler(test, FixedShots(row["way"], row["shot"], row["query"]), row["seed"])
        result = evaluate(model, sampler, row["episodes"])
        # of 15,000 queries one may change sides where two logits are equal but for rounding
        assert result.mean == pytest.approx(row["mean"], abs=2 / 15_000)


def test_a_run_of_version_0_1_can_go_on(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "run")
    recipe = read_recipe(tmp_path / "run")
    assert recipe.val_ways == (5,)
    run = Run(tmp_path / "run", recipe, data.load("glyphs"))
    run.resume()
    assert run.state.episode == 4
    assert run.state.finished


def test_a_checkpoint_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    tensors, facts = read_checkpoint(OLD / "best-mean.safetensors")
    write_checkpoint(tmp_path / "new.safetensors", tensors, {**facts, "format": 99})
    with pytest.raises(CheckpointError, match="format 99"):
        read_checkpoint(tmp_path / "new.safetensors")


def test_a_recipe_of_a_newer_version_is_refused() -> None:
    with pytest.raises(CheckpointError, match="flavour"):
        recipe_from_json({"flavour": "sweet"})
