"""The file of a classifier: what goes in comes out, and what handful did not write is refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from handful.classifier import FewShotClassifier, ImageEmbedding, file
from handful.errors import CheckpointError, InvalidOptionError, NewerFormatError
from handful.meta.checkpoint import FORMAT, read_checkpoint, write_checkpoint
from tests.classifier.drawings import SHAPES, drawing, write_folder
from tests.classifier.test_classifier import NAMES, assert_same, task


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    X, y, _, _ = task([3, 4, 2], e=12)
    path = tmp_path / "birds.handful"
    FewShotClassifier().fit(X, y).save(path)
    return path


@pytest.mark.parametrize("learner", ["ridge", "prototypes", "logistic", "softmax"])
@pytest.mark.parametrize("e", [4, 30])
@pytest.mark.parametrize("labels", [NAMES, np.arange(6), np.array(NAMES, dtype=object)])
def test_a_loaded_classifier_is_the_one_that_was_saved(tmp_path: Path, learner: str, e: int, labels: Any) -> None:
    X, y, queries, _ = task([3, 4, 2], e)
    y = labels[np.searchsorted(NAMES, y)]
    path = tmp_path / "a.handful"
    one = FewShotClassifier(learner=learner, balance=False, tune_limit=99).fit(X[:7], y[:7])
    one.save(path)
    other = FewShotClassifier.load(path)
    assert_same(one, other, queries)
    np.testing.assert_allclose(one.predict_proba(queries), other.predict_proba(queries), rtol=1e-12)
    assert other.get_params() == one.get_params()
    assert_same(one.partial_fit(X[7:], y[7:]), other.partial_fit(X[7:], y[7:]), queries)


def test_the_file_holds_the_solution_for_those_who_read_it_without_handful(tmp_path: Path) -> None:
    X, y, queries, _ = task([3, 4, 2], 30)
    clf = FewShotClassifier(balance=False).fit(X, y)
    clf.save(tmp_path / "a.handful")
    tensors, _ = read_checkpoint(tmp_path / "a.handful")
    kernel = (torch.from_numpy(queries) - tensors["origin"]) @ tensors["features"].mT
    scores = kernel @ tensors["dual"] + tensors["bias"]
    np.testing.assert_allclose(np.sqrt(3) * scores.numpy(), clf.decision_function(queries), atol=1e-10)


def test_a_classifier_of_images_travels_with_its_embedding_and_thumbnails(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))
    clf = FewShotClassifier(cache=False).fit(folder)
    clf.save(tmp_path / "full.handful")
    clf.save(tmp_path / "small.handful", thumbnails=False)
    loaded = FewShotClassifier.load(tmp_path / "full.handful", cache=False)
    queries = [drawing(shape, 40) for shape in SHAPES]
    # a sum may run in another order, because arrays may lie differently in memory
    np.testing.assert_allclose(loaded.predict_proba(queries), clf.predict_proba(queries), rtol=1e-12)
    assert loaded._state.sources == clf._state.sources
    assert all(source.thumbnail[:2] == b"\xff\xd8" for source in loaded._state.sources)
    assert (tmp_path / "small.handful").stat().st_size < (tmp_path / "full.handful").stat().st_size
    loaded.forget(image=folder / "bar" / "0.png")
    loaded.save(tmp_path / "full.handful")
    assert len(FewShotClassifier.load(tmp_path / "full.handful").labels_) == 11
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full.handful", "shapes", "small.handful"]


def test_a_network_of_ones_own_must_be_brought_along_and_be_the_same(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))
    network = nn.Conv2d(3, 6, 5)
    path = tmp_path / "own.handful"
    clf = FewShotClassifier(ImageEmbedding(network, size=24), cache=False).fit(folder)
    clf.save(path)
    loaded = FewShotClassifier.load(path, embedding=ImageEmbedding(network, size=24), cache=False)
    np.testing.assert_array_equal(loaded.predict(folder), clf.predict(folder))
    with pytest.raises(CheckpointError, match=r"'Conv2d'.*embedding="):
        FewShotClassifier.load(path)
    with pytest.raises(CheckpointError, match="another embedding"):
        FewShotClassifier.load(path, embedding=ImageEmbedding(network, size=25))
    with pytest.raises(CheckpointError, match="another embedding"):
        FewShotClassifier.load(path, embedding=ImageEmbedding(nn.Conv2d(3, 6, 5), size=24))


def test_labels_that_json_cannot_hold_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    X, _, _, _ = task([3, 3])
    clf = FewShotClassifier().fit(X, np.array(["2026-01-01"] * 3 + ["2026-01-02"] * 3, dtype="datetime64[D]"))
    with pytest.raises(InvalidOptionError, match="datetime64"):
        clf.save(tmp_path / "a.handful")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(saved: Path, share: float) -> None:
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CheckpointError, match=r"birds\.handful.*handful fit"):
        FewShotClassifier.load(saved)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing\.handful.*handful fit"):
        FewShotClassifier.load(tmp_path / "missing.handful")
    foreign = tmp_path / "foreign.handful"
    save_file({"a": torch.zeros(2)}, foreign)
    with pytest.raises(CheckpointError, match=r"foreign\.handful.*did not write"):
        FewShotClassifier.load(foreign)
    write_checkpoint(foreign, {"a": torch.zeros(2)}, {"recipe": {}})
    with pytest.raises(CheckpointError, match=r"foreign\.handful.*checkpoint"):
        FewShotClassifier.load(foreign)
    foreign.write_bytes(b"\x80\x04\x95 a pickle")
    with pytest.raises(CheckpointError):
        FewShotClassifier.load(foreign)


def test_a_file_of_a_newer_format_is_refused_with_the_advice_to_update(saved: Path) -> None:
    tensors, facts = read_checkpoint(saved)
    write_checkpoint(saved, tensors, {**facts, "format": FORMAT + 1})
    with pytest.raises(
        NewerFormatError, match=rf"format {FORMAT + 1}.*format {FORMAT}.*pip install --upgrade"
    ) as refused:
        FewShotClassifier.load(saved)
    assert "not a classifier" not in str(refused.value)


def _set(name: str, value: Any) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    return lambda tensors, facts: facts.__setitem__(name, value)


def _tensor(name: str, change: Callable[[Tensor], Tensor]) -> Callable[[dict[str, Tensor], dict[str, Any]], None]:
    return lambda tensors, facts: tensors.__setitem__(name, change(tensors[name]))


HOSTILE: dict[str, Callable[[dict[str, Tensor], dict[str, Any]], object]] = {
    "a fact is missing": lambda tensors, facts: facts.pop("classes"),
    "a tensor is missing": lambda tensors, facts: tensors.pop("factor"),
    "one class": _set("classes", ["auk"]),
    "a class twice": _set("classes", ["auk", "auk", "bee"]),
    "classes that are no text": _set("classes", [{"a": 1}, 2, 3]),
    "classes of another type than it says": _set("classes", [1, 2, 3]),
    "booleans among whole numbers": lambda tensors, facts: facts.update(label_type="i", classes=[True, 2, 3]),
    "an unknown label type": _set("label_type", "O"),
    "a negative lambda": _set("lam", -1.0),
    "a scale that is not finite": _set("scale", float("nan")),
    "an unknown form": _set("form", "tertiary"),
    "an unknown learner": _set("learner", "forest"),
    "too few names": _set("names", []),
    "an embedding without facts": _set("embedding", {"kind": "run"}),
    "an embedding of another kind": _set("embedding", 3),
    "codes out of range": _tensor("codes", lambda codes: codes + 7),
    "fewer examples": _tensor("features", lambda features: features[:-1].clone()),
    "another dtype": _tensor("features", lambda features: features.float()),
    "a feature that is NaN": _tensor("features", lambda features: features * float("nan")),
    "features moved": _tensor("features", lambda features: features + 0.01),
    "a factor of something else": _tensor("factor", lambda factor: factor * 1.001),
    "a digest that is a path": lambda tensors, facts: facts["digests"].__setitem__(0, "../../../evil"),
    "a digest that is a number": lambda tensors, facts: facts["digests"].__setitem__(0, 5),
    "thumbnails that overlap": _tensor("thumbnail_sizes", lambda sizes: sizes - 1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_file_that_was_tampered_with_is_refused(saved: Path, what: str) -> None:
    tensors, facts = read_checkpoint(saved)
    HOSTILE[what](tensors, facts)
    write_checkpoint(saved, tensors, facts)
    with pytest.raises((CheckpointError, InvalidOptionError)):
        FewShotClassifier.load(saved)


def test_what_is_forgotten_leaves_no_bytes_in_the_file(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))
    path = tmp_path / "shapes.handful"
    clf = FewShotClassifier(cache=False).fit(folder)
    clf.save(path)
    row = clf.examples_[0]
    secrets = [row.name.encode(), row.digest.encode(), clf._state.sources[0].thumbnail]
    assert all(secret in path.read_bytes() for secret in secrets)
    FewShotClassifier.load(path, cache=False).forget(digest=row.digest).save(path)
    assert not any(secret in path.read_bytes() for secret in secrets)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shapes", "shapes.handful"]


def test_the_header_is_json_that_anyone_can_read(saved: Path) -> None:
    content = saved.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    facts = json.loads(header["__metadata__"]["handful"])
    assert facts["classes"] == ["auk", "bee", "cat"]
    assert facts["kind"] == "classifier"


def test_more_targets_than_can_be_read_are_not_written(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clf, before = FewShotClassifier.load(saved), saved.read_bytes()
    monkeypatch.setattr(file, "MOST_TARGETS", 26)
    with pytest.raises(InvalidOptionError, match="9 examples times 3 classes are more than 26"):
        clf.save(saved)
    assert saved.read_bytes() == before


def test_a_table_of_targets_out_of_all_proportion_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "MOST_TARGETS", 26)
    with pytest.raises(CheckpointError, match="9 examples of 3 classes"):
        FewShotClassifier.load(saved)
