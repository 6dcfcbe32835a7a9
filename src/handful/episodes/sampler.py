"""Draw episodes from a split: `sampler[i]` is a pure function of the seed and i."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, groupby

import numpy as np
import torch
from torch import Tensor

from handful.data.mixing import TURNS, cutmix_, turn_
from handful.data.table import ClassDataset
from handful.episodes.episode import Episode, LabelledSet
from handful.episodes.random import Bools, Ints, below, choose, random_words, unit
from handful.episodes.shapes import EpisodeShape
from handful.errors import InvalidOptionError, NotEnoughClassesError, NotEnoughImagesError

AHEAD = 256
"""Episodes drawn at once during sequential access; drawing them one by one takes fifty times as long."""

Transform = Callable[[Tensor, torch.Generator], Tensor]
"""Maps uint8 images (n, channels, height, width) and a generator to float images in [0, 1]."""


@dataclass(frozen=True)
class _Drawn:
    """Classes (b, way) and images (b, way, k + q) of consecutive episodes with any number of shots."""

    start: int
    classes: Ints
    images: Ints

    def part(self, start: int, count: int) -> _Drawn | None:
        """`count` episodes from `start` on, or None if some of them are missing here."""
        first = start - self.start
        if first < 0 or first + count > len(self.classes):
            return None
        return _Drawn(start, self.classes[first : first + count], self.images[first : first + count])


@dataclass(frozen=True)
class EpisodeRows:
    """The images of a batch of episodes, as rows of the image table: support first, class by class."""

    shot: int
    classes: Tensor  # (b, way), numbers within the split, plus its number of classes for each quarter turn
    rows: Tensor  # (b, way * (shot + query)); the first way * shot are the support

    @property
    def way(self) -> int:
        """The number of classes of each episode."""
        return self.classes.shape[-1]

    @property
    def n_support(self) -> int:
        """The number of support images of each episode."""
        return self.way * self.shot

    @property
    def query(self) -> int:
        """The number of queries per class."""
        return self.rows.shape[-1] // self.way - self.shot

    def targets(self) -> tuple[Tensor, Tensor]:
        """One-hot labels of the support (n, way) and queries (q, way), which are the same for all episodes."""
        eye = torch.eye(self.way)
        return eye.repeat_interleave(self.shot, 0), eye.repeat_interleave(self.query, 0)

    def spread(self, values: Tensor) -> Tensor:
        """Values of the classes (b, way), repeated for each of their images in the order of `rows`."""
        return torch.cat([values.repeat_interleave(self.shot, 1), values.repeat_interleave(self.query, 1)], 1)


class EpisodeSampler:
    """Episodes from one split; each depends only on (seed, index), not on the order of access.

    A sampler is endless, or a sequence of `length` episodes that works with a DataLoader.

    `transform` turns uint8 images into network inputs, with a separate generator for each episode; by default the
    inputs come from the data set as they are. Two more options make training harder. In a share `turned` of the
    episodes, the four quarter turns of a class are four classes: class c of C, turned n times, has number c + n C. In a
    share `mixed`, queries are mixed by CutMix, so their targets are no longer one-hot.
    """

    def __init__(
        self,
        dataset: ClassDataset,
        shape: EpisodeShape,
        seed: int = 0,
        *,
        transform: Transform | None = None,
        turned: float = 0.0,
        mixed: float = 0.0,
        length: int | None = None,
    ) -> None:
        if length is not None and length < 0:
            raise InvalidOptionError(f"length must be at least 0, but got {length}.")
        self.dataset, self.shape, self.seed, self.transform, self.length = dataset, shape, seed, transform, length
        self.turned, self.mixed = turned, mixed
        _check_counts(dataset, shape)
        _check_shares(dataset, turned, mixed)
        pools = _pools(dataset, shape.way, shape.within_group)
        self._pool_sizes = np.array([len(members) for members in pools])
        self._pools = np.stack([np.resize(members, self._pool_sizes.max()) for members in pools])
        self._counts, self._starts = dataset.counts.numpy(), dataset.starts.numpy()
        self._ahead, self._next = self._draw(0, 1), 0  # what is already drawn, and the next index of sequential access

    def __repr__(self) -> str:
        how_long = "endless" if self.length is None else f"{self.length:,} episodes"
        classes = f"{len(self.dataset)} classes of '{self.dataset.name}'"
        shares = "".join(f", {name}={share:g}" for name in ("turned", "mixed") if (share := getattr(self, name)))
        return f"EpisodeSampler({self.shape}, seed={self.seed}{shares}, {how_long}, {classes})"

    def __len__(self) -> int:
        if self.length is None:
            raise TypeError("This sampler is endless. Give it a length: EpisodeSampler(..., length=600).")
        return self.length

    def __bool__(self) -> bool:
        return self.length != 0

    @property
    def changes(self) -> bool:
        """Whether episodes hold anything other than the images of the data set as they are."""
        return self.transform is not None or self.turned > 0 or self.mixed > 0

    def plain(self) -> EpisodeSampler:
        """A sampler of the same data, shape and transform without turns and mixing, or this one if it has neither."""
        if not (self.turned or self.mixed):
            return self
        return EpisodeSampler(self.dataset, self.shape, self.seed, transform=self.transform, length=self.length)

    def __iter__(self) -> Iterator[Episode]:
        """Episodes 0, 1, 2, ..., endless unless the sampler has a `length`."""
        return map(self.__getitem__, count() if self.length is None else range(self.length))

    def __getitem__(self, index: int) -> Episode:
        if self.length is not None:
            index = range(self.length)[index]  # range handles negative indices and raises for those out of range
        rows = self.rows(index, 1)
        episode = self._episode(rows, index)
        return Episode(
            LabelledSet(episode.support.inputs[0], episode.support.targets[0]),
            LabelledSet(episode.query.inputs[0], episode.query.targets[0]),
            episode.classes[0],
        )

    def batch(self, start: int, count: int) -> Episode:
        """Episodes start .. start + count - 1 stacked along a new first dimension; they must have equal shots."""
        return self._episode(self.rows(start, count), start)

    def shot(self, index: int) -> int:
        """The number of shots of episode `index`."""
        return self.shape.shots(self.seed, index)

    def rows(self, start: int, count: int) -> EpisodeRows:
        """The table rows of episodes start .. start + count - 1, drawn for all of them at once."""
        if start < 0 or count < 1:
            raise InvalidOptionError(f"Episodes are numbered from 0, but got start = {start} and count = {count}.")
        hold = self.shape.hold
        if start // hold != (start + count - 1) // hold:
            raise InvalidOptionError(
                f"Episodes {start} to {start + count - 1} may have different shots and cannot be stacked. "
                f"Set RandomShots(hold={count}) and start at a multiple of it."
            )
        drawn = self._drawn(start, count)
        shot = self.shot(start)
        support, query = drawn.images[..., :shot], drawn.images[..., shot:]
        rows = np.concatenate([support.reshape(count, -1), query.reshape(count, -1)], axis=1)
        return EpisodeRows(shot, torch.from_numpy(drawn.classes.copy()), torch.from_numpy(rows))

    def _drawn(self, start: int, count: int) -> _Drawn:
        """Draw the requested episodes, and further ones if access is sequential."""
        ahead, continued = self._ahead, start == self._next
        self._next = start + count
        found = ahead.part(start, count)
        if found is not None:
            return found
        if not continued or count >= AHEAD:
            return self._draw(start, count)
        self._ahead = ahead = self._draw(start, AHEAD)
        return _Drawn(start, ahead.classes[:count], ahead.images[:count])

    def _draw(self, start: int, count: int) -> _Drawn:
        way, m = self.shape.way, self.shape.images_per_class
        streams = np.arange(start, start + count, dtype=np.int64)
        classes = self._classes(streams, way)  # (b, way)
        words = random_words(self.seed, streams[:, None] * way + np.arange(way), 2 * m)
        upright = classes % len(self.dataset)
        picked = choose(words, self._counts[upright]) + self._starts[upright][..., None]  # (b, way, m)
        return _Drawn(start, classes, picked)

    def _classes(self, streams: Ints, way: int) -> Ints:
        words = random_words(self.seed ^ 0xC1A55, streams, 2 * way + 1)
        pool = below(words[:, -1], np.full(len(streams), len(self._pools)))
        sizes = self._pool_sizes[pool]
        positions = choose(words[:, :-1], np.where(self._picked(streams, 0x7042, self.turned), TURNS, 1) * sizes)
        turns, positions = np.divmod(positions, sizes[:, None])
        classes: Ints = self._pools[pool[:, None], positions] + turns * len(self.dataset)
        return classes

    def _picked(self, streams: Ints, salt: int, share: float) -> Bools:
        """Which episodes belong to a random share of all."""
        return unit(random_words(self.seed ^ salt, streams, 1)[:, 0]) < share

    def _episode(self, rows: EpisodeRows, start: int) -> Episode:
        count, n = len(rows.rows), rows.n_support
        inputs = self._inputs(rows, start)  # (b, n + q, c, h, w)
        support, query = (targets.expand(count, -1, -1) for targets in rows.targets())
        if self.mixed:
            query = query.clone()
            mixed = self._picked(np.arange(start, start + count), 0x3171, self.mixed)
            for index, generator in enumerate(self._generators(start, count, 0xC07)):
                if mixed[index]:
                    cutmix_(inputs[index, n:], query[index], generator)
        return Episode(LabelledSet(inputs[:, :n], support), LabelledSet(inputs[:, n:], query), rows.classes)

    def _inputs(self, rows: EpisodeRows, start: int) -> Tensor:
        inputs = self._upright(rows.rows, start)
        if self.turned:  # after the transform: the mirror image of one quarter turn looks like three
            turn_(inputs, rows.spread(rows.classes // len(self.dataset)))
        return inputs

    def _upright(self, rows: Tensor, start: int) -> Tensor:
        if self.transform is None:
            return self.dataset.inputs(rows)
        images = self.dataset.gather(rows)
        generators = self._generators(start, len(images), 0x7F02)
        done = [self.transform(episode, generator) for episode, generator in zip(images, generators, strict=True)]
        return done[0][None] if len(done) == 1 else torch.stack([each.movedim(-3, -1) for each in done]).movedim(-1, -3)

    def _generators(self, start: int, count: int, salt: int) -> list[torch.Generator]:
        """A generator for each episode."""
        words = random_words(self.seed ^ salt, np.arange(start, start + count), 1)[:, 0] >> np.uint64(1)
        return [torch.Generator().manual_seed(int(word)) for word in words]


def _pools(dataset: ClassDataset, way: int, within_group: bool) -> list[Ints]:
    """The sets of classes that an episode may use: all classes, or one set for each group that is large enough."""
    if not within_group:
        if len(dataset) < way:
            raise NotEnoughClassesError(
                f"A {way}-way episode needs {way} classes, but split '{dataset.name}' has {len(dataset)}. "
                f"Lower the way to {len(dataset)} or less, or sample from another split."
            )
        return [np.arange(len(dataset))]
    if dataset.groups is None:
        raise InvalidOptionError(f"Split '{dataset.name}' has no groups, so within_group cannot be used.")
    order = sorted(range(len(dataset)), key=dataset.groups.__getitem__)
    pools = [np.array(list(members)) for _, members in groupby(order, key=dataset.groups.__getitem__)]
    large = [members for members in pools if len(members) >= way]
    if not large:
        most = max(len(members) for members in pools)
        raise NotEnoughClassesError(
            f"No group of split '{dataset.name}' has {way} classes; the largest has {most}. Lower the way to {most}."
        )
    return large


def _check_counts(dataset: ClassDataset, shape: EpisodeShape) -> None:
    fewest = int(dataset.counts.argmin())
    have, need = int(dataset.counts[fewest]), shape.images_per_class
    if have < need:
        raise NotEnoughImagesError(
            f"An episode takes {need} images of each class (shots and queries), but class "
            f"'{dataset.classes[fewest]}' of split '{dataset.name}' has {have}. Lower the shots or the queries, "
            f"or add images."
        )


def _check_shares(dataset: ClassDataset, turned: float, mixed: float) -> None:
    for name, share in (("turned", turned), ("mixed", mixed)):
        if not 0 <= share <= 1:
            raise InvalidOptionError(f"{name} is a share of the episodes and must lie in [0, 1], but got {share}.")
    if not turned:
        return
    _, height, width = dataset.image_shape
    if height != width:
        raise InvalidOptionError(
            f"Quarter turns need square images, but those of split '{dataset.name}' have {height} x {width} pixels. "
            f"Set turned to 0."
        )
