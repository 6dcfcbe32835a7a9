"""A data folder with a small 'cifar-fs', so that real recipes and commands run on it in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from handful.data import load
from handful.data.store import Header, store_path, write_store
from handful.data.table import Benchmark
from tests.conftest import blobs

PARTS = {"train": ((0, 30),), "val": ((30, 6),), "test": ((36, 6),)}


@pytest.fixture(scope="session")
def small_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30, 6 and 6 classes of 50 colour images of 32 x 32, under the name of CIFAR-FS."""
    root = tmp_path_factory.mktemp("data")
    table = blobs(42, 50, 32, 3)
    noise = torch.randint(256, table.images.shape, generator=torch.Generator().manual_seed(1))
    pixels = ((table.images + 7 * noise) // 8).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    header = Header("cifar-fs", table.classes, table.counts, (32, 32, 3), {"bertinetto": PARTS})
    write_store(store_path(root, "cifar-fs"), header, [pixels.numpy()])
    return root


@pytest.fixture
def small(small_root: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """The small data set, with the library's data folder set to where it is."""
    monkeypatch.setenv("HANDFUL_DATA", str(small_root))
    return load("cifar-fs")
