"""A dry run gives every row a time, also those whose turn to be timed has not come."""

from __future__ import annotations

from pathlib import Path

import pytest

from handful.paper.cost import Estimate, cost_of
from handful.paper.experiments import EXPERIMENTS, narrowed
from handful.paper.forecast import Prices, forecast
from handful.paper.jobs import Job, Standing, job
from handful.paper.reproduce import Options


def priced(job: Job) -> Prices:
    """Prices that know one run: two seconds per update."""
    prices = Prices([])
    prices.known[cost_of(job.recipe)] = Estimate(job, Standing(), 2.0, 30.0, 1e12, on_noise=False)
    return prices


def test_a_run_that_was_not_timed_is_scaled_by_the_operations_of_its_network(tmp_path: Path) -> None:
    small, wide = (job(f"cifar-fs/r2d2-{width}/authors", 0, tmp_path) for width in ("64C", "wide"))
    prices = priced(small)
    timed, rough = prices.of(small), prices.of(wide)
    assert timed is not None
    assert rough is not None
    assert (timed.update, timed.rough, rough.rough, rough.job) == (2.0, False, True, wide)
    # products of the four convolutions, at sides of 32, 16, 8 and 4
    work = [
        sum(before * after * side**2 for before, after, side in zip(filters, filters[1:], (32, 16, 8, 4), strict=False))
        for filters in ((3, 64, 64, 64, 64), (3, 96, 192, 384, 512))
    ]
    assert rough.update == pytest.approx(2.0 * work[1] / work[0])
    assert rough.validation == pytest.approx(30.0 * work[1] / work[0])
    assert str(rough).startswith("about ")


def test_updates_of_several_episodes_with_inner_steps_cost_as_many_times_more(tmp_path: Path) -> None:
    one, five = (job(f"cifar-fs/maml-64C-{shot}shot/authors", 0, tmp_path) for shot in (1, 5))
    found = priced(one).of(five)
    assert found is not None
    # 2 passes for each of 5 steps over the support and one over 15 queries, 4 or 2 episodes per update
    assert found.update == pytest.approx(2.0 * (2 * (10 * 5 + 15)) / (4 * (10 * 1 + 15)))


def test_rows_without_data_or_time_are_listed_with_what_they_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path))
    monkeypatch.setattr("handful.paper.forecast.SECONDS", 0.0)
    table = narrowed(EXPERIMENTS["table2"], ("omniglot/r2d2-64C",))
    lines = list(forecast(table, Options(tmp_path)))
    assert lines[1] == "R2-D2 (64C)"
    assert lines[2].startswith("  omniglot/r2d2-64C/authors: not timed")
    assert lines[2].endswith("cannot run now: omniglot-nearest is not there")
    assert "handful data add omniglot" in lines[-1]
