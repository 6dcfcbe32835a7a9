"""An estimate scales what it measures to the whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from handful.paper import cost as module
from handful.paper.cost import Estimate, estimate, stand_in
from handful.paper.jobs import Departures, Standing, job


def test_hours_follow_from_the_plan(tmp_path: Path) -> None:
    run = job("cifar-fs/maml-64C-1shot/authors", 0, tmp_path, Departures(4_000, validate_every=1_000))
    cost = Estimate(run, Standing(1_000), update=2.0, validation=30.0, operations=1e12, on_noise=True)
    assert cost.whole == 1_000 * 2.0 + 4 * 30.0  # four episodes an update, a validation every 1,000
    assert cost.seconds == 750 * 2.0 + 3 * 30.0
    assert cost.gpu_hours == pytest.approx(60_000 * 1e12 / module.GPU_FLOPS / 3600)  # of the whole recipe, uncut
    assert cost.within(530.0 + 30.0) == 1_000
    assert "noise" in cost.measured_on
    assert replace(cost, done=Standing(1_000, over=True)).seconds == 0.0  # patience was exhausted


def test_a_run_to_the_end_costs_more_than_a_complete_one(tmp_path: Path) -> None:
    run = job("cifar-fs/r2d2-64C/authors", 0, tmp_path)
    cost = Estimate(run, Standing(15_500, complete=True), update=1.0, validation=0.0, operations=1.0, on_noise=False)
    assert (cost.seconds, str(cost)) == (0.0, "complete at 15,500 episodes")
    longer = replace(cost, until="end")
    assert (longer.end, longer.seconds) == (120_000, 104_500.0)
    assert "15,500 of 120,000 episodes done" in str(longer)


@pytest.mark.slow
def test_an_update_timed_episode_by_episode_counts_as_many_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job("cifar-fs/gnn-net-5shot/authors", 0, tmp_path, Departures(4, width="32C"))
    data = stand_in("cifar-fs")
    whole = estimate(run, data).operations
    monkeypatch.setattr(module, "MOST_PIXELS", 1)
    assert estimate(run, data).operations == pytest.approx(whole, rel=1e-3)  # counts are whole numbers of the same sums
