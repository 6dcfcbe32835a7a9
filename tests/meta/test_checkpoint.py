"""Checkpoints are read back as they were written, and whatever else is refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from handful.errors import CheckpointError, NewerFormatError
from handful.meta.checkpoint import FORMAT, read_checkpoint, write_checkpoint

TENSORS = {"model.weight": torch.arange(6.0).reshape(2, 3), "step": torch.tensor(7)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint."""
    write_checkpoint(tmp_path / "one.safetensors", TENSORS, {"training": {"episode": 7}})
    return tmp_path / "one.safetensors"


def test_tensors_and_facts_come_back(path: Path) -> None:
    tensors, facts = read_checkpoint(path)
    assert set(tensors) == set(TENSORS)
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())
    assert facts["training"] == {"episode": 7}


def test_writing_leaves_no_other_file_and_replaces_the_old_one(path: Path) -> None:
    write_checkpoint(path, {"other": torch.ones(1)}, {})
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert list(read_checkpoint(path)[0]) == ["other"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere\.safetensors"):
        read_checkpoint(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize("keep", [0, 1, 9, 100, -1])
def test_a_truncated_file_is_refused(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"one\.safetensors"):
        read_checkpoint(path)


def test_a_changed_number_is_noticed(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"one\.safetensors"):
        read_checkpoint(path)


def test_safetensors_of_another_program_are_refused(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "foreign.safetensors")
    with pytest.raises(CheckpointError, match=r"foreign\.safetensors"):
        read_checkpoint(tmp_path / "foreign.safetensors")


def test_a_newer_format_is_refused_with_both_numbers(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "new.safetensors", TENSORS, {"format": FORMAT + 1})
    with pytest.raises(NewerFormatError, match=rf"format {FORMAT + 1}.*{FORMAT}"):
        read_checkpoint(tmp_path / "new.safetensors")
