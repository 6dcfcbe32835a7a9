"""The weights that come with the package: they are what their card says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from handful import data
from handful.classifier.embedder import CHARACTERS, named_embedder
from handful.episodes import EpisodeSampler, FixedShots
from handful.meta.evaluate import evaluate
from handful.meta.run import read_run
from tools import pack_weights

CARD = CHARACTERS.with_suffix(".md").read_text()


def test_the_card_names_what_the_file_holds() -> None:
    trained = read_run(CHARACTERS)
    parameters = sum(parameter.numel() for parameter in trained.model.embedding.parameters())
    assert f"{parameters:,} parameters" in CARD
    assert f"`{trained.recipe.data}`" in CARD
    assert f"{trained.episodes:,} episodes" in CARD
    assert named_embedder("characters").preprocessing.bright_ink


@pytest.mark.slow
def test_the_accuracy_on_the_card_is_reached(tmp_path: Path) -> None:
    column = [cell.strip() for cell in CARD.split("| episodes |")[1].splitlines()[0].split("|")].index(
        "`glyphs`, never trained on"
    )
    (row,) = [line for line in CARD.splitlines() if line.startswith("| 5-way 1-shot")]
    claimed = float(re.findall(r"([\d.]+) ±", row)[column])
    test = data.load("glyphs", root=tmp_path).test
    result = evaluate(read_run(CHARACTERS).model, EpisodeSampler(test, FixedShots(5, 1, 10), 5), 600)
    # 600 other episodes: their mean has a standard deviation of 0.2 points
    assert abs(100 * result.mean - claimed) < 1.0


def test_weights_are_packed_from_a_checkpoint_with_their_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pack_weights, "measure", lambda trained, name: ())
    monkeypatch.setattr(pack_weights, "KINDS", ())
    target = tmp_path / "again.safetensors"
    card = pack_weights.pack(CHARACTERS, target)
    assert card == target.with_suffix(".md").read_text()
    assert card.startswith("# Weights `again`")
    assert read_run(target).recipe == read_run(CHARACTERS).recipe
    assert pack_weights.main([str(tmp_path / "missing")]) == 2
    assert "There is no checkpoint" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_explains_itself() -> None:
    done = subprocess.run([sys.executable, "-m", "tools.pack_weights"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "usage: python -m tools.pack_weights RUN\n"
