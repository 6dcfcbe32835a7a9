"""Class splits: the official ones, read from lists in the package, and random splits of your own classes."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from handful.errors import InvalidOptionError, NotEnoughClassesError

PARTS = ("train", "val", "test")
DEFAULT = "0.64/0.16/0.2"
"""The split of a folder that does not come with one."""


@dataclass(frozen=True)
class Entry:
    """One line of a list: train, val or test, a class or family of classes, and details about it."""

    part: str
    name: str
    detail: str = ""

    @property
    def numbers(self) -> range:
        """The numbers of a detail such as "1-20"."""
        first, last = self.detail.split("-")
        return range(int(first), int(last) + 1)

    @property
    def bits(self) -> list[int]:
        """The positions, counted from 1, of the bits that are set in a detail that is a bit map."""
        bitmap = base64.b64decode(self.detail)
        return [8 * at + bit + 1 for at, byte in enumerate(bitmap) for bit in range(8) if byte & (128 >> bit)]


def entries(split: str) -> list[Entry]:
    """The lines of the list called `split`, for example "cifar-fs-bertinetto"."""
    text = (files("handful.data.sources") / "splits" / f"{split}.txt").read_text(encoding="utf-8")
    return [Entry(*line.split()) for line in text.splitlines() if line and not line.startswith("#")]


def runs(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as (first, count) for each run of consecutive ones."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((number, 1))
    return tuple(found)


def ranges(parts: Mapping[str, Sequence[str]], classes: Sequence[str]) -> dict[str, tuple[tuple[int, int], ...]]:
    """Each part's class names as runs of positions among all `classes`."""
    position = {name: index for index, name in enumerate(classes)}
    return {part: runs([position[name] for name in parts[part]]) for part in PARTS}


def split_sizes(split: str, n_classes: int) -> tuple[int, int, int]:
    """How many classes train, val and test get: "64/16/20" are counts, "0.64/0.16/0.2" and "64%/16%/20%" fractions."""
    try:
        numbers = [float(text.strip().removesuffix("%")) for text in split.split("/")]
    except ValueError:
        numbers = []
    if len(numbers) != len(PARTS) or min(numbers) < 0 or not sum(numbers) < float("inf"):
        raise InvalidOptionError(
            f"A split must be three counts or fractions for train/val/test, such as 64/16/20 or {DEFAULT}, "
            f"but got '{split}'."
        )
    if "." in split or "%" in split:
        return fraction_sizes(numbers, 100.0 if "%" in split else 1.0, n_classes, split)
    if sum(numbers) != n_classes:
        raise NotEnoughClassesError(
            f"The split {split} needs {sum(numbers):.0f} classes, but there are {n_classes}. "
            f"Give counts that sum to {n_classes}, or fractions such as {DEFAULT}."
        )
    train, val, test = (int(number) for number in numbers)
    return train, val, test


def fraction_sizes(fractions: Sequence[float], whole: float, n_classes: int, split: str) -> tuple[int, int, int]:
    """Class counts by the largest-remainder method; a part with a fraction above 0 gets at least one class."""
    if abs(sum(fractions) - whole) > 1e-6 * whole:
        raise InvalidOptionError(
            f"The fractions of a split must sum to {whole:g}, but {split} sums to {sum(fractions):g}."
        )
    least = sum(fraction > 0 for fraction in fractions)
    if n_classes < least:
        raise NotEnoughClassesError(f"The split {split} needs at least {least} classes, but there are {n_classes}.")
    exact = [fraction / whole * n_classes for fraction in fractions]
    sizes = [max(int(size), int(size > 0)) for size in exact]
    while sum(sizes) != n_classes:
        step = 1 if sum(sizes) < n_classes else -1
        gaps = [
            step * (want - size) if size > 1 or step > 0 else -n_classes
            for want, size in zip(exact, sizes, strict=True)
        ]
        sizes[gaps.index(max(gaps))] += step
    train, val, test = sizes
    return train, val, test


def shuffled(names: Sequence[str], seed: int) -> list[str]:
    """The names in a random order that depends only on the seed and the names, on every machine and version."""
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())


def cut(names: Sequence[str], split: str, seed: int) -> dict[str, list[str]]:
    """The names assigned to train, val and test at random, each part in alphabetical order."""
    train, val, _ = split_sizes(split, len(names))
    order = shuffled(names, seed)
    return {
        "train": sorted(order[:train]),
        "val": sorted(order[train : train + val]),
        "test": sorted(order[train + val :]),
    }
