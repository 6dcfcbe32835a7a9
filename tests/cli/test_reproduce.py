"""`handful reproduce` as a person uses it, on data small enough for a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from handful.cli import main
from handful.data.table import Benchmark

QUICK = ["--episodes", "2", "--width", "32C", "--test-episodes", "40", "--threads", "1"]


def handful(root: Path, *words: str | Path, check: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "handful", "reproduce", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "HANDFUL_DATA": str(root)},
    )
    assert done.returncode == check, done.stderr
    return done


@pytest.mark.slow
def test_a_table_is_trained_tested_and_written(small_root: Path, tmp_path: Path) -> None:
    words = ["table1", "--only", "cifar-fs/r2d2-64C", "cifar-fs/protonet-64C", "--variant", "paper", "authors"]
    words += ["--test-episodes-of", "protonet-64C-1shot=9"]
    told = handful(small_root, *words, *QUICK, "--seeds", "2", "--out", tmp_path).stdout
    assert "[1/10]" in told
    assert "No published number has been compared with a complete run yet." in told
    facts = json.loads((tmp_path / "table1.json").read_text())
    cells = {(cell["row"], cell["variant"], cell["column"]): cell for cell in facts["cells"]}
    cell = cells["R2-D2 (64C)", "authors", "CIFAR-FS 5-way 1-shot"]
    assert cell["published"] is None  # a 32C net is no 64C net
    assert cell["comparison"] is None
    assert cell["label"] == "R2-D2 (64C), on 32C · authors"
    assert cell["ours"]["closed"]["n"] == 40
    assert len(cell["manifests"]) == 2
    assert cells["Proto net", "authors", "CIFAR-FS 5-way 1-shot"]["ours"]["closed"]["n"] == 9
    assert "2 of 120,000 episodes" in cell["shortfall"]
    assert cells["Proto net", "authors", "CIFAR-FS 5-way 5-shot"]["recipe"] == "cifar-fs/protonet-64C-5shot/authors"
    assert facts["test_episodes"]["CIFAR-FS 5-way 1-shot"]["query"] == 47
    assert any(p["first"].startswith("Proto net") and p["second"].startswith("R2-D2") for p in facts["pairs"])
    assert all(pair["published"] is None for pair in facts["pairs"])
    text = (tmp_path / "table1.md").read_text()
    assert "IN PART: 32C in place of 64C; 2 of 120,000 episodes" in text
    assert "| R2-D2 (64C), on 32C · authors |" in text
    page = (tmp_path / "table1.html").read_text()
    assert "<svg" not in page  # pictures stand in the page as data
    assert page.count("data:image/svg+xml;base64") == 1
    assert "IN PART" in page
    runs = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/*.safetensors")}
    handful(small_root, *words, *QUICK, "--seeds", "2", "--out", tmp_path)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/*.safetensors")} == runs
    again = json.loads((tmp_path / "table1.json").read_text())
    assert [cell["ours"] for cell in again["cells"]] == [cell["ours"] for cell in facts["cells"]]
    handful(small_root, *words, *QUICK, "--first-seed", "1", "--out", tmp_path)
    alone = json.loads((tmp_path / "table1.json").read_text())
    assert {each["seed"] for cell in alone["cells"] for each in cell["manifests"]} == {1}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/*.safetensors")} == runs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "name", "part"),
    [
        (["figure-iterations", "--only", "cifar-fs-binary/lrd2-1"], "figure-iterations", "LR-D2, 10 steps"),
        (
            ["figure-hyperparameters", "--only", "cifar-fs/alpha learnt, 10"],
            "figure-hyperparameters",
            "alpha learnt, 10",
        ),
        (["appendix-a", "--only", "cifar-fs/transfer-64C"], "appendix-a", "Pre-trained + ridge (64C)"),
        (["table3", "--only", "cifar-fs-binary/protonet", "--variant", "paper"], "table3", "Proto nets"),
        (["ablation", "--only", "cifar-fs/r2d2-64C-no-extra-pool"], "ablation", "no extra pool"),
    ],
)
def test_every_other_experiment_runs_too(
    small_root: Path, tmp_path: Path, words: list[str], name: str, part: str
) -> None:
    handful(small_root, *words, *QUICK, "--out", tmp_path)
    assert part in (tmp_path / f"{name}.md").read_text()
    facts = json.loads((tmp_path / f"{name}.json").read_text())
    assert all(cell["ours"]["closed"]["n"] == 40 for cell in facts["cells"])
    assert "data:image/svg+xml" in (tmp_path / f"{name}.html").read_text()


@pytest.mark.slow
def test_choices_beyond_the_paper_are_compared_on_validation_classes(small_root: Path, tmp_path: Path) -> None:
    words = ["beyond", "--only", "cifar-fs/the variant", "cifar-fs/turned and mixed", "--budget", "0.001"]
    handful(small_root, *words, *QUICK, "--out", tmp_path)
    facts = json.loads((tmp_path / "beyond.json").read_text())
    recipes = [f"cifar-fs/r2d2-64C{added}/modern" for added in ("", "-turned-mixed")]
    assert [cell["recipe"] for cell in facts["beyond_the_paper"]] == [name for name in recipes for _ in range(2)]
    adds = facts["beyond_the_paper"][-1]["adds"]
    kinds = ("quarter turns as classes", "CutMix of queries")
    assert [f"{kind} (share 0.5 of the episodes)" in adds for kind in kinds] == [True, True]
    assert "augmentation (crop, flip)" not in adds  # `modern` has it too
    told = (tmp_path / "beyond.md").read_text()
    assert told.count("| turned and mixed, on 32C · modern | the variant `modern`, on 32C · modern |") == 2
    assert "40 validation episodes with" in told
    assert {path.name[:4] for path in (tmp_path / "runs").glob("*/*way*shot*.json")} == {"val-"}
    assert "all the same" in handful(small_root, "verify", tmp_path).stdout


@pytest.mark.slow
def test_the_modern_recipe_keeps_averaged_weights(small_root: Path, tmp_path: Path) -> None:
    words = ["table1", "--only", "cifar-fs/r2d2-64C", "--variant", "modern", "--budget", "0.001"]
    handful(small_root, *words, *QUICK, "--out", tmp_path)
    facts = json.loads((tmp_path / "table1.json").read_text())
    assert [cell["recipe"] for cell in facts["beyond_the_paper"]] == ["cifar-fs/r2d2-64C/modern"] * 2
    assert facts["beyond_the_paper"][0]["manifests"][0]["episodes"] >= 1


@pytest.mark.slow
def test_a_run_of_handful_train_fills_a_row(small: Benchmark, tmp_path: Path) -> None:
    name = "cifar-fs/r2d2-64C/authors"
    words = ["--width", "32C", "--episodes", "2", "--schedule", "cosine", "--threads", "1"]
    made = tmp_path / "runs" / "mine"
    assert main(["train", "--out", str(made), "--recipe", name, *words]) == 0
    noted = json.loads((made / "manifest.json").read_text())
    assert (noted["episodes"], noted["data"], len(noted["content"])) == (2, "cifar-fs", 64)
    assert noted["seconds"] > 0
    only = ["--only", "cifar-fs/r2d2-64C", "--test-episodes", "40"]
    assert main(["reproduce", "table1", *words, *only, "--out", str(tmp_path)]) == 0
    cell = json.loads((tmp_path / "table1.json").read_text())["cells"][0]
    assert cell["manifests"][0]["sessions"] == noted["sessions"]
    assert cell["shortfall"].startswith("32C in place of 64C; cosine in place of step schedule; 2 of 120,000 episodes")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["mine"]


@pytest.mark.slow
def test_a_dry_run_tells_the_time_and_writes_nothing(small_root: Path, tmp_path: Path) -> None:
    words = ["table1", "--only", "r2d2-64C", "--dry-run", "--threads", "1", "--out", tmp_path / "none"]
    told = handful(small_root, *words).stdout
    assert "cifar-fs/r2d2-64C/authors: " in told
    assert "to go (0 of 15,500 episodes done" in told
    assert "mini-imagenet/r2d2-64C/authors" in told
    assert "; cannot run now: mini-imagenet is not there" in told
    assert "Get it with: handful data add mini-imagenet" in told
    assert "In total" in told
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_dry_run_times_rows_whose_data_is_not_there_on_noise_of_their_size(tmp_path: Path) -> None:
    words = ["table2", "--only", "R2-D2 (64C)", "--dry-run", "--threads", "1", "--width", "32C"]
    told = handful(tmp_path, *words, "--out", tmp_path / "no").stdout
    assert "omniglot/r2d2-64C/authors: " in told
    assert "cannot run now: omniglot-nearest is not there" in told
    assert "Get it with: handful data add omniglot" in told


@pytest.mark.slow
def test_estimates_price_each_cost_once_and_say_what_they_assume(small: Benchmark, tmp_path: Path) -> None:
    words = ["--only", "cifar-fs/r2d2-64C", "cifar-fs/r2d2-lam-fixed", "omniglot/protonet-64C-5shot", "--width", "32C"]
    assert main(["reproduce", "estimates", *words, "--threads", "1", "--out", str(tmp_path)]) == 0
    facts = json.loads((tmp_path / "reproduce-estimates.json").read_text())
    runs = {run["recipes"][0]: run for run in facts["runs"]}
    same = runs["cifar-fs/r2d2-64C/authors"]
    assert {"cifar-fs/r2d2-lam-fixed-1-wide/authors", "cifar-fs/r2d2-64C-lam-learnt/authors"} <= set(same["recipes"])
    assert (same["episodes"], same["images_per_update"]) == (120_000, 240)
    steps, validations = 120_000 * same["seconds_per_update"], 1_200 * same["seconds_per_validation"]
    assert 3600 * same["hours_here"] == pytest.approx(steps + validations)
    # forward and backward of the four convolutions, the image's gradient left out: 32 filters, sides 32, 16, 8, 4
    forward = 2 * 240 * 9 * 32 * (3 * 32**2 + 32 * (16**2 + 8**2 + 4**2))
    first = 2 * 240 * 9 * 32 * 3 * 32**2
    assert same["operations_per_update"] == pytest.approx(3 * forward - first, rel=0.05)  # and the solver's products
    assert same["gpu_hours_estimated"] == pytest.approx(120_000 * same["operations_per_update"] / 5e12 / 3600)
    assert "noise of the same size" in runs["omniglot/protonet-64C-5shot/authors"]["measured_on"]
    text = (tmp_path / "reproduce-estimates.md").read_text()
    assert "an ESTIMATE, not a measurement" in text
    assert "5 TFLOP/s" in text
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_table_4_is_measured_and_says_where_it_extrapolates(tmp_path: Path) -> None:
    words = ["table4", "--only", "R2-D2 (32C)", "Proto nets", "MAML", "--budget", "0.02", "--threads", "1"]
    told = handful(tmp_path, *words, "--out", tmp_path).stdout
    assert "EXTRAPOLATED from" in told
    facts = json.loads((tmp_path / "table4.json").read_text())
    assert [row["published"] for row in facts["rows"]] == [395.0, 57.0, 24.0]
    assert all(row["by_episode"]["measured"] < row["by_episode"]["whole"] == 10_000 for row in facts["rows"])
    assert all(row["by_episode"]["seconds"] > 0 for row in facts["rows"])
    assert "EXTRAPOLATED" in (tmp_path / "table4.html").read_text()
    assert "EXTRAPOLATED" in (tmp_path / "table4.md").read_text()


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, part in (
        (["table1", "--only", "r3d3"], "No row of table1 contains 'r3d3'"),
        (["table1", "--seeds", "0"], "--seeds must be at least 1"),
        (["table1", "--budget", "-3"], "--budget must not be negative"),
        (["table1", "--episodes-of", "maml=0"], "maml=0"),
        (["table1", "--episodes-of", "maml"], "--episodes-of takes WORD=N"),
        (["table1", "--test-episodes-of", "maml=1"], "--test-episodes-of takes WORD=N with N at least 2"),
        (["table9"], "table1"),
    ):
        assert _code(["reproduce", *words, "--out", str(tmp_path / "none")]) == 2
        said = capsys.readouterr().err
        assert part in said
        assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "none").exists()


def _code(words: list[str]) -> object:
    try:
        return main(words)
    except SystemExit as stop:
        return stop.code


def test_recipes_are_listed_by_words_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "cifar-fs", "R2D2-64C", "/authors"]) == 0
    *lines, count = capsys.readouterr().out.splitlines()
    assert all(line.startswith("cifar-fs/r2d2-64C") for line in lines)
    assert count.startswith(f"{len(lines)} of ")
    assert main(["recipes", "cifar-fs", "r3d3"]) == 2
    assert "'cifar-fs' and 'r3d3'" in capsys.readouterr().err
