"""Images grouped by class: `ImageTable` holds them all, `ClassDataset` is one split of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from handful.errors import DataError, ShapeError

CONVERT_BYTES = 2 * 2**20
"""Pixels are converted to floats in blocks of this size, which stay in the CPU cache until they are divided."""


@dataclass(frozen=True)
class ImageTable:
    """All images of a source as one uint8 tensor in which the images of a class are adjacent.

    `images` has the logical shape (n, channels, height, width) and channels-last memory, so that gathered rows suit
    convolutions. It may be a memory map: nothing here copies it. `groups` names, for each class, the
    family that it belongs to (an alphabet, say), for episodes that stay within one family.
    """

    images: Tensor
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    groups: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ShapeError(
                f"An image table needs uint8 images of shape (n, channels, height, width), "
                f"but got {self.images.dtype} of shape {tuple(self.images.shape)}."
            )
        if len(self.counts) != len(self.classes) or sum(self.counts) != len(self.images):
            raise ShapeError(
                f"Classes, counts and images do not match: {len(self.classes)} classes, {len(self.counts)} counts "
                f"that sum to {sum(self.counts)}, {len(self.images)} images."
            )
        if len(set(self.classes)) != len(self.classes):
            twice = sorted({name for name in self.classes if self.classes.count(name) > 1})
            raise DataError(f"Class names must be unique, but these occur more than once: {', '.join(twice[:5])}.")
        if self.groups is not None and len(self.groups) != len(self.classes):
            raise ShapeError(f"{len(self.classes)} classes but {len(self.groups)} group names.")

    def __repr__(self) -> str:
        return f"ImageTable({len(self.classes):,} classes, {_images_of(len(self.images), self)})"

    def split(self, name: str, classes: Sequence[str]) -> ClassDataset:
        """The named classes as a data set, in the order given."""
        position = {known: index for index, known in enumerate(self.classes)}
        unknown = [wanted for wanted in classes if wanted not in position]
        if unknown:
            raise DataError(
                f"Split '{name}' names {len(unknown)} classes that the images do not have, "
                f"for example {', '.join(unknown[:3])}."
            )
        return ClassDataset(name, self, tuple(position[wanted] for wanted in classes))


@dataclass(frozen=True)
class ClassDataset:
    """One split: some classes of an image table, numbered from 0 in the order given."""

    name: str
    table: ImageTable
    members: tuple[int, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        n = int(self.counts.sum())
        return f"ClassDataset('{self.name}', {len(self):,} classes, {_images_of(n, self.table)})"

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.table.classes[member] for member in self.members)

    @cached_property
    def groups(self) -> tuple[str, ...] | None:
        """The family of each class, if the source has families."""
        return None if self.table.groups is None else tuple(self.table.groups[member] for member in self.members)

    @cached_property
    def counts(self) -> Tensor:
        """How many images each class has."""
        return torch.tensor(self.table.counts)[list(self.members)]

    @cached_property
    def starts(self) -> Tensor:
        """The row of the table where each class begins."""
        ends = torch.tensor(self.table.counts).cumsum(0)
        return (ends - torch.tensor(self.table.counts))[list(self.members)]

    @cached_property
    def rows(self) -> Tensor:
        """The table's rows of all images of this split, class by class."""
        within = torch.arange(int(self.counts.sum())) - (self.counts.cumsum(0) - self.counts).repeat_interleave(
            self.counts
        )
        return self.starts.repeat_interleave(self.counts) + within

    @cached_property
    def images(self) -> Tensor:
        """The images of this split, uint8 (n, channels, height, width), grouped by class; a view if possible."""
        first, n = int(self.rows[0]), len(self.rows)
        if torch.equal(self.rows, torch.arange(first, first + n)):
            return self.table.images[first : first + n]
        return self.gather(self.rows)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of every image."""
        _, channels, height, width = self.table.images.shape
        return channels, height, width

    def gather(self, rows: Tensor) -> Tensor:
        """The table's images at `rows`, uint8 (..., channels, height, width), copied once to channels-last memory."""
        return self._shaped(self._picked(rows), rows)

    def inputs(self, rows: Tensor, device: torch.device | None = None) -> Tensor:
        """The embedding's inputs: the table's images at `rows` as float32 in [0, 1], in channels-last memory."""
        return self._shaped(unit_floats(self._picked(rows).to(device)), rows)

    def _picked(self, rows: Tensor) -> Tensor:
        return self.table.images.permute(0, 2, 3, 1).index_select(0, rows.reshape(-1))  # (n, height, width, channels)

    def _shaped(self, picked: Tensor, rows: Tensor) -> Tensor:
        return picked.reshape(*rows.shape, *picked.shape[1:]).movedim(-1, -3)


@dataclass(frozen=True)
class Benchmark:
    """A data set divided into disjoint meta-training, meta-validation and meta-test classes."""

    name: str
    train: ClassDataset
    val: ClassDataset
    test: ClassDataset

    def __repr__(self) -> str:
        classes = ", ".join(f"{len(dataset):,} {dataset.name}" for dataset in (self.train, self.val, self.test))
        n = sum(int(dataset.counts.sum()) for dataset in (self.train, self.val, self.test))
        return f"Benchmark('{self.name}', {classes} classes, {_images_of(n, self.train.table)})"

    def __post_init__(self) -> None:
        splits = {"train": self.train, "val": self.val, "test": self.test}
        seen: dict[str, str] = {}
        for split, dataset in splits.items():
            for name in dataset.classes:
                if name in seen:
                    raise DataError(f"Class '{name}' of {self.name} is in both '{seen[name]}' and '{split}'.")
                seen[name] = split


def _images_of(n: int, table: ImageTable) -> str:
    """The number and shape of images as text."""
    _, channels, height, width = table.images.shape
    colour = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
    return f"{n:,} images of {height} x {width} {colour}"


def unit_floats(images: Tensor) -> Tensor:
    """Images as float32 in [0, 1]: uint8 is divided by 255, floats are not changed."""
    if images.dtype != torch.uint8:
        return images.to(torch.float32)
    done = torch.empty_like(images, dtype=torch.float32)
    step = max(1, CONVERT_BYTES * len(images) // max(1, 4 * images.numel()))
    for part, source in zip(done.split(step), images.split(step), strict=True):
        part.copy_(source).div_(255)
    return done
