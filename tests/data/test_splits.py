from __future__ import annotations

import csv
import hashlib
import os
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handful.data.sources.omniglot import characters, named, vinyals_classes
from handful.data.splits import PARTS, Entry, cut, entries, runs, shuffled, split_sizes
from handful.errors import InvalidOptionError, NotEnoughClassesError

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


NAMES = [f"kind{i:02d}" for i in range(25)]


@pytest.mark.parametrize(
    ("split", "classes", "sizes"),
    [
        ("64/16/20", 100, (64, 16, 20)),
        ("0.64/0.16/0.2", 100, (64, 16, 20)),
        ("64%/16%/20%", 100, (64, 16, 20)),
        ("0.64/0.16/0.2", 10, (6, 2, 2)),
        ("0.98/0.01/0.01", 10, (8, 1, 1)),
        ("0.5/0.5/0", 3, (2, 1, 0)),
        ("0/0/7", 7, (0, 0, 7)),
        (" 5 / 2 / 3 ", 10, (5, 2, 3)),
    ],
)
def test_counts_and_fractions(split: str, classes: int, sizes: tuple[int, int, int]) -> None:
    assert split_sizes(split, classes) == sizes


@given(st.integers(3, 500), st.integers(1, 98), st.integers(1, 98))
def test_fractions_deal_every_class_and_leave_no_part_empty(classes: int, val: int, test: int) -> None:
    if val + test > 99:
        return
    sizes = split_sizes(f"{100 - val - test}%/{val}%/{test}%", classes)
    assert sum(sizes) == classes
    assert min(sizes) >= 1
    for size, share in zip(sizes, (100 - val - test, val, test), strict=True):
        assert abs(size - share / 100 * classes) < 2  # one class for rounding, one so that no part is empty


@pytest.mark.parametrize("split", ["", "5", "5/5", "1/2/3/4", "a/b/c", "-1/5/6", "5/2/nan", "inf/1/1", "64-16-20"])
def test_what_is_no_split_is_refused_with_an_example(split: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"such as 64/16/20"):
        split_sizes(split, 10)


def test_fractions_must_sum_to_one() -> None:
    with pytest.raises(InvalidOptionError, match=r"0\.5/0\.3/0\.3 .*1\.1"):
        split_sizes("0.5/0.3/0.3", 10)


@pytest.mark.parametrize("classes", [9, 11])
def test_counts_must_sum_to_the_classes(classes: int) -> None:
    with pytest.raises(NotEnoughClassesError, match=rf"10 classes.* {classes}\b"):
        split_sizes("5/2/3", classes)


def test_too_few_classes_for_three_parts_are_refused() -> None:
    with pytest.raises(NotEnoughClassesError, match=r"3 classes.* 2\b"):
        split_sizes("0.6/0.2/0.2", 2)


def test_parts_are_disjoint_complete_and_depend_on_the_seed_alone() -> None:
    parts = cut(NAMES, "15/5/5", seed=3)
    assert sorted(name for part in parts.values() for name in part) == NAMES
    assert cut(NAMES[::-1], "15/5/5", seed=3) == parts
    assert cut(NAMES, "15/5/5", seed=4) != parts


def test_the_order_is_pinned_across_machines_and_versions() -> None:
    assert shuffled(["a", "b", "c", "d", "e"], seed=0) == PINNED


PINNED = ["c", "b", "e", "d", "a"]
