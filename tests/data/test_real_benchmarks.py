"""The benchmarks as they are: counts, pixels and splits of the real archives, packed once for all tests.

HANDFUL_TEST_DATA names the folder of Omniglot's and CIFAR-FS's archives, HANDFUL_TEST_MINI_IMAGENET a folder that is
laid out as {train,val,test}/<wnid>/*.jpg, or a packed store of it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from handful.data import Benchmark, load
from handful.data.add import add
from handful.data.splits import entries
from handful.data.store import check_store, read_header, store_path

REAL = os.environ.get("HANDFUL_TEST_DATA")
MINI = os.environ.get("HANDFUL_TEST_MINI_IMAGENET")
pytestmark = [pytest.mark.data, pytest.mark.slow]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not REAL:
        pytest.skip("HANDFUL_TEST_DATA is not set")
    folder = tmp_path_factory.mktemp("real")
    for name in ("omniglot", "cifar-fs"):
        add(name, folder, [Path(REAL) / name])
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("omniglot", "4f2c8bdf3c2fcfdaec15969eee2bd3ec472564a932b1508b430055e2927f7ce1"),
        ("omniglot-nearest", "d327b139a57e486fee08692dd31788e164c88c55ab2c17afaaa5004c2206ae10"),
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


def test_nearest_omniglot_is_black_and_white_and_has_the_same_classes(root: Path) -> None:
    nearest, antialiased = load("omniglot-nearest", root=root), load("omniglot", root=root)
    assert nearest.name == "omniglot-nearest"
    assert nearest.train.classes == antialiased.train.classes
    assert nearest.train.images.unique().tolist() == [0, 255]
    ink = [float(benchmark.train.images.float().mean() / 255) for benchmark in (nearest, antialiased)]
    assert ink[0] == pytest.approx(ink[1], abs=2e-4)  # sampling one pixel in 14 leaves the share of ink as it is


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


# ------------------------------------------------------------------------------------------------- miniImageNet


@pytest.fixture(scope="session")
def mini_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not MINI:
        pytest.skip("HANDFUL_TEST_MINI_IMAGENET is not set: ImageNet's terms forbid redistributing its images")
    if Path(MINI).is_file():
        return Path(MINI)
    return add("mini-imagenet", tmp_path_factory.mktemp("mini"), [Path(MINI)]).path


def test_mini_imagenet_is_whole_and_pinned(mini_store: Path) -> None:
    """The hash is that of the 84 x 84 JPEG files decoded by libjpeg-turbo, which comes with Pillow."""
    header = check_store(mini_store)
    assert (len(header.classes), header.counts, header.shape) == (100, (600,) * 100, (84, 84, 3))
    assert header.content == "9a5917118cb6502b4b91166039b6194e1b5a11ef76db1bc3aaa6412d39120eb8"


def test_mini_imagenet_has_the_split_of_ravi_and_larochelle(mini_store: Path) -> None:
    benchmark = load(mini_store)
    assert sizes(benchmark) == [64, 16, 20]
    parts = {"train": benchmark.train, "val": benchmark.val, "test": benchmark.test}
    listed = {part: [entry.name for entry in entries("mini-imagenet-ravi") if entry.part == part] for part in parts}
    assert {part: list(dataset.classes) for part, dataset in parts.items()} == listed
    if MINI and Path(MINI).is_dir():
        assert {part: sorted(path.name for path in (Path(MINI) / part).iterdir()) for part in parts} == {
            part: sorted(names) for part, names in listed.items()
        }
