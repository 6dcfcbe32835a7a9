"""`handful evaluate`: the figures of the library, as lines and as JSON, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from handful.cli.main import main
from handful.data.table import Benchmark
from handful.embeddings import Centred, MeanOverViews
from handful.episodes import EpisodeSampler, FixedShots
from handful.learners import with_lam
from handful.meta.config import Plan, Recipe
from handful.meta.evaluate import evaluate
from handful.meta.features import mean_features
from handful.meta.model import FewShotModel
from handful.meta.run import Run
from tests.cli.cases import QUICK, run_handful
from tests.conftest import blobs


@pytest.mark.slow
def test_train_then_evaluate_then_json(tmp_path: Path) -> None:
    run = tmp_path / "run"
    told = run_handful("train", "--out", run, *QUICK, "--episodes", "40").stdout
    assert "Best validation" in told
    assert {path.name for path in run.iterdir()} == {
        ".lock", "recipe.json", "log.jsonl", "manifest.json", "last.safetensors",
        "best-mean.safetensors", "best-1-shot.safetensors", "best-5-shot.safetensors",
    }  # fmt: skip
    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [line["episode"] for line in log] == list(range(1, 41))
    assert [line["episode"] for line in log if "validation" in line] == [20, 40]
    out = tmp_path / "result.json"
    shown = run_handful("evaluate", run, "--shot", "1", "--episodes", "200", "--json", out, "--verbose").stdout
    assert "5-way 1-shot" in shown
    assert "embedding" in shown
    result = json.loads(out.read_text())[0]
    assert len(result["accuracies"]) == 200
    assert result["inductive"] is True
    again = run_handful("train", "--out", run, *QUICK, check=2)
    assert "already holds a run" in again.stderr


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
    said = run_handful("evaluate", path, check=2).stderr
    assert str(path) in said
    assert ("did not write" in said) == (damage == "foreign")
    assert len(said.strip().splitlines()) == 1


@pytest.fixture
def run(tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of one episode on the small data set, which goes by the name 'tiny'."""
    monkeypatch.setattr("handful.data.load", lambda name, split=None: tiny)
    plan = Plan(episodes=1, validate_every=0)
    made = Run(
        tmp_path / "run", Recipe(data="tiny", width="32C", way=3, images_per_class=4, max_shot=2, plan=plan), tiny
    )
    made.start()
    list(made.train())
    return made


def test_lines_and_json_hold_what_the_library_computes(
    run: Run, tiny: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--way", "3", "--shot", "1", "2", "--query", "4", "--episodes", "6", "--seed", "5", "--checkpoint", "last"]
    target = tmp_path / "result.json"
    assert main(["evaluate", str(run.folder), *words, "--data", "tiny", "--split", "val", "--json", str(target)]) == 0
    said = capsys.readouterr().out.splitlines()
    kept = json.loads(target.read_text())
    for shot, line, facts in zip((1, 2), said, kept, strict=False):
        expected = evaluate(run.model.eval(), EpisodeSampler(tiny.val, FixedShots(3, shot, 4), 5), 6)
        assert line == str(expected)
        assert facts["accuracies"] == pytest.approx(expected.accuracies.tolist(), abs=1e-6)  # written to six digits
        assert (facts["data"], facts["run"]) == ("tiny", str(run.folder))
    assert len(kept) == 2


def test_features_can_be_averaged_over_views(
    run: Run, tiny: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--way", "3", "--shot", "1", "--query", "4", "--episodes", "6", "--checkpoint", "last", "--data", "tiny"]
    target = tmp_path / "result.json"
    assert main(["evaluate", str(run.folder), *words, "--views", "shift", "mirror", "--json", str(target)]) == 0
    mean = FewShotModel(MeanOverViews(run.model.embedding, mirror=True, shift=1), run.model.learner).eval()
    expected = evaluate(mean, EpisodeSampler(tiny.test, FixedShots(3, 1, 4)), 6)
    assert capsys.readouterr().out.splitlines()[0] == f"{expected}; features averaged over views: shift, mirror"
    assert json.loads(target.read_text())[0]["views"] == ["shift", "mirror"]


def test_features_can_be_centred_and_lambda_replaced(
    run: Run, tiny: Benchmark, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handful.meta.run.benchmark_of", lambda recipe, recorded: tiny)
    words = ["--way", "3", "--shot", "2", "--query", "4", "--episodes", "6", "--checkpoint", "last"]
    target, more = tmp_path / "result.json", ["--views", "shift-2", "--centre", "--lam", "0.5"]
    assert main(["evaluate", str(run.folder), *words, *more, "--json", str(target)]) == 0
    embedding = Centred(MeanOverViews(run.model.embedding, shift=2), mean_features(run.model.embedding, tiny.train))
    model = FewShotModel(embedding, with_lam(run.model.learner, 0.5)).eval()
    expected = evaluate(model, EpisodeSampler(tiny.test, FixedShots(3, 2, 4)), 6)
    said = capsys.readouterr().out.splitlines()[0]
    assert said == f"{expected}; features averaged over views: shift-2; features centred; lambda 0.5"
    kept = json.loads(target.read_text())[0]
    assert (kept["views"], kept["centre"], kept["lam"]) == (["shift-2"], True, 0.5)
    assert kept["accuracies"] == pytest.approx(expected.accuracies.tolist(), abs=1e-6)


@pytest.mark.parametrize("lam", ["0", "-1", "nan"])
def test_a_lambda_that_cannot_be_is_refused(lam: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run.folder), "--checkpoint", "last", "--data", "tiny", "--lam", lam]) == 2
    said = capsys.readouterr().err
    assert "lam must be positive and finite" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("memory", ["0", "-1", "nan", "1e9"])
def test_memory_that_cannot_be_is_refused(memory: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path), "--memory", memory]) == 2
    said = capsys.readouterr().err
    assert "--memory" in said
    assert said.count("\n") == 1


def test_images_of_another_shape_are_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = blobs(6, 3, 32, 3)
    parts = (table.split(part, table.classes[2 * i : 2 * i + 2]) for i, part in enumerate(("train", "val", "test")))
    colour = Benchmark("colour", *parts)
    monkeypatch.setattr("handful.data.load", lambda name, split=None: colour)
    assert main(["evaluate", str(run.folder), "--checkpoint", "last", "--data", "colour"]) == 2
    said = capsys.readouterr().err
    assert "trained on grey images of 28 x 28 pixels" in said
    assert "are colour and 32 x 32" in said


@pytest.mark.parametrize(("given", "split"), [("elsewhere/birds", "0.9/0.05/0.05"), ("other", None)])
def test_the_runs_own_folder_keeps_its_classes_wherever_it_is_now(
    given: str, split: str | None, tmp_path: Path, tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Recipe(data="home/birds", split="0.9/0.05/0.05", width="32C", way=3, images_per_class=4, max_shot=2)
    run = Run(tmp_path / "run", replace(recipe, plan=Plan(episodes=1, validate_every=0)), tiny)
    run.start()
    list(run.train())
    asked: list[tuple[str, str | None]] = []

    def load(name: str, split: str | None = None) -> Benchmark:
        asked.append((name, split))
        return tiny

    monkeypatch.setattr("handful.data.load", load)
    words = ["--way", "3", "--query", "4", "--episodes", "2", "--checkpoint", "last", "--data", given]
    assert main(["evaluate", str(run.folder), *words]) == 0
    assert asked == [(given, split)]
