"""A report can be recomputed from its counts, and anything that was changed afterwards is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from handful.cli import main
from handful.data.table import Benchmark
from handful.errors import DataError
from handful.paper.report import write_report
from handful.paper.testing import Counts
from handful.paper.verify import counts_bytes, read_counts, reports_below, verify
from tests.paper.test_results import cell, results, score

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report(tiny: Benchmark, tmp_path: Path) -> Path:
    """A report of three cells with one and two seeds, one beyond the paper, in a folder below `tmp_path`."""
    cells = [
        cell("R2-D2 (64C)", score(0.62), score(0.63, seed=1)),
        cell("Proto net", score(0.55)),
        cell("R2-D2 (64C)", score(0.64), variant="modern"),
    ]
    write_report(results(tiny, *cells), tmp_path / "below")
    return tmp_path / "below" / "table1.json"


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def test_an_honest_report_passes(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reports_below(tmp_path) == [report]
    assert reports_below(report) == [report]
    found = verify(report)
    # nine for each of three cells; four and a verdict for each of two comparisons; seven for each of three pairs
    assert (found.complaint, found.figures) == ("", 3 * 9 + 2 * 5 + 3 * 7)
    assert main(["reproduce", "verify", str(tmp_path)]) == 0
    assert "1 recomputed (58 figures), 0 without counts, 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    "place",
    [
        ("cells", 0, "ours", "closed", "mean"),
        ("cells", 1, "ours", "open", "half"),
        ("cells", 0, "ours", "over_seeds", "half"),
        ("beyond_the_paper", 0, "ours", "closed", "half"),
        ("cells", 1, "comparison", "difference"),
        ("cells", 1, "comparison", "half"),
        ("pairs", 2, "closed", "mean"),
        ("pairs", 0, "open", "half"),
    ],
)
def test_a_changed_figure_is_found(
    report: Path, place: tuple[str | int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    def change(facts: dict[str, Any]) -> None:
        part: Any = facts
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] += 1e-5

    edit(report, change)
    assert f"{place[-1]}" in verify(report).complaint
    assert "but the counts give" in verify(report).complaint
    assert main(["reproduce", "verify", str(report)]) == 2
    assert "table1.json: WRONG: " in capsys.readouterr().out


def test_a_changed_verdict_is_found(report: Path) -> None:
    edit(report, lambda facts: facts["cells"][1]["comparison"].update(verdict="above"))
    assert "verdict is above, but the counts give agrees" in verify(report).complaint


def test_a_changed_count_is_found_even_if_the_mean_stays(report: Path) -> None:
    path = report.with_name("table1.counts.safetensors")
    payload = bytearray(path.read_bytes())
    payload[-1] ^= 1
    path.write_bytes(payload)
    assert "but the counts give" in verify(report).complaint
    edit(report, lambda facts: facts.update(cells=[], beyond_the_paper=[], pairs=[]))
    assert "hash" in verify(report).complaint


@pytest.mark.parametrize("left", [0, 6, 100, -1])
def test_a_truncated_counts_file_is_refused(report: Path, left: int) -> None:
    path = report.with_name("table1.counts.safetensors")
    path.write_bytes(path.read_bytes()[:left])
    assert "per-episode counts" in verify(report).complaint


def test_a_missing_counts_file_or_key_is_refused(report: Path) -> None:
    path = report.with_name("table1.counts.safetensors")
    whole = path.read_bytes()
    path.unlink()
    assert "There is no file" in verify(report).complaint
    path.write_bytes(whole)
    edit(report, lambda facts: facts["cells"][0]["ours"].update(counts=["elsewhere"]))
    assert "has nothing under 'elsewhere'" in verify(report).complaint


def test_a_report_without_counts_passes_only_with_its_reason(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(report, lambda facts: facts.pop("counts"))
    assert verify(report).complaint == "no per-episode counts (made before they were kept)"
    edit(report, lambda facts: facts.update(counts=None))
    assert verify(report).complaint == "no counts, and no reason given"
    edit(report, lambda facts: facts.update(no_counts_because="the runs are gone"))
    assert str(verify(report)) == f"{report}: cannot be recomputed: the runs are gone"
    assert main(["reproduce", "verify", str(report)]) == 0
    assert "0 recomputed (0 figures), 1 without counts, 0 wrong" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"cells": None},
        {"cells": [{"ours": 5, "column": "5-way", "label": []}]},
        {"pairs": {"first": 1}},
        {"counts": {"file": "x" * 5000}},
        {"counts": "table1"},
        {"cells": 1e999},
    ],
)
def test_a_hostile_report_is_one_complaint(report: Path, change: dict[str, Any]) -> None:
    edit(report, lambda facts: facts.update(change))
    assert "\n" not in verify(report).complaint
    assert verify(report).complaint


def test_json_that_is_nested_too_deeply_is_no_report(report: Path, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    assert reports_below(tmp_path) == [report]
    assert verify(tmp_path / "deep.json").complaint == "the report cannot be read: its JSON is nested too deeply"


def test_a_folder_without_reports_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(DataError, match="`handful reproduce`"):
        reports_below(tmp_path)
    with pytest.raises(DataError, match="/none"):
        reports_below(tmp_path / "none")


@pytest.mark.parametrize(("queries", "size"), [(255, 1), (380, 2)])
def test_counts_are_small_come_back_the_same_and_have_the_same_bytes(queries: int, size: int, tmp_path: Path) -> None:
    correct = torch.randint(queries + 1, (10_000,), generator=torch.Generator().manual_seed(0))
    measured = Counts(correct, queries, correct[:40], 75)
    payload = counts_bytes([("b", measured), ("a", measured)])
    assert payload == counts_bytes([("a", measured), ("b", measured)])
    assert len(payload) < 2 * 10_040 * size + 700  # 700 for the header
    path = tmp_path / "x.counts.safetensors"
    path.write_bytes(payload)
    back = read_counts(path)
    assert list(back) == ["a", "b"]
    assert back["a"].correct.equal(correct)
    assert (back["b"].queries, back["b"].queries_apart) == (queries, 75)
    assert back["b"].accuracies.equal(measured.accuracies)


@pytest.mark.skipif(not (ROOT / "results" / "reproduce").is_dir(), reason="results are not part of this copy")
def test_every_report_in_results_can_be_recomputed_or_says_why_not() -> None:
    verified = [verify(path) for path in reports_below(ROOT / "results")]
    assert [str(found) for found in verified if found.complaint] == []
    assert sum(found.figures for found in verified if not found.excuse) >= 28  # two columns by the authors' recipe


@pytest.mark.parametrize("name", ["/etc/passwd", "../table1.counts.safetensors", "a/b"])
def test_a_report_leads_to_no_other_folder(report: Path, name: str) -> None:
    edit(report, lambda facts: facts["counts"].update(file=name))
    assert "in its own folder" in verify(report).complaint


def test_a_counts_file_larger_than_any_is_not_read(report: Path) -> None:
    with report.with_name("table1.counts.safetensors").open("r+b") as file:
        file.truncate(10**9)
    assert "is larger than" in verify(report).complaint
