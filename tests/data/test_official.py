from __future__ import annotations

import csv
import hashlib
import os
from importlib.resources import files
from pathlib import Path

import pytest

from handful.data.official import PARTS, Entry, entries, runs
from handful.data.sources.omniglot import characters, named, vinyals_classes

PINS = {
    "cifar-fs-bertinetto": ((64, 16, 20), "f33d0dbf07857851"),
    "mini-imagenet-ravi": ((64, 16, 20), "012148af3dcf1f1a"),
    "omniglot-vinyals": ((33, 5, 13), "70e31bf28a27e651"),
    "omniglot-lake": ((25, 5, 20), "c8cbd7c6bb72ce59"),
}

REAL = os.environ.get("HANDFUL_TEST_DATA")
needs_data = [pytest.mark.data, pytest.mark.skipif(not REAL, reason="HANDFUL_TEST_DATA is not set")]


@pytest.mark.parametrize("name", PINS)
def test_lists_are_pinned_by_counts_and_hash(name: str) -> None:
    counts, pin = PINS[name]
    found = entries(name)
    assert tuple(sum(entry.part == part for entry in found) for part in PARTS) == counts
    listed = "\n".join(f"{entry.part} {entry.name} {entry.detail}" for entry in found)
    assert hashlib.sha256(listed.encode()).hexdigest()[:16] == pin


def test_no_list_stands_in_the_package_without_a_pin() -> None:
    folder = files("handful.data.sources") / "splits"
    assert {item.name.removesuffix(".txt") for item in folder.iterdir()} == set(PINS)


@pytest.mark.parametrize("name", ["cifar-fs-bertinetto", "mini-imagenet-ravi"])
def test_no_class_stands_twice(name: str) -> None:
    names = [entry.name for entry in entries(name)]
    assert len(set(names)) == len(names) == 100


def test_the_vinyals_split_has_the_papers_counts() -> None:
    assert [len(characters("vinyals", part)) for part in PARTS] == [1028, 172, 423]
    assert [len(vinyals_classes(part)) for part in PARTS] == [4112, 688, 1692]
    assert len(set(named(vinyals_classes()))) == 1623 * 4


def test_the_lake_split_has_thirty_background_and_twenty_evaluation_alphabets() -> None:
    alphabets = {part: {c.split("/")[0] for c in characters("lake", part)} for part in PARTS}
    assert [len(alphabets[part]) for part in PARTS] == [25, 5, 20]
    assert not alphabets["train"] & alphabets["test"]
    assert [len(characters("lake", part)) for part in PARTS] == [806, 158, 659]
    background = sorted(alphabets["train"] | alphabets["val"])
    assert set(background[5::6]) == alphabets["val"]


def test_both_omniglot_splits_have_the_same_characters() -> None:
    everything = [{c for part in PARTS for c in characters(split, part)} for split in ("vinyals", "lake")]
    assert everything[0] == everything[1]


def test_mini_imagenet_lists_six_hundred_images_a_class() -> None:
    for entry in entries("mini-imagenet-ravi"):
        assert len(entry.bits) == 600
        assert min(entry.bits) >= 1
        assert max(entry.bits) <= 1300


def test_bits_and_numbers_are_read_from_one() -> None:
    assert Entry("train", "x", "gAE=").bits == [1, 16]
    assert list(Entry("train", "x", "3-5").numbers) == [3, 4, 5]


def test_runs_put_successors_together() -> None:
    assert runs([0, 1, 2, 5, 7, 8]) == ((0, 3), (5, 1), (7, 2))
    assert runs([]) == ()
    assert runs([2, 1]) == ((2, 1), (1, 1))


@pytest.mark.parametrize("part", PARTS)
class TestAgainstTheDistributedLists:
    pytestmark = needs_data

    def listed(self, name: str) -> str:
        return (Path(str(REAL)) / "splits" / name).read_text()

    def test_cifar_fs(self, part: str) -> None:
        ours = {entry.name for entry in entries("cifar-fs-bertinetto") if entry.part == part}
        assert ours == set(self.listed(f"cifar_fs_{part}.txt").split())

    def test_omniglot(self, part: str) -> None:
        assert set(named(vinyals_classes(part))) == set(self.listed(f"omniglot_vinyals_{part}.txt").split())

    def test_mini_imagenet(self, part: str) -> None:
        rows = list(csv.reader(self.listed(f"mini_imagenet_ravi_{part}.csv").splitlines()))[1:]
        ours = [
            [f"{entry.name}{number:08d}.jpg", entry.name]
            for entry in entries("mini-imagenet-ravi")
            if entry.part == part
            for number in entry.bits
        ]
        assert sorted(rows) == sorted(ours)
