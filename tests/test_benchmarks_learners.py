"""The tables over all learners can be made: on a few episodes, far from what they report."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import learners, omniglot_learners


@pytest.mark.slow
def test_the_cost_table_has_a_row_for_every_learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments = ["learners", "--rounds", "1", "--query", "2", "--out", str(tmp_path / "costs")]
    monkeypatch.setattr(sys, "argv", arguments)
    learners.main()
    table = (tmp_path / "costs.md").read_text()
    assert all(f"| {name} |" in table for name in learners.MEASURED)
    times = json.loads((tmp_path / "costs.json").read_text())["seconds"]
    assert all(len(cost["training"]) == 1 and cost["adapting"][0] > 0 for cost in times.values())


@pytest.mark.slow
def test_learners_are_trained_within_the_time_and_kept_when_the_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    common = ["x", "--data", "glyphs", "--minutes", "0.01", "--episodes", "3", "--shots", "1"]
    common += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "table"), "--only"]
    for only in (["protonet"], ["protonet", "transfer"]):
        monkeypatch.setattr(sys, "argv", [*common, *only])
        omniglot_learners.main()
    assert "protonet: kept from" in capsys.readouterr().out
    rows = json.loads((tmp_path / "table.json").read_text())["learners"]
    assert set(rows) == {"protonet", "transfer"}
    assert rows["transfer"]["recipe"]["options"]["classes"] > 100
    for row in rows.values():
        assert 0 < row["trained_episodes"] <= row["recipe"]["plan"]["episodes"]
        assert row["test"]["1-shot"]["episodes"] == 3
    assert "| protonet |" in (tmp_path / "table.md").read_text()


def test_a_learner_in_the_table_is_trained_again_only_when_it_gets_more_time():
    assert omniglot_learners._budget({"minutes": 3.0, "training_minutes": 2.7}) == 3.0
    assert omniglot_learners._budget({"training_minutes": 2.7}) == 2.7
