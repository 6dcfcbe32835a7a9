"""The benchmark's own machinery: turns, ratios, targets, exponents and the page."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import scale
from benchmarks.contest import Contestant, Ratio, Setting, Times, compete, ratio, readable
from benchmarks.growth import exponent
from benchmarks.record import earlier, text
from benchmarks.report import Results, page
from benchmarks.suite import Outcome, Row

SETTING = Setting(threads=1, clock="wall", quick=True, peers=None)


def times(name: str, *seconds: float) -> Times:
    return Times(name, seconds, 100.0, (None,))


def test_a_ratio_is_taken_within_each_round() -> None:
    # the second round fell on a busy moment for both
    assert ratio(times("slow", 2.0, 20.0, 2.2), times("fast", 1.0, 10.0, 1.0)).values == (2.0, 2.0, 2.2)
    assert ratio(times("slow", 2.0, 20.0, 2.2), times("fast", 1.0, 10.0, 1.0)).median == 2.0


@pytest.mark.parametrize(
    ("value", "target", "at_most", "met"), [(9.0, 8.0, False, True), (7.9, 8.0, False, False), (1.07, 1.08, True, True)]
)
def test_a_target_is_met_by_the_median(value: float, target: float, at_most: bool, met: bool) -> None:
    assert Row("work", "a", "b", Ratio((0.0, value, 100.0)), target, at_most).met is met


def test_the_page_shows_what_is_met_and_explains_what_is_not() -> None:
    met = Row("evaluation", "handful: 1 s", "peer: 200 s", Ratio((200.0,)), 100)
    missed = Row("a meta-training step", "handful: 1 s", "peer: 1.5 s", Ratio((1.5,)), 2)
    results = Results(SETTING, {"torch": "2"}, {"all": Outcome([met, missed], [times("peer", 1.5)], ["a note"])})
    written = page(results)
    assert "| evaluation | handful: 1 s | peer: 200 s | 200 (200 to 200) | at least 100x | yes |" in written
    assert "**no**" in written
    explained = written[written.index("## What is not reached") :]
    assert explained.index("Convolutions") < explained.index(
        "- a meta-training step: 1.5 instead of 2x, handful: 1 s against peer: 1.5 s"
    )
    assert "- a note" in written
    assert "| peer | 1.5 s | 1.5 s to 1.5 s | 100 MB |" in written


def test_an_exponent_is_the_slope_of_the_last_points() -> None:
    assert math.isclose(exponent([1, 2, 4, 8], [9.0, 4.0, 16.0, 64.0]), 2.0)


def test_durations_are_readable() -> None:
    assert [readable(t) for t in (2e-6, 3e-3, 1.5, 1234.0)] == ["2 µs", "3 ms", "1.5 s", "1,234 s"]


@pytest.mark.slow
def test_contestants_run_in_turn_in_processes_of_their_own() -> None:
    task = "tests.benchmark_tasks:sleeper"
    contestants = [
        Contestant("long", task, {"seconds": 0.06}),
        Contestant("short", task, {"seconds": 0.02}, scale=10),
        Contestant("absent", "nowhere:nothing", peer=True),
    ]
    done = compete(contestants, 3, SETTING)
    assert set(done) == {"long", "short"}  # there is no environment of peers
    assert [len(each.seconds) for each in done.values()] == [3, 3]
    assert done["long"].median >= 0.06
    assert done["short"].median >= 0.2
    assert done["long"].all_said == (2, 3, 4)  # the first run warms up
    assert done["long"].peak_mb > 10


@pytest.mark.slow
def test_a_contestant_that_fails_is_named() -> None:
    with pytest.raises(RuntimeError, match="'broken' ended before its answer"):
        compete([Contestant("broken", "tests.benchmark_tasks:broken")], 1, SETTING)


def test_results_come_back_from_their_file_for_the_same_setting_and_versions_alone(tmp_path: Path) -> None:
    row = Row("work", "ours", "theirs", Ratio((2.0, 3.0)), 2.5)
    results = Results(SETTING, {"torch": "2"}, {"heads": Outcome([row], [times("peer", 1.5)], ["a note"])})
    results.profiles, results.growth = {"a head": [("aten::mm", 0.5)]}, [("way", "gram", 1.0, 2.0)]
    results.minutes = {"heads": 1.5}
    path = tmp_path / "results.json"
    path.write_text(text(results))
    assert earlier(path, SETTING, {"torch": "2"}) == results
    assert earlier(path, SETTING, {"torch": "3"}) is None
    assert earlier(path, replace(SETTING, threads=2), {"torch": "2"}) is None
    assert earlier(tmp_path / "none.json", SETTING, {"torch": "2"}) is None


def test_the_page_on_scale_is_that_of_its_record(tmp_path: Path) -> None:
    scale.page(json.loads(scale.RECORD.read_text()), tmp_path)
    assert (tmp_path / scale.PAGE).read_text() == (scale.HERE / scale.PAGE).read_text()
    assert (tmp_path / "scale-fit.svg").read_bytes().startswith(b"<?xml")


def test_examples_made_on_the_fly_are_the_same_at_every_reading() -> None:
    data = scale.Synthetic(5000, 8, 3)
    first, again = data.read(2), data.read(2)
    assert (first.features == again.features).all()
    assert [len(data.read(number).codes) for number in range(len(data))] == [2048, 2048, 904]
