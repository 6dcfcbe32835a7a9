"""Table 4: seconds in words, what was timed of the whole, and multiples of one row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handful.paper import published, table4
from handful.paper.table4 import (
    HEAD,
    ROWS,
    UNIT,
    TimedResult,
    Timing,
    lines_of,
    noise_images,
    ratio_picture,
    time_rows,
    write_timing,
)


def test_table_4_times_the_published_rows() -> None:
    assert list(ROWS) == list(published.TABLE_4)


def timed(label: str, seconds: float, published: float, once: float | None = 2.0) -> TimedResult:
    images = None if once is None else Timing(once, 12_000, 12_000, "images")
    return TimedResult(label, published, Timing(seconds, 500, 10_000, "episodes"), images)


RESULTS = [timed("MAML (32C)", 600.0, 114.0, None), timed(UNIT, 60.0, 57.0), timed("Proto nets (32C)", 30.0, 28.5)]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.04, "0.0 s"), (59.4, "59.4 s"), (60.0, "1 min 0 s"), (3_725.2, "62 min 5 s")]
)
def test_times_are_told_in_minutes_and_seconds(seconds: float, said: str) -> None:
    assert str(Timing(seconds, 1, 1, "episodes")) == said


def test_a_time_says_whether_the_whole_was_timed() -> None:
    assert Timing(1.0, 500, 10_000, "episodes").basis == "EXTRAPOLATED from 500 of 10,000 episodes"
    assert Timing(1.0, 10_000, 10_000, "episodes").basis == "all 10,000 episodes"


def test_ratios_are_multiples_of_one_row_the_papers_and_ours_apart() -> None:
    lines = lines_of(RESULTS)
    paper, ours = HEAD.index("paper, ratio"), HEAD.index("ours, ratio")
    assert [row[paper] for row in lines.rows] == ["2.00", "1.00", "0.50"]
    assert [row[ours] for row in lines.rows] == ["10.00", "1.00", "0.50"]
    assert lines.rows[0][HEAD.index("images once")] == "—"
    without = lines_of([RESULTS[0]])
    assert without.rows[0][paper] == without.rows[0][ours] == "—"
    assert b"Proto nets" in ratio_picture(RESULTS).data


def test_a_row_is_timed_over_as_many_episodes_as_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table4, "SIZE", 24)
    monkeypatch.setattr(table4, "POOL", 300)  # the noise images, once
    said: list[str] = []
    (whole,) = time_rows([UNIT], 1e9, said.append, episodes=3)
    assert (whole.by_episode.measured, whole.by_episode.whole, whole.published) == (3, 3, published.TABLE_4[UNIT])
    assert whole.images_once is not None
    assert whole.images_once.measured == 300
    (part,) = time_rows([UNIT], 0.0, said.append, episodes=1_000, both=False)
    assert (part.by_episode.measured, part.by_episode.whole, part.images_once) == (1, 1_000, None)
    assert len(said) == 2
    assert "EXTRAPOLATED from 1 of 1,000 episodes" in said[1]


def test_noise_images_have_the_size_of_mini_imagenet_and_follow_the_seed() -> None:
    first, same, other = (noise_images(seed) for seed in (0, 0, 1))
    assert first.image_shape == (3, 84, 84)
    assert first.gather(first.rows[:2]).equal(same.gather(same.rows[:2]))
    assert not first.gather(first.rows[:2]).equal(other.gather(other.rows[:2]))


def test_the_report_is_written_as_json_text_and_page(tmp_path: Path) -> None:
    json_path, text_path, page_path = write_timing(RESULTS, tmp_path, "handful reproduce table4")
    facts = json.loads(json_path.read_text())
    assert [row["by_episode"]["seconds"] for row in facts["rows"]] == [600.0, 60.0, 30.0]
    assert facts["command"] == "handful reproduce table4"
    for path in (text_path, page_path):
        assert "EXTRAPOLATED from 500 of 10,000 episodes" in path.read_text()
        assert "10.00" in path.read_text()
