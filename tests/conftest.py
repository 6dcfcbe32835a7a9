"""Small data sets that every test can afford."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
import torch

from handful.data import load
from handful.data.store import Header, store_path, write_store
from handful.data.table import Benchmark, ImageTable


def pytest_configure(config: pytest.Config) -> None:
    """Keep data sets that tests pack or draw out of the user's own cache; processes that tests start see it too."""
    os.environ["HANDFUL_DATA"] = tempfile.mkdtemp(prefix="handful-test-data-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Delete them."""
    shutil.rmtree(os.environ["HANDFUL_DATA"], ignore_errors=True)


def blobs(classes: int = 24, images: int = 20, size: int = 28, channels: int = 1, seed: int = 0) -> ImageTable:
    """Classes that can be told apart: a smooth random pattern each, with noise on every image."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(classes, channels, 5, 5, generator=generator)
    patterns = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear").repeat_interleave(images, 0)
    noisy = (patterns + 0.25 * torch.randn(patterns.shape, generator=generator)).clamp(0, 1)
    pixels = (noisy * 255).round().to(torch.uint8).contiguous(memory_format=torch.channels_last)
    names = tuple(f"blob{i:02d}" for i in range(classes))
    groups = tuple(f"family{i // 6}" for i in range(classes))
    return ImageTable(pixels, names, (images,) * classes, groups)


@pytest.fixture(scope="session")
def tiny() -> Benchmark:
    """12 training, 6 validation and 6 test classes of 20 noisy patterns."""
    table = blobs()
    names = table.classes
    return Benchmark(
        "tiny", table.split("train", names[:12]), table.split("val", names[12:18]), table.split("test", names[18:])
    )


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
