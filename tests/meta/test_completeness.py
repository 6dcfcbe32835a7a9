"""A run is complete when patience, its last episode or the schedule leaves nothing to learn; in part otherwise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from handful.meta.completeness import NEGLIGIBLE, complete_at, completion, rate_left
from handful.meta.config import Plan
from handful.meta.manifest import Manifest, Session
from handful.paper.recipes import NAMED

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
