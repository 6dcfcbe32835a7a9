from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handful.data.splitting import cut, shuffled, split_sizes
from handful.errors import InvalidOptionError, NotEnoughClassesError

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
    with pytest.raises(InvalidOptionError, match=r"must sum to 1, but 0.5/0.3/0.3 sums to 1.1"):
        split_sizes("0.5/0.3/0.3", 10)


@pytest.mark.parametrize("classes", [9, 11])
def test_counts_must_sum_to_the_classes(classes: int) -> None:
    with pytest.raises(NotEnoughClassesError, match=rf"wants 10 classes, but there are {classes}"):
        split_sizes("5/2/3", classes)


def test_too_few_classes_for_three_parts_are_refused() -> None:
    with pytest.raises(NotEnoughClassesError, match="at least 3 classes, but there are 2"):
        split_sizes("0.6/0.2/0.2", 2)


def test_parts_are_disjoint_complete_and_depend_on_the_seed_alone() -> None:
    parts = cut(NAMES, "15/5/5", seed=3)
    assert sorted(name for part in parts.values() for name in part) == NAMES
    assert cut(NAMES[::-1], "15/5/5", seed=3) == parts
    assert cut(NAMES, "15/5/5", seed=4) != parts


def test_the_order_is_pinned_across_machines_and_versions() -> None:
    assert shuffled(["a", "b", "c", "d", "e"], seed=0) == PINNED


PINNED = ["c", "b", "e", "d", "a"]
