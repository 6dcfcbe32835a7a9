"""Trackers see every update and every validation score."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from handful.cli import main
from handful.errors import InvalidOptionError
from handful.meta.tracking import tensorboard
from handful.meta.train import Progress


def progress(episode: int, scores: dict[str, float] | None = None) -> Progress:
    return Progress(episode, 1.0 / episode, 0.5, 0.005, scores, (), 1.0)


def test_tensorboard_gets_the_loss_of_every_update_and_each_validation_score(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with tensorboard(tmp_path) as record:
        for each in (progress(1), progress(2, {"1-shot": 0.4})):
            record(each)
    events = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(each.step, each.value) for each in events.Scalars("train/loss")] == [(1, 1.0), (2, 0.5)]
    assert [round(each.value, 6) for each in events.Scalars("validation/1-shot")] == [0.4]


def test_a_missing_tensorboard_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InvalidOptionError, match=r"handful\[tensorboard\]"), tensorboard(tmp_path):
        pass


def test_training_without_tensorboard_stops_before_it_makes_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["train", "--out", str(tmp_path / "run"), "--episodes", "1", "--tensorboard"]) == 2
    assert "handful[tensorboard]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
