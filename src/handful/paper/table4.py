"""Table 4 on the machine at hand: the time to solve 10,000 5-way 1-shot episodes of 10 images of 84 x 84.

What is in the images does not matter, so they are noise, and the networks are untrained. Each row is timed two ways.
'By episode' embeds and solves one episode after another, as the paper did. 'Images once' embeds every image of a test
split as large as miniImageNet's, 12,000, once, and solves the episodes from features: how handful evaluates. A row is
timed over fewer episodes if the whole would take too long, and then says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from handful.data.table import ClassDataset, ImageTable
from handful.episodes import EpisodeSampler, FixedShots
from handful.meta.config import Option, Recipe
from handful.meta.evaluate import evaluate
from handful.meta.features import embed_pool
from handful.meta.model import FewShotModel
from handful.meta.run import build
from handful.paper.published import TABLE_4
from handful.paper.recipes.settings import Width

EPISODES = 10_000
POOL = 12_000
CLASSES, PER_CLASS, SIZE = 20, 15, 84
SHAPE = FixedShots(way=5, shot=1, query=1)
WARM_UP = 2


@dataclass(frozen=True)
class TimedRow:
    """A row of table 4: which model."""

    label: str
    learner: str
    width: Width
    options: dict[str, Option]


ROWS = (
    TimedRow("R2-D2", "r2d2", "wide", {}),
    TimedRow("R2-D2 (64C)", "r2d2", "64C", {}),
    TimedRow("MAML (32C)", "maml", "32C", {"way": 5, "test_steps": 10, "statistics": "batch"}),
    TimedRow("LR-D2, one against the rest, 1 iteration (32C)", "lrd2", "32C", {"steps": 1}),
    TimedRow("R2-D2 (32C)", "r2d2", "32C", {}),
    TimedRow("Proto nets (32C)", "protonet", "32C", {}),
)


@dataclass(frozen=True)
class Timing:
    """Seconds for 10,000 episodes, one way; `measured` of the `whole` number of episodes or images were timed."""

    seconds: float
    measured: int
    whole: int
    unit: str

    @property
    def extrapolated(self) -> bool:
        """Whether the seconds are scaled up from fewer."""
        return self.measured < self.whole

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        return f"{minutes} min {seconds} s" if minutes else f"{self.seconds:.1f} s"

    @property
    def basis(self) -> str:
        """What was timed, in words."""
        if self.extrapolated:
            return f"EXTRAPOLATED from {self.measured:,} of {self.whole:,} {self.unit}"
        return f"all {self.whole:,} {self.unit}"


@dataclass(frozen=True)
class TimedResult:
    """A row's times here, and the paper's."""

    label: str
    published: float
    by_episode: Timing
    images_once: Timing | None
    """None for a method that has no embedding to share between episodes."""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def noise_images(seed: int = 0) -> ClassDataset:
    """Random images of miniImageNet's size, in enough classes for 5-way episodes."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (CLASSES * PER_CLASS, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)
    names = tuple(f"noise{number}" for number in range(CLASSES))
    table = ImageTable(pixels.permute(0, 3, 1, 2), names, (PER_CLASS,) * CLASSES)
    return table.split("test", names)


def time_rows(
    rows: tuple[TimedRow, ...],
    seconds: float,
    say: Callable[[str], None],
    episodes: int = EPISODES,
    both: bool = True,
) -> list[TimedResult]:
    """Time the rows for at most this many seconds each way, or only by episode, and tell each."""
    dataset = noise_images()
    found = []
    for row in rows:
        model = build(Recipe(width=row.width, learner=row.learner, options=row.options), dataset.image_shape).eval()
        once = None if row.learner == "maml" or not both else _images_once(model, dataset, seconds, episodes)
        result = TimedResult(row.label, TABLE_4[row.label], _by_episode(model, dataset, seconds, episodes), once)
        images_once = f"; images once {_told(result.images_once)}" if both else ""
        say(f"{row.label}: by episode {_told(result.by_episode)}{images_once}")
        found.append(result)
    return found


def _told(timing: Timing | None) -> str:
    return "does not apply" if timing is None else f"{timing} ({timing.basis})"


def _by_episode(model: FewShotModel, dataset: ClassDataset, seconds: float, episodes: int) -> Timing:
    sampler = EpisodeSampler(dataset, SHAPE)
    with torch.no_grad():
        for index in range(WARM_UP):
            model(sampler[index])
        begun = time.perf_counter()
        done = 0
        while done < episodes and (done == 0 or time.perf_counter() - begun < seconds):
            model(sampler[WARM_UP + done])
            done += 1
    return Timing((time.perf_counter() - begun) * episodes / done, done, episodes, "episodes")


def _images_once(model: FewShotModel, dataset: ClassDataset, seconds: float, episodes: int) -> Timing:
    """The noise images are embedded again and again, up to 12,000 or as long as there is time; all episodes solved."""
    embed_pool(model.embedding, _part(dataset, SHAPE.way))
    begun = time.perf_counter()
    pool = embed_pool(model.embedding, dataset)
    images = len(dataset.rows)
    while images < POOL and time.perf_counter() - begun < seconds:
        embed_pool(model.embedding, dataset)
        images += len(dataset.rows)
    embedding = (time.perf_counter() - begun) * POOL / images
    begun = time.perf_counter()
    evaluate(model, EpisodeSampler(dataset, SHAPE), episodes, pool=pool, route="features")
    return Timing(embedding + time.perf_counter() - begun, images, POOL, "images")


def _part(dataset: ClassDataset, classes: int) -> ClassDataset:
    return ClassDataset(dataset.name, dataset.table, dataset.members[:classes])
