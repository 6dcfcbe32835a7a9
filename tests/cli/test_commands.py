"""The command line as a person uses it: real processes, real signals, real files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from handful.cli import main
from handful.meta.checkpoint import read_checkpoint, write_checkpoint

SMALL = ["--data", "glyphs", "--width", "32C", "--way", "5", "--images-per-class", "6", "--max-shot", "3"]
QUICK = [*SMALL, "--val-episodes", "20", "--validate-every", "20", "--threads", "1"]


def handful(*words: str | Path, check: int | None = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "handful", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    if check is not None:
        assert done.returncode == check, done.stderr
    return done


def wait_for(condition: object, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < end, "the run did not get far enough to be stopped"
        time.sleep(0.02)


def test_help_needs_no_torch_and_names_the_commands() -> None:
    script = "import sys; sys.argv = ['handful', '--help']; from handful.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script], capture_output=True, text=True, check=False
    )
    assert not [line for line in done.stderr.splitlines() if line.rsplit("|")[-1].strip() == "torch"]
    for command in ("demo", "train", "evaluate", "data"):
        assert command in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["train", "--out", "x", "--way", "many"], "--way takes a whole number, but got 'many'"),
        (["train", "--out", "x", "--width", "65C"], "one of ('32C', '64C', 'wide'"),
        (["train", "--out", "x", "--dropout", "2"], "dropout is a probability in [0, 1), but got 2"),
        (["train", "--out", "x", "--rate", "-1"], "learning rate must be a positive number"),
        (["train", "--out", "x", "--learner", "r3d3"], "no learner 'r3d3'"),
        (["train", "--out", "x", "--set", "lamb=3"], "no option 'lamb'"),
        (["train", "--out", "x", "--set", "lam=much"], "float like 50.0, but got 'much'"),
        (["train", "--out", "x", "--set", "lam"], "name=value"),
        (["train", "--out", "x", "--way", "100000"], "needs 100000 classes"),
        (["train"], "--out"),
        (["trian"], "train"),
        (["evaluate", "nowhere"], "no checkpoint nowhere"),
        (["evaluate", "."], "no checkpoint"),
    ],
)
def test_a_wrong_value_gets_one_line_and_exit_code_2(tmp_path: Path, words: list[str], part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "handful", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert part in lines[0]
    assert lines[0].startswith("handful: ")
    assert not list(tmp_path.iterdir())


def test_version_is_told() -> None:
    assert handful("--version").stdout.startswith("handful 0.")


@pytest.mark.slow
def test_train_then_evaluate_then_json(tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = handful("train", "--out", run, *QUICK, "--episodes", "40").stdout
    assert "Best validation" in told
    assert {path.name for path in run.iterdir()} == {
        ".lock", "recipe.json", "log.jsonl", "manifest.json", "last.safetensors",
        "best-mean.safetensors", "best-1-shot.safetensors", "best-5-shot.safetensors",
    }  # fmt: skip
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["episode"] for line in log] == list(range(1, 41))
    assert [line["episode"] for line in log if "validation" in line] == [20, 40]
    out = tmp_path / "result.json"
    shown = handful("evaluate", run, "--shot", "1", "--episodes", "200", "--json", out, "--verbose").stdout
    assert "5-way 1-shot" in shown
    assert "embedding" in shown
    result = json.loads(out.read_text())[0]
    assert len(result["accuracies"]) == 200
    assert result["inductive"] is True
    again = handful("train", "--out", run, *QUICK, check=2)
    assert "already holds a run" in again.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_resumes_to_the_bits_of_an_uninterrupted_one(tmp_path: Path, sign: signal.Signals) -> None:
    words = [*QUICK, "--episodes", "60", "--dropout", "0.2", "--save-every", "5"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    handful("train", "--out", whole, *words)
    process = subprocess.Popen(
        [sys.executable, "-m", "handful", "train", "--out", str(broken), *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log = broken / "log.jsonl"
    wait_for(lambda: (broken / "last.safetensors").exists() and len(log.read_text().splitlines()) >= 23, process)
    os.kill(process.pid, sign)
    process.wait(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[sign]
    assert len(log.read_text().splitlines()) < 60
    handful("train", "--out", broken, "--resume", "--threads", "1")
    assert not list(broken.glob(".*.tmp")) or sign == signal.SIGKILL
    first, second = load_file(whole / "last.safetensors"), load_file(broken / "last.safetensors")
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)
    assert (whole / "log.jsonl").read_text() == log.read_text()
    best = "best-mean.safetensors"
    assert (whole / best).read_bytes() == (broken / best).read_bytes()


@pytest.mark.slow
def test_a_run_that_diverges_says_where_and_keeps_its_last_good_checkpoint(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*SMALL, "--validate-every", "0", "--threads", "1"]
    handful("train", "--out", run, *words, "--episodes", "2")
    tensors, facts = read_checkpoint(run / "last.safetensors")
    facts["recipe"]["plan"].update(episodes=20, rate=1e30)
    write_checkpoint(run / "last.safetensors", tensors, facts)
    (run / "recipe.json").write_text(json.dumps({"recipe": facts["recipe"]}))
    good = (run / "last.safetensors").read_bytes()
    said = handful("train", "--out", run, "--resume", check=2).stderr
    assert re.search(r"at episode [3-9] with learning rate 1e\+30\. The last checkpoint is kept", said)
    assert (run / "last.safetensors").read_bytes() == good


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["truncated", "foreign", "not a run"])
def test_a_damaged_checkpoint_is_refused_with_the_reason(tmp_path: Path, damage: str) -> None:
    from safetensors.torch import save_file
    from torch import zeros

    path = tmp_path / "last.safetensors"
    save_file({"w": zeros(1000)}, path)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:500])
    if damage == "not a run":
        path.write_text("hello")
    said = handful("evaluate", path, check=2).stderr
    assert ("handful did not write it" if damage == "foreign" else "not a complete safetensors file") in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.slow
def test_the_demonstration_writes_a_report_with_its_table(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    words = ["--episodes", "300", "--train-episodes", "100", "--threads", "1"]
    shown = handful("demo", "--out", out, *words).stdout
    page = (out / "report.html").read_text()
    for name in ("R2-D2", "Prototypical networks", "Untrained, nearest mean", "Raw pixels"):
        assert name in shown
        assert name in page
    assert "http" not in page.replace("http://www.w3.org", "")  # self-contained
    results = json.loads((out / "results.json").read_text())
    trained, untrained, pixels = (
        results[name][0] for name in ("R2-D2", "Untrained, nearest mean", "Raw pixels, nearest mean")
    )
    assert trained["mean"] - trained["ci95"] > untrained["mean"] + untrained["ci95"]
    assert trained["mean"] - trained["ci95"] > pixels["mean"] + pixels["ci95"]


def test_recipes_are_listed_by_words_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "cifar-fs", "R2D2-64C", "/authors"]) == 0
    *lines, count = capsys.readouterr().out.splitlines()
    assert all(line.startswith("cifar-fs/r2d2-64C") for line in lines)
    assert count.startswith(f"{len(lines)} of ")
    assert main(["recipes", "cifar-fs", "r3d3"]) == 2
    assert "'cifar-fs' and 'r3d3'" in capsys.readouterr().err
