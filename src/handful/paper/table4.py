"""Table 4 on this machine: the time to solve 10,000 5-way 1-shot episodes of 10 images of 84 x 84.

The content of the images does not matter, so they are noise, and the networks are untrained. Each row is timed in two
ways. 'By episode' embeds and solves one episode after another, as the paper did. 'Images once' embeds every image of a
test split the size of miniImageNet's (12,000 images) once, and solves the episodes from features, as `handful evaluate`
does. If all episodes would take too long, a row is timed over fewer, and says so. Machines differ, so the report gives
seconds and also multiples of one row.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from handful.data.table import ClassDataset, ImageTable
from handful.episodes import EpisodeSampler, FixedShots
from handful.meta.config import Recipe
from handful.meta.evaluate import evaluate
from handful.meta.features import embed_pool
from handful.meta.manifest import machine, now, versions
from handful.meta.model import FewShotModel
from handful.meta.run import build
from handful.paper.plots import OURS, PAPER, panels
from handful.paper.published import SOURCE, TABLE_4
from handful.paper.report import NONE, Block, Lines, Shown, html, markdown, write_files
from handful.report.page import Picture
from handful.report.plots import svg

EPISODES = 10_000
POOL = 12_000
CLASSES, PER_CLASS, SIZE = 20, 15, 84
SHAPE = FixedShots(way=5, shot=1, query=1)
WARM_UP = 2
TITLE = "Table 4: the time to solve 10,000 episodes of 10 images"
UNIT = "R2-D2 (32C)"
"""The row that other times are multiples of."""
HEAD = ("Method", "paper", "by episode", "images once", "paper, ratio", "ours, ratio", "timed")


ROWS = {
    "R2-D2": Recipe(width="wide"),
    "R2-D2 (64C)": Recipe(width="64C"),
    "MAML (32C)": Recipe(width="32C", learner="maml", options={"way": 5, "test_steps": 10, "statistics": "batch"}),
    "LR-D2, one against the rest, 1 iteration (32C)": Recipe(width="32C", learner="lrd2", options={"steps": 1}),
    "R2-D2 (32C)": Recipe(width="32C"),
    "Proto nets (32C)": Recipe(width="32C", learner="protonet"),
}
"""The model of each row."""


@dataclass(frozen=True)
class Timing:
    """Seconds for 10,000 episodes in one way; `measured` out of `whole` episodes or images were timed."""

    seconds: float
    measured: int
    whole: int
    unit: str

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        return f"{minutes} min {seconds} s" if minutes else f"{self.seconds:.1f} s"

    @property
    def basis(self) -> str:
        """What was timed, in words."""
        if self.measured < self.whole:  # scaled up
            return f"EXTRAPOLATED from {self.measured:,} of {self.whole:,} {self.unit}"
        return f"all {self.whole:,} {self.unit}"


@dataclass(frozen=True)
class TimedResult:
    """The times of a row, ours and the paper's."""

    label: str
    published: float
    by_episode: Timing
    images_once: Timing | None
    """None for a method whose episodes cannot share an embedding."""


