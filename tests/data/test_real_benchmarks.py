"""Omniglot and CIFAR-FS as they are: counts, pixels and splits of the real archives, packed once for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from handful.data import Benchmark, load
from handful.data.adding import add
from handful.data.store import check_store, read_header, store_path

REAL = os.environ.get("HANDFUL_TEST_DATA")
pytestmark = [
    pytest.mark.data,
    pytest.mark.slow,
    pytest.mark.skipif(not REAL, reason="HANDFUL_TEST_DATA is not set"),
]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    for name in ("omniglot", "cifar-fs"):
        add(name, folder, [Path(str(REAL)) / name])
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("omniglot", "4f2c8bdf3c2fcfdaec15969eee2bd3ec472564a932b1508b430055e2927f7ce1"),
        ("cifar-fs", "2a92c172659bd04441c8ed33caff819e5d489a195dd66c5030790a03182527da"),
    ],
)
def test_stores_are_whole_and_pinned(name: str, content: str, root: Path) -> None:
    assert check_store(store_path(root, name)).content == content


def sizes(benchmark: Benchmark) -> list[int]:
    return [len(benchmark.train), len(benchmark.val), len(benchmark.test)]


def test_omniglot_has_1623_characters_by_20_drawers_in_four_rotations(root: Path) -> None:
    header, _ = read_header(store_path(root, "omniglot"))
    assert (len(header.classes), set(header.counts), header.shape) == (4 * 1623, {20}, (28, 28, 1))
    assert header.n_images == 4 * 32_460
    benchmark = load("omniglot", root=root)
    assert sizes(benchmark) == [4112, 688, 1692]
    assert benchmark.test.images.shape == (1692 * 20, 1, 28, 28)


def test_the_lake_split_has_whole_alphabets_as_groups(root: Path) -> None:
    benchmark = load("omniglot", split="lake", root=root)
    assert benchmark.name == "omniglot/lake"
    assert sizes(benchmark) == [806, 158, 659]
    assert [len(set(part.groups or ())) for part in (benchmark.train, benchmark.val, benchmark.test)] == [25, 5, 20]
    assert benchmark.train.images.shape == (806 * 20, 1, 28, 28)


def test_omniglot_rotations_are_the_same_drawing_turned(root: Path) -> None:
    table = load("omniglot", root=root).train.table
    rows = {name: 20 * at for at, name in enumerate(table.classes)}
    upright = table.images[rows["Angelic/character05/rot000"]][0].int()
    for turns in (1, 2, 3):
        turned = table.images[rows[f"Angelic/character05/rot{90 * turns:03d}"]][0].int()
        # turned before the resize, whose two passes round once each
        assert int((turned - torch.rot90(upright, turns)).abs().max()) <= 2


def test_omniglot_ink_is_bright_and_thin(root: Path) -> None:
    images = load("omniglot", root=root).train.images
    assert int(images.max()) == 255
    corners = images[:, 0, [0, 0, -1, -1], [0, -1, 0, -1]].float().mean() / 255
    assert corners < 0.01
    assert float(images.float().mean() / 255) == pytest.approx(0.0782, abs=5e-5)


def test_cifar_fs_has_100_classes_by_600_images(root: Path) -> None:
    benchmark = load("cifar-fs", root=root)
    assert sizes(benchmark) == [64, 16, 20]
    assert benchmark.train.table.counts == (600,) * 100
    assert benchmark.train.images.shape == (38_400, 3, 32, 32)
    assert benchmark.train.images.is_contiguous(memory_format=torch.channels_last)


def test_cifar_fs_pixels_have_the_pooled_means_and_deviations_of_cifar_100(root: Path) -> None:
    """Over CIFAR-100's training half the published means are .5071/.4865/.4409; pooled with the test half, these."""
    images = load("cifar-fs", root=root).train.table.images
    moments = torch.zeros(2, 3, dtype=torch.float64)
    for chunk in images.split(5000):
        pixels = (chunk.float() / 255).movedim(1, -1).reshape(-1, 3)
        moments += torch.stack((pixels.double().mean(0), pixels.square().double().mean(0))) * len(chunk) / len(images)
    means, deviations = moments[0], (moments[1] - moments[0].square()).sqrt()
    torch.testing.assert_close(means, torch.tensor(MEANS).double(), rtol=0, atol=5e-5)  # figures of four digits
    torch.testing.assert_close(deviations, torch.tensor(DEVIATIONS).double(), rtol=0, atol=5e-5)


MEANS = [0.5074, 0.4867, 0.4411]
DEVIATIONS = [0.2675, 0.2566, 0.2763]


def test_no_image_of_cifar_fs_train_is_all_of_one_colour(root: Path) -> None:
    images = load("cifar-fs", root=root).train.images.flatten(1)
    assert bool((images.amax(1) > images.amin(1)).all())
