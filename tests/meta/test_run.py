"""A run's folder: what it holds, what it refuses, and going on as if nothing had happened."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from handful.data.table import Benchmark
from handful.episodes import Episode, EpisodeSampler, FixedShots
from handful.errors import (
    CheckpointError,
    DataError,
    DivergedError,
    InvalidOptionError,
    NotEnoughClassesError,
    NotFiniteError,
)
from handful.meta.config import Plan, Recipe
from handful.meta.run import Run, build, load_model, read_recipe, require_fitting, score_name, validation_queries
from handful.meta.state import TrainingState

RECIPE = Recipe(
    data="tiny",
    width="32C",
    learner="protonet",
    way=3,
    images_per_class=4,
    max_shot=2,
    plan=Plan(episodes=4, validate_every=2, patience=0),
    val_episodes=3,
    val_ways=(3,),
    val_shots=(1,),
    val_query=2,
)


def tiny_episode(tiny: Benchmark) -> Episode:
    return EpisodeSampler(tiny.train, FixedShots(3, 1, 1), seed=0)[0]


def test_a_finished_run_holds_recipe_log_and_checkpoints(tmp_path: Path, tiny: Benchmark) -> None:
    run = Run(tmp_path, RECIPE, tiny)
    run.start()
    assert len(list(run.train())) == 4
    names = {path.name for path in tmp_path.iterdir()}
    assert {"recipe.json", "log.jsonl", "last.safetensors", "best-mean.safetensors", "best-1-shot.safetensors"} <= names
    assert read_recipe(tmp_path) == RECIPE
    logged = [json.loads(line)["episode"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert logged[-1] == 4
    with pytest.raises(InvalidOptionError, match="--resume"):
        Run(tmp_path, RECIPE, tiny).start()
    with pytest.raises(CheckpointError, match="7-shot"):
        load_model(tmp_path, "7-shot")


AVERAGED = dataclasses.replace(RECIPE, plan=Plan(episodes=4, validate_every=0, average="uniform"))


def test_averaged_weights_are_kept_once_and_before_the_checkpoint_that_ends_the_run(
    tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, honest = Run(tmp_path, AVERAGED, tiny), Run._save
    saved: list[str] = []

    def watched(run: Run, name: str, *given: Any) -> None:
        saved.append(name)
        honest(run, name, *given)

    monkeypatch.setattr(Run, "_save", watched)
    run.start()
    steps = run.train()
    for _ in range(4):
        next(steps)
    steps.close()
    assert saved == ["best-mean.safetensors", "last.safetensors"]


def test_averaged_weights_that_cannot_be_used_mean_that_training_diverged(
    tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*_: object) -> None:
        raise NotFiniteError("The features contain NaN. Check the images.")

    monkeypatch.setattr(TrainingState, "judge", judge)
    run = Run(tmp_path, AVERAGED, tiny)
    run.start()
    with pytest.raises(DivergedError, match=r"^Averaging the weights failed: The features contain NaN at episode 4"):
        list(run.train())


def test_the_log_has_the_same_line_ends_on_every_system(
    tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.linesep", "\r\n")
    run = Run(tmp_path, RECIPE, tiny)
    run.start()
    next(run.train())
    assert (tmp_path / "log.jsonl").read_bytes().endswith(b"}\n")


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(tmp_path: Path, tiny: Benchmark) -> None:
    whole, parts = Run(tmp_path / "whole", RECIPE, tiny), Run(tmp_path / "parts", RECIPE, tiny)
    whole.start()
    list(whole.train())
    parts.start()
    steps = parts.train()
    next(steps)
    steps.close()
    again = Run(tmp_path / "parts", RECIPE, tiny)
    again.resume()
    assert again.state.episode == 1
    list(again.train())
    ours, theirs = again.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


@pytest.mark.parametrize("planned", [2, 3])
def test_a_finished_run_that_is_extended_ends_in_the_bits_of_one_planned_as_long(
    tmp_path: Path, tiny: Benchmark, planned: int
) -> None:
    whole, longer = Run(tmp_path / "whole", RECIPE, tiny), tmp_path / "longer"
    short = dataclasses.replace(RECIPE, plan=dataclasses.replace(RECIPE.plan, episodes=planned))
    for run in (whole, Run(longer, short, tiny)):
        run.start()
        list(run.train())
    again = Run(longer, RECIPE, tiny)
    again.resume()
    assert read_recipe(longer) == RECIPE
    assert load_model(longer)(tiny_episode(tiny)).shape[-1] == 3  # its best checkpoint is still that of the shorter run
    assert [progress.episode for progress in again.train()] == list(range(planned + 1, 5))
    ours, theirs = again.state.tensors(), whole.state.tensors()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_a_run_that_patience_ended_is_extended_by_more_patience_only(tmp_path: Path, tiny: Benchmark) -> None:
    def of(**plan: int) -> Run:
        return Run(tmp_path, dataclasses.replace(RECIPE, plan=dataclasses.replace(RECIPE.plan, **plan)), tiny)

    run = of(episodes=100, patience=1)
    run.start()
    run.validate = lambda model: {"1-shot": 1 / (1 + run.state.episode)}  # type: ignore[method-assign]
    list(run.train())
    assert run.state.episode < 100
    recipe = (tmp_path / "recipe.json").read_bytes()
    with pytest.raises(InvalidOptionError, match="--patience"):
        of(episodes=200, patience=1).resume()
    assert (tmp_path / "recipe.json").read_bytes() == recipe
    more = of(episodes=200, patience=50)
    more.resume()
    assert not more.state.finished


def test_files_of_two_runs_are_not_mixed(tmp_path: Path, tiny: Benchmark) -> None:
    run = Run(tmp_path, RECIPE, tiny)
    run.start()
    steps = run.train()
    next(steps)
    steps.close()
    with pytest.raises(CheckpointError, match=r"last\.safetensors"):
        Run(tmp_path, dataclasses.replace(RECIPE, seed=1), tiny).resume()


def test_a_model_follows_the_seed_of_its_recipe_and_leaves_global_randomness_alone() -> None:
    before = torch.get_rng_state()
    first, same, other = (build(dataclasses.replace(RECIPE, seed=seed), (1, 28, 28)) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    weights = [next(model.embedding.parameters()) for model in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_grey_model_does_not_take_colour_images() -> None:
    with pytest.raises(DataError, match=r"grey images of 28 x 28 .*birds are colour and 84 x 84.*--size 28 --grey"):
        require_fitting((1, 28, 28), (3, 84, 84), "birds")


def test_scores_are_named_by_shots_and_further_ways() -> None:
    recipe = dataclasses.replace(RECIPE, val_ways=(5, 20))
    assert [score_name(recipe, way, 5) for way in recipe.val_ways] == ["5-shot", "20-way-5-shot"]


def test_validation_without_a_number_of_queries_keeps_the_size_of_a_training_episode() -> None:
    recipe = dataclasses.replace(RECIPE, val_query=0)  # episodes of 12 images
    assert validation_queries(RECIPE, 3, 1, 20) == 2
    assert validation_queries(recipe, 2, 1, 20) == 5
    assert validation_queries(recipe, 2, 1, 4) == 3


def test_a_data_set_without_validation_classes_is_refused_before_training(tmp_path: Path, tiny: Benchmark) -> None:
    without = dataclasses.replace(tiny, val=tiny.val.table.split("val", ()))
    recipe = Recipe(width="32C", way=3, images_per_class=4, max_shot=2, plan=Plan(validate_every=0))
    with pytest.raises(NotEnoughClassesError, match="--validate-every 0"):
        Run(tmp_path / "run", dataclasses.replace(recipe, plan=Plan(validate_every=5)), without)
    Run(tmp_path / "run", recipe, without)