def noise_images(seed: int = 0) -> ClassDataset:
    """Random images of miniImageNet's size, in enough classes for 5-way episodes."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(256, (CLASSES * PER_CLASS, SIZE, SIZE, 3), dtype=torch.uint8, generator=generator)
    names = tuple(f"noise{number}" for number in range(CLASSES))
    table = ImageTable(pixels.permute(0, 3, 1, 2), names, (PER_CLASS,) * CLASSES)
    return table.split("test", names)


def time_rows(
    labels: Iterable[str], seconds: float, say: Callable[[str], None], episodes: int = EPISODES, both: bool = True
) -> list[TimedResult]:
    """Time each row for at most this many seconds in each way, or only by episode, and report it."""
    dataset = noise_images()
    found = []
    for label in labels:
        model = build(ROWS[label], dataset.image_shape).eval()
        shared = both and ROWS[label].learner != "maml"
        once = _images_once(model, dataset, seconds, episodes) if shared else None
        found.append(TimedResult(label, TABLE_4[label], _by_episode(model, dataset, seconds, episodes), once))
        images_once = f"; images once {_said(once)}" if both else ""
        say(f"{label}: by episode {_said(found[-1].by_episode)}{images_once}")
    return found


def _said(timing: Timing | None) -> str:
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
    """Embed the noise images repeatedly, up to 12,000 or until time is up, and solve all episodes."""
    embed_pool(model.embedding, replace(dataset, members=dataset.members[: SHAPE.way]))  # warm-up
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


def lines_of(results: list[TimedResult]) -> Lines:
    """The table, with times relative to R2-D2 with 32 channels if that row was timed."""
    unit = next((result for result in results if result.label == UNIT), None)
    rows = []
    for result in results:
        ratios = [f"{ratio:.2f}" for ratio in _ratios(result, unit)] if unit else [NONE, NONE]
        timings = [timing for timing in (result.by_episode, result.images_once) if timing is not None]
        once = str(result.images_once) if result.images_once else NONE
        timed = "; ".join(timing.basis for timing in timings)
        rows.append((result.label, f"{result.published:.0f} s", str(result.by_episode), once, *ratios, timed))
    return Lines(HEAD, tuple(rows))


def _ratios(result: TimedResult, unit: TimedResult) -> tuple[float, float]:
    """The paper's time and ours, as multiples of the unit's."""
    return result.published / unit.published, result.by_episode.seconds / unit.by_episode.seconds


def ratio_picture(results: list[TimedResult]) -> Picture:
    """The paper's times and ours, each as a multiple of one row (the first, if that row was not timed)."""
    unit = next((result for result in results if result.label == UNIT), results[0])
    canvas, (place,) = panels(1, height=1.1 + 0.3 * len(results))
    rows = range(len(results))
    paper, ours = zip(*(_ratios(result, unit) for result in results), strict=True)
    place.scatter(paper, [y - 0.1 for y in rows], marker="D", s=24, color=PAPER, label="the paper")
    place.scatter(ours, [y + 0.1 for y in rows], marker="o", s=30, color=OURS, label="here")
    place.set_yticks(rows, [result.label for result in results])
    place.set_ylim(len(results) - 0.5, -0.5)
    place.set_xscale("log")
    place.set_xlabel(f"time, as a multiple of {unit.label}", fontsize=9)
    canvas.legend(loc="outside lower center", ncols=2, frameon=False)
    return svg(canvas, TITLE)


def write_timing(results: list[TimedResult], out: Path, command: str) -> list[Path]:
    """Write table4.json, table4.md and table4.html; returns their paths."""
    here = machine()
    how = (
        f"{EPISODES:,} 5-way 1-shot episodes with one query per class, noise images of 84 x 84, untrained networks, on "
        f"{here['processor']} with {here['threads']} threads; the paper used one GTX 1080. 'Images once' embeds a "
        f"split of {POOL:,} images and solves all episodes from their features; MAML adapts the network itself to each "
        f"episode, so nothing can be shared. Machines differ: compare the ratios to {UNIT}, by episode."
    )
    source = f"{SOURCE}, table 4"
    facts: dict[str, object] = {"title": TITLE, "source": source, "created": now(), "command": command, "machine": here}
    facts |= {"versions": versions(), "rows": [asdict(result) for result in results]}
    blocks: list[Block] = [lines_of(results), how]
    blocks.append(Shown(ratio_picture(results), f"Time by episode as a multiple of {UNIT}; logarithmic."))
    contents = {
        "table4.json": json.dumps(facts, indent=1),
        "table4.md": markdown(TITLE, [*blocks, f"Repeat it with `{command}`."]),
        "table4.html": html(TITLE, f"Measured on this machine beside the published times ({source}).", blocks, command),
    }
    return write_files(out, contents)
