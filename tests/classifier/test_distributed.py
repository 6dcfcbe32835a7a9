"""A fit by Dask equals the fit of one machine, whatever happens to its workers; shards and answers are resumable."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from handful.classifier import FewShotClassifier, distributed
from handful.classifier.answers import ScoreEstimate
from handful.classifier.distributed import (
    GROUP,
    LinearClassifier,
    cluster,
    embed_shards,
    fit,
    load_linear,
    predict_shards,
)
from handful.classifier.embedder import PACKAGED
from handful.classifier.heads import LinearMap
from handful.classifier.inputs import pictures
from handful.classifier.shards import Block
from handful.errors import CheckpointError, HandfulError, InvalidOptionError, NotEnoughClassesError
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from tests.classifier.clients import Here

pytest.importorskip("distributed", reason="Dask is an optional package")
WAY, WIDTH, ROWS = 5, 12, 20


@dataclass(frozen=True)
class Drawn:
    """Blocks of features around class means; reading block `deadly` kills the worker that does it, once."""

    blocks: int
    deadly: int = -1
    marker: str = ""
    spared: int = field(default_factory=os.getpid)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple("abcde")

    def __len__(self) -> int:
        return self.blocks

    def read(self, number: int) -> Block:
        if number == self.deadly and os.getpid() != self.spared:
            try:
                os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            except FileExistsError:
                pass
        means = np.random.default_rng(7).normal(size=(WAY, WIDTH))
        generator = np.random.default_rng(number)
        codes = generator.integers(WAY, size=ROWS) * (generator.random(ROWS) < 0.8)  # class a has more than the others
        return Block((3 + means[codes] + 0.9 * generator.normal(size=(ROWS, WIDTH))), codes)


def together(blocks: Drawn) -> tuple[Any, Any]:
    found = [blocks.read(number) for number in range(len(blocks))]
    return np.concatenate([each.features for each in found]), np.array(blocks.classes)[
        np.concatenate([each.codes for each in found])
    ]


@pytest.fixture(scope="module")
def fitted() -> LinearClassifier:
    return fit(Drawn(30), Here())


@pytest.mark.parametrize("balance", [True, False])
def test_the_fit_equals_that_of_one_machine_to_rounding(balance: bool) -> None:
    blocks = Drawn(30)
    X, y = together(blocks)
    alone = FewShotClassifier(balance=balance).fit(X, y)
    many = fit(blocks, Here(), balance=balance)
    assert many.lam == pytest.approx(alone.lam_, rel=1e-10)  # sums of another order
    # one prior for all fits here, one that looks at the fit there: it counts like a few of the examples
    assert many.scale == pytest.approx(alone.scale_, rel=0.15)
    assert many.estimate.accuracy == np.trace(alone.estimate().confusion) / len(alone.labels_)
    queries = np.random.default_rng(1).normal(size=(50, WIDTH)) + 3
    expected = alone.predict_proba(queries)
    np.testing.assert_allclose(many.predict_proba(queries), expected, atol=0.05)  # for the other scale
    assert (many.predict_proba(queries).argmax(1) == expected.argmax(1)).all()


def test_classes_of_one_example_each_are_refused_in_words() -> None:
    class Single(Drawn):
        def read(self, number: int) -> Block:
            return Block(np.eye(WAY, WIDTH), np.arange(WAY))

    with pytest.raises(NotEnoughClassesError, match="lambda"):
        fit(Single(1), Here())


@pytest.mark.slow
@pytest.mark.skipif(find_spec(PACKAGED["efficientnet-lite2"].package) is None, reason="needs the extra handful[images]")
def test_photographs_are_embedded_by_the_automatic_choice(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for number in range(4):
        noise = generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)  # not drawn on an even ground
        Image.fromarray(noise).save(tmp_path / f"{number}.png")
    images = pictures([tmp_path / f"{number}.png" for number in range(4)])
    shards = embed_shards(images, ["auk", "bee", "auk", "bee"], "auto", tmp_path / "shards", Here())
    expected = FewShotClassifier("photographs-large", cache=False).fit(images, ["auk", "bee", "auk", "bee"])
    np.testing.assert_allclose(shards.read(0).features, expected.transform(images), atol=1e-3)  # shards are float16


def test_a_worker_killed_in_the_middle_changes_no_bit(tmp_path: Path, fitted: LinearClassifier) -> None:
    marker = tmp_path / "killed"
    with cluster("local:3") as client:
        found = fit(Drawn(30, deadly=2 * GROUP + 1, marker=str(marker)), client)
        parts = predict_shards(found, Drawn(4), tmp_path / "answers", client)
    assert marker.exists()
    assert np.array_equal(found.map.weights, fitted.map.weights)
    assert np.array_equal(found.map.bias, fitted.map.bias)
    assert (found.lam, found.scale, found.estimate) == (fitted.lam, fitted.scale, fitted.estimate)
    from pyarrow import parquet

    table = parquet.read_table(parts[3]).to_pydict()
    probabilities = fitted.predict_proba(Drawn(4).read(3).features)
    assert table["label"] == [fitted.classes[each] for each in probabilities.argmax(1)]
    assert table["probability"] == pytest.approx(probabilities.max(1).tolist())


def test_predicting_again_writes_only_what_is_missing(tmp_path: Path, fitted: LinearClassifier) -> None:
    pytest.importorskip("pyarrow")
    paths = predict_shards(fitted, Drawn(3), tmp_path, Here())
    before = [path.stat().st_mtime_ns for path in paths]
    paths[1].unlink()
    predict_shards(fitted, Drawn(3), tmp_path, Here())
    after = [path.stat().st_mtime_ns for path in paths]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_a_saved_classifier_answers_the_same(tmp_path: Path, fitted: LinearClassifier) -> None:
    fitted.save(tmp_path / "big.handful")
    loaded = load_linear(tmp_path / "big.handful")
    X = Drawn(1).read(0).features
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert (loaded.classes, loaded.estimate) == (fitted.classes, fitted.estimate)


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "find_spec", lambda name: None)
    with pytest.raises(HandfulError, match=r"pip install 'handful\[dask\]'"), cluster("local:1"):
        pass


@pytest.mark.parametrize("scheduler", ["local:0", "local", "nonsense"])
def test_a_scheduler_that_is_no_address_is_refused(scheduler: str) -> None:
    with pytest.raises(InvalidOptionError, match="tcp://HOST:PORT or local:N"), cluster(scheduler):
        pass


def test_a_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "WAIT", 0.5)
    with pytest.raises(HandfulError, match=r"tcp://127\.0\.0\.1:9"), cluster("tcp://127.0.0.1:9"):
        pass


@pytest.mark.parametrize(
    "facts",
    [{"estimate": [1, 2, 3, -1]}, {"estimate": [1e308] * 4}, {"scale": -1.0}, {"scale": "1"}, {"lam": 0.0}, {}],
    ids=str,
)
def test_a_tampered_classifier_of_dask_is_one_clear_error(facts: dict[str, Any], tmp_path: Path) -> None:
    path, score = tmp_path / "a.handful", ScoreEstimate(0.5, 0.4, 0.6, 10, weight=11.0)
    LinearClassifier(("a", "b"), LinearMap(np.zeros((3, 2)), np.zeros(2)), 1.0, 1.0, score).save(path)
    assert load_linear(path).estimate == score
    with pytest.raises(HandfulError, match=r"\b3 features.*\b4\b"):
        load_linear(path).predict_proba(np.zeros((1, 4)))
    tensors, known = read_checkpoint(path)
    if not facts:
        tensors["weights"] = tensors["weights"] * float("nan")
    write_checkpoint(path, tensors, known | facts)
    with pytest.raises(CheckpointError, match=r"a\.handful"):
        load_linear(path)
