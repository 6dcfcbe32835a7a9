"""Commands with --scheduler: what is refused before any worker starts, and a fit and its answers by one worker."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import tyro

from handful.classifier.distributed import LinearClassifier, load_linear
from handful.classifier.estimate import ScoreEstimate
from handful.classifier.heads import LinearMap
from handful.cli.distributed import fit_by_dask, predict_by_dask
from handful.cli.fit import Fit
from handful.cli.predict import Predict
from handful.errors import InvalidOptionError
from tests.classifier.clients import Here


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """A classifier that was fitted to features, so that it has no embedding."""
    path, score = tmp_path / "a.handful", ScoreEstimate(0.5, 0.4, 0.6, 10, weight=11.0)
    LinearClassifier(("a", "b"), LinearMap(np.zeros((3, 2)), np.zeros(2)), 1.0, 1.0, score).save(path)
    return path


def test_predictions_need_a_folder_for_the_answers(linear: Path) -> None:
    with pytest.raises(InvalidOptionError, match="--parquet"):
        predict_by_dask(linear, ["a.png"], None, "local:1")


def test_a_classifier_of_features_labels_no_images(linear: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"a\.handful"):
        predict_by_dask(linear, ["a.png"], tmp_path / "out", "local:1")
    assert not (tmp_path / "out").exists()


def test_a_fit_and_its_answers_are_those_of_the_library(
    own_cache: None, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra handful[dask]")
    monkeypatch.setattr("handful.classifier.distributed.cluster", lambda scheduler: nullcontext(Here()))
    file, out = tmp_path / "a.handful", tmp_path / "answers"
    assert fit_by_dask(folder, file, None, "here", "characters", "auto", balance=True) == 0
    said = capsys.readouterr().out
    assert "4 classes, 16 images, embedding characters" in said
    assert f"Accuracy: {load_linear(file).estimate}" in said
    assert (tmp_path / "a.handful.shards").is_dir()
    images = [str(path) for path in sorted(folder.rglob("*.png"))]
    assert predict_by_dask(file, iter(images), out, "here") == 0
    assert "16 images labelled in 1 Parquet files" in capsys.readouterr().out
    table = parquet.read_table(out)
    assert table.column("label").to_pylist() == [Path(image).parent.name for image in images]
    with pytest.raises(InvalidOptionError):
        predict_by_dask(file, iter(()), out, "here")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--scheduler", "local:1", "--parquet", "o", "--move-to", "x", "--top", "2"], "--top, --move-to"),
        (["--scheduler", "local:1", "--parquet", "o", "--json"], "--json"),
        (["--parquet", "o"], "--parquet"),
    ],
)
def test_options_that_would_be_ignored_are_refused(words: list[str], named: str) -> None:
    with pytest.raises(InvalidOptionError, match=named):
        tyro.cli(Predict, args=["a.handful", "a.png", *words])._check()
    with pytest.raises(InvalidOptionError, match="--shards"):
        tyro.cli(Fit, args=["folder", "-o", "none.handful", "--shards", "x"]).run()


def test_results_of_other_images_are_not_taken_for_these(
    own_cache: None, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow.parquet", reason="needs the extra handful[dask]")
    monkeypatch.setattr("handful.classifier.distributed.cluster", lambda scheduler: nullcontext(Here()))
    file, out = tmp_path / "a.handful", tmp_path / "answers"
    fit_by_dask(folder, file, None, "here", "characters", "auto", balance=True)
    first, second, *_ = (str(path) for path in sorted(folder.rglob("*.png")))
    assert predict_by_dask(file, [first], out, "here") == 0
    assert predict_by_dask(file, [first], out, "here") == 0  # a repeated call continues
    with pytest.raises(InvalidOptionError, match="other images"):
        predict_by_dask(file, [second], out, "here")
