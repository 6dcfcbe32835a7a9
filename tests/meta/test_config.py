"""Recipes go to JSON and back, and a run counts as complete when there is next to nothing left to learn."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest

from handful.data.augment import AUGMENTATIONS
from handful.embeddings.conv4 import NORMS
from handful.embeddings.registry import EMBEDDINGS
from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.config import (
    NEGLIGIBLE,
    Plan,
    Recipe,
    complete_at,
    completion,
    prolongs,
    rate_left,
    recipe_from_json,
)
from handful.meta.manifest import Manifest, Session
from handful.paper.recipes import NAMED


def test_a_recipe_survives_json() -> None:
    recipe = Recipe(learner="lrd2", options={"lam": 1.0, "learn_lam": True}, val_ways=(5, 20), plan=Plan(rate=0.1))
    assert recipe_from_json(json.loads(json.dumps(recipe.as_json()))) == recipe


@pytest.mark.parametrize(
    ("field", "registry"),
    [("width", EMBEDDINGS), ("norm", NORMS), ("augment", AUGMENTATIONS)],
    ids=["width", "norm", "augment"],
)
def test_a_choice_is_that_of_its_registry(field: str, registry: dict[str, Any]) -> None:
    """Recipes spell choices out, because the command line shows them without importing torch."""
    choice = get_type_hints(Recipe)[field]
    literal = choice if field != "augment" else get_args(choice)[0]
    assert get_args(literal) == tuple(registry)


def test_a_field_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(CheckpointError, match="warp_drive"):
        recipe_from_json({**Recipe().as_json(), "warp_drive": 9})


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": 0},
        {"patience": -1},
        {"rate": 0.0},
        {"rate": -1.0},
        {"rate": float("nan")},
        {"rate": float("inf")},
        {"momentum": 1.0},
        {"decay": 0.0},
        {"decay": 1.5},
        {"label_smoothing": -0.1},
        {"episodes_per_step": 3},
    ],
)
def test_a_plan_that_cannot_be_trained_is_refused_with_the_option_s_name(wrong: dict[str, Any]) -> None:
    name = next(iter(wrong))
    with pytest.raises(InvalidOptionError, match="learning rate" if name == "rate" else name):
        Plan(**wrong)


def test_a_configuration_shows_the_values_that_are_not_defaults() -> None:
    assert repr(Recipe()) == "Recipe()"
    assert repr(Recipe(way=5, plan=Plan(rate=0.1))) == "Recipe(way=5, plan=Plan(rate=0.1))"


HALVING = Plan()
COSINE = Plan(episodes=12_000, schedule="cosine", patience=0)


def test_what_is_left_of_a_halving_schedule_is_a_power_of_two() -> None:
    # all but the last 2^-60 of a geometric series; math.fsum adds it to the last bit
    assert rate_left(HALVING, 16_000) == pytest.approx(2.0**-8, rel=1e-12)
    assert rate_left(HALVING, 0) == 1.0
    assert rate_left(HALVING, HALVING.episodes) == 0.0


@pytest.mark.parametrize(
    "plan", [HALVING, replace(HALVING, decay=0.99), Plan(episodes=1_000, decay_every=64, episodes_per_step=5)]
)
def test_a_run_is_complete_from_the_first_update_that_leaves_less_than_the_threshold(plan: Plan) -> None:
    first = complete_at(plan)
    assert rate_left(plan, first) < NEGLIGIBLE
    assert rate_left(plan, first - plan.episodes_per_step) >= NEGLIGIBLE
    assert first % plan.episodes_per_step == 0


@pytest.mark.parametrize(
    "plan",
    [
        HALVING,
        Plan(episodes=1_000, decay_every=64, episodes_per_step=5),
        Plan(episodes=1_001, decay_every=3, decay=0.97, episodes_per_step=10, validate_every=0),
        Plan(episodes=990, schedule="constant", episodes_per_step=4, validate_every=0),
        Plan(episodes=700, schedule="cosine"),
    ],
)
def test_what_is_left_is_the_share_of_the_rates_of_all_updates_one_by_one(plan: Plan) -> None:
    def left(first: int) -> float:
        return math.fsum(plan.rate_at(start) for start in range(first, plan.episodes, plan.episodes_per_step))

    for first in (0, 1, 64, 67, 320, plan.episodes - 1, plan.episodes, plan.episodes + 5):
        assert rate_left(plan, first) == pytest.approx(left(first) / left(0), rel=1e-12)  # sums of other terms


def test_a_million_updates_are_summed_in_a_few_hundred_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    honest, asked = Plan.rate_at, list[int]()
    monkeypatch.setattr(Plan, "rate_at", lambda plan, episode: asked.append(episode) or honest(plan, episode))
    assert 0.9 < rate_left(Plan(episodes=1_000_000, decay=0.9999), 1_000) < 1
    assert len(asked) <= 1_000


@pytest.mark.parametrize(
    ("before", "after", "prolonged"), [(5, 5, True), (5, 6, True), (5, 0, True), (5, 4, False), (0, 5, False)]
)
def test_a_run_is_prolonged_by_more_patience_and_not_by_less(before: int, after: int, prolonged: bool) -> None:
    old, new = (Recipe(plan=Plan(patience=patience)) for patience in (before, after))
    assert prolongs(old, new) is prolonged


def test_the_halving_schedule_is_complete_soon_and_a_slow_one_is_not() -> None:
    assert 15_000 < complete_at(HALVING) < 16_000
    assert complete_at(replace(HALVING, decay=0.99)) > 119_000
    constant = Plan(schedule="constant")
    assert complete_at(constant) == constant.episodes


def test_a_cosine_schedule_is_complete_at_its_end_only() -> None:
    assert complete_at(COSINE) == 12_000
    late = completion(COSINE, 11_900)
    assert rate_left(COSINE, 11_900) < NEGLIGIBLE  # the rule of step schedules would let it pass
    assert str(late) == "in part: 11,900 of 12,000 episodes, its learning rate still at 0%"
    assert completion(COSINE, 12_000).complete


def test_the_reason_is_given_in_words() -> None:
    assert (
        str(completion(HALVING, 16_000))
        == "complete: 0.39% of the summed learning rate left at episode 16,000 of 120,000"
    )
    assert (
        str(completion(HALVING, 8_000)) == "in part: 8,000 of 120,000 episodes, 6.2% of the summed learning rate left"
    )
    assert str(completion(HALVING, 120_000)) == "complete: all 120,000 episodes"
    assert str(completion(HALVING, 9_000, finished=True)) == (
        "complete: no validation score rose for 20,000 episodes, stopped at episode 9,000 of 120,000"
    )
    assert not completion(HALVING, 16_000, failure="The loss became nan").complete


def manifest(name: str, last: int, cut: int = 0, finished: bool = False) -> Manifest:
    recipe = NAMED[name].recipe
    planned = recipe.plan.episodes
    recipe = replace(recipe, plan=replace(recipe.plan, episodes=cut or planned))
    session = Session("now", 1.0, 0, last, {}, {})
    return Manifest(name, recipe, planned, "cifar-fs", "hash", (session,), finished=finished)


def test_a_cut_is_measured_by_the_recipe_and_not_by_itself() -> None:
    halving, modern = "cifar-fs/r2d2-64C/authors", "cifar-fs/r2d2-64C/modern"
    assert not manifest(halving, 300, cut=300, finished=True).completion.complete
    assert manifest(halving, 16_000, cut=16_000, finished=True).completion.complete
    short = manifest(modern, 250, cut=250, finished=True)
    assert short.shortfall == "250 of 12,000 episodes, with a cosine schedule of that length"
    assert manifest(modern, 12_000, finished=True).shortfall == ""
    assert math.isclose(manifest(halving, 16_000).seconds, 1.0)


def test_patience_within_a_cut_is_patience() -> None:
    stopped = manifest("cifar-fs/r2d2-64C/authors", 30_000, cut=40_000, finished=True)
    assert str(stopped.completion).startswith("complete: no validation score rose for 20,000 episodes")
