"""Folders of feature shards: what is there and what is missing, and nothing that was cut, changed or is of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from handful._io import write_atomically
from handful.classifier.shards import INDEX, Block, FeatureShards, digest_of_names, write_index, write_shard
from handful.errors import CheckpointError, InvalidOptionError
from handful.meta.checkpoint import write_checkpoint

WAY, WIDTH, ROWS = 5, 12, 20


def drawn() -> Block:
    rng = np.random.default_rng(0)
    return Block(rng.normal(size=(ROWS, WIDTH)), rng.integers(0, WAY, ROWS))


@pytest.fixture
def shards(tmp_path: Path) -> FeatureShards:
    return write_index(tmp_path / "shards", "abcde", [ROWS] * 3, "features", "0")


def test_shards_keep_features_in_half_precision_and_know_what_is_missing(shards: FeatureShards) -> None:
    block = drawn()
    write_shard(shards, 1, Block(block.features, block.codes, [f"{i}.png" for i in range(ROWS)]))
    found = shards.read(1)
    np.testing.assert_allclose(found.features, block.features, rtol=2**-11)  # ten bits of fraction, rounded
    assert found.names[3] == "3.png"
    assert (found.codes == block.codes).all()
    assert shards.missing() == [0, 2]
    assert shards.path(1).stat().st_size < 2 * ROWS * WIDTH + 8 * ROWS + 2000


def test_a_shard_that_was_cut_is_refused_by_name(shards: FeatureShards) -> None:
    block = drawn()
    write_shard(shards, 0, Block(block.features, block.codes, ["x"] * ROWS))
    whole = shards.path(0).read_bytes()
    shards.path(0).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=r"000000\.safetensors"):
        shards.read(0)
    with pytest.raises(CheckpointError, match=r"000002\.safetensors"):
        shards.read(2)


def test_shards_of_other_images_are_not_continued(shards: FeatureShards) -> None:
    assert write_index(shards.folder, "abcde", [ROWS] * 3, "features", "0").missing() == [0, 1, 2]
    with pytest.raises(InvalidOptionError, match="other images"):
        write_index(shards.folder, "abcde", [ROWS] * 3, "features", "1")
    (shards.folder / INDEX).write_text("{")
    with pytest.raises(CheckpointError, match=r"shards.* index"):
        len(FeatureShards(shards.folder))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 5},
        {"rows": [True]},
        {"rows": []},
        {"rows": ["x"]},
        {"classes": None},
        {"classes": [1]},
        {"format": "x"},
    ],
    ids=str,
)
def test_a_damaged_index_of_shards_is_one_clear_error(change: dict[str, Any], tmp_path: Path) -> None:
    write_atomically(tmp_path / INDEX, json.dumps({"format": 1, "rows": [4], "classes": ["a"], **change}).encode())
    with pytest.raises(CheckpointError):
        len(FeatureShards(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"codes": torch.tensor([0.5, 1, 0, 1])},
        {"codes": torch.tensor([[0], [1], [0], [1]])},
        {"codes": torch.tensor([True, False, True, False])},
        {"features": torch.full((4, 3), float("nan")).half()},
        {"features": torch.zeros(4, 3, 1).half()},
    ],
    ids=str,
)
def test_a_shard_of_other_tensors_is_one_clear_error(change: dict[str, torch.Tensor], tmp_path: Path) -> None:
    shards = write_index(tmp_path, ["a", "b"], [4], "x", "y")
    tensors = {"features": torch.zeros(4, 3).half(), "codes": torch.tensor([0, 1, 0, 1])}
    write_checkpoint(shards.path(0), tensors | change, {"names": list("abcd")})
    with pytest.raises(CheckpointError, match=r"000000\.safetensors"):
        shards.read(0)


@pytest.mark.parametrize("value", [np.nan, np.inf, 65_505.0, -1e6])
def test_features_that_half_precision_cannot_hold_are_not_written(shards: FeatureShards, value: float) -> None:
    features = np.zeros((ROWS, WIDTH))
    features[3, 4] = value
    with pytest.raises(InvalidOptionError, match=r"shard 1 .*65,504"):
        write_shard(shards, 1, Block(features, np.zeros(ROWS, np.int64), ["x"] * ROWS))
    assert not shards.path(1).exists()


def test_a_digest_follows_names_their_order_classes_and_the_embedding() -> None:
    names, codes = ["a.png", "b.png"], np.array([0, 1])
    digests = {
        digest_of_names(names, codes, "x"),
        digest_of_names(names[::-1], codes, "x"),
        digest_of_names(["a.pngb.png"], codes, "x"),
        digest_of_names(names, codes[::-1].copy(), "x"),
        digest_of_names(names, codes, "y"),
    }
    assert len(digests) == 5
    assert digest_of_names(list(names), codes.copy(), "x") in digests
    assert len(digest_of_names(["\udcff.png"], codes, "x")) == 64  # a name that is no UTF-8
