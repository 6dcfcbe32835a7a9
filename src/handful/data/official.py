"""The official class splits, read from the lists that come with the package."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Entry:
    """One line of a list: the part of the split, a class or family of classes, and what the list says about it."""

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
        """The numbers, from 1, of the bits that are set in a detail that is a bit map."""
        bitmap = base64.b64decode(self.detail)
        return [8 * at + bit + 1 for at, byte in enumerate(bitmap) for bit in range(8) if byte & (128 >> bit)]


def entries(split: str) -> list[Entry]:
    """The lines of the list called `split`, for example "cifar-fs-bertinetto"."""
    text = (files("handful.data.sources") / "splits" / f"{split}.txt").read_text(encoding="utf-8")
    return [Entry(*line.split()) for line in text.splitlines() if line and not line.startswith("#")]


def runs(numbers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Numbers as (first, how many) for each run of successors."""
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
