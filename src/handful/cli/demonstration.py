"""The demonstration: meta-train on drawn characters, then learn unseen alphabets, compared with simple baselines."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from handful import data
from handful._io import write_atomically
from handful.data.table import Benchmark, ClassDataset
from handful.episodes import EpisodeSampler, FixedShots
from handful.learners import ProtoNet
from handful.meta.config import Plan, Recipe
from handful.meta.evaluate import Evaluation, evaluate
from handful.meta.features import embed_pool
from handful.meta.model import FewShotModel
from handful.meta.run import Run, build
from handful.meta.train import Progress
from handful.report.page import code, figure, heading, page, paragraph, table
from handful.report.plots import Curve, curves_picture, episode_picture

Watch = Callable[[str, int, Iterator[Progress]], Iterable[Progress]]
"""Given a name, a number of episodes and a stream of progress, shows the progress and yields it."""

KINDS = ((5, 1), (5, 5), (20, 1), (20, 5))
RECIPE = Recipe(
    data="glyphs",
    width="32C",
    learner="r2d2",
    way=20,
    images_per_class=10,
    max_shot=5,
    plan=Plan(episodes=300, rate=5e-3, schedule="cosine", validate_every=25, patience=0),
    val_episodes=200,
)


@dataclass(frozen=True)
class Row:
    """The results of one method for each kind of episode."""

    name: str
    results: tuple[Evaluation, ...]
    curve: Curve = ()


class Flatten(nn.Module):
    """Uses raw pixels as features."""

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, ...) -> pixels (n, e)."""
        return images.flatten(1)


def demonstrate(
    folder: Path, episodes: int, train_episodes: int, seed: int, watch: Watch, say: Callable[[str], None]
) -> Path:
    """Train, evaluate and write the report; returns the path of the report."""
    begun = time.perf_counter()
    benchmark = data.load("glyphs")
    sizes = ", ".join(f"{len(part)} {word}" for part, word in _parts(benchmark))
    say(f"glyphs: {sizes} characters, with no alphabet in more than one part")
    plan = dataclasses.replace(RECIPE.plan, episodes=train_episodes)
    recipe = dataclasses.replace(RECIPE, plan=plan, seed=seed)
    rows = [_trained("R2-D2", recipe, benchmark, folder, episodes, watch)]
    proto = dataclasses.replace(recipe, learner="protonet")
    rows.append(_trained("Prototypical networks", proto, benchmark, folder, episodes, watch))
    untrained = build(proto, benchmark.test.image_shape)
    rows.append(Row("Untrained, nearest mean", _results(untrained, benchmark.test, episodes, seed)))
    pixels = FewShotModel(Flatten(), ProtoNet())
    rows.append(Row("Raw pixels, nearest mean", _results(pixels, benchmark.test, episodes, seed)))
    seconds = time.perf_counter() - begun
    facts = {row.name: [{**result.as_json(), "accuracies": None} for result in row.results] for row in rows}
    write_atomically(folder / "results.json", json.dumps(facts, indent=1).encode())
    report = folder / "report.html"
    write_atomically(report, _report(rows, benchmark, recipe, episodes, folder, seconds).encode())
    say("")
    for line in text_table(rows):
        say(line)
    return report


def text_table(rows: list[Row]) -> list[str]:
    """The results as aligned lines for a terminal."""
    heads = [f"{way}-way {shot}-shot" for way, shot in KINDS]
    lines = [f"{'accuracy, %':<28}" + "".join(f"{head:>16}" for head in heads)]
    for row in rows:
        lines.append(f"{row.name:<28}" + "".join(f"{_percent(result):>16}" for result in row.results))
    return lines


def _parts(benchmark: Benchmark) -> list[tuple[ClassDataset, str]]:
    return [(benchmark.train, "training"), (benchmark.val, "validation"), (benchmark.test, "test")]


def _trained(name: str, recipe: Recipe, benchmark: Benchmark, folder: Path, episodes: int, watch: Watch) -> Row:
    run = Run(folder / recipe.learner, recipe, benchmark)
    run.restart()
    curve = [
        (progress.episode, progress.scores["1-shot"])
        for progress in watch(name, recipe.plan.episodes, run.train())
        if progress.scores
    ]
    return Row(name, _results(run.best(), benchmark.test, episodes, recipe.seed), curve)


def _results(model: FewShotModel, dataset: ClassDataset, episodes: int, seed: int) -> tuple[Evaluation, ...]:
    pool = embed_pool(model.embedding, dataset)
    kinds = (EpisodeSampler(dataset, FixedShots(way, shot), seed) for way, shot in KINDS)
    return tuple(evaluate(model, sampler, episodes, pool=pool) for sampler in kinds)


def _percent(result: Evaluation) -> str:
    return f"{100 * result.mean:.2f} ± {100 * result.ci95:.2f}"


def _report(rows: list[Row], benchmark: Benchmark, recipe: Recipe, episodes: int, folder: Path, seconds: float) -> str:
    sample = EpisodeSampler(benchmark.test, FixedShots(5, 1, 5), recipe.seed)[0]
    heads = ["Accuracy, %", *(f"{way}-way {shot}-shot" for way, shot in KINDS)]
    cells = [[row.name, *(_percent(result) for result in row.results)] for row in rows]
    plan = recipe.plan
    return page(
        "Learning new characters from a handful of drawings",
        f"R2-D2 was meta-trained for {plan.episodes} episodes on characters of {_alphabets(benchmark.train)} invented "
        f"alphabets, then tested on characters of {_alphabets(benchmark.test)} alphabets that it had never seen.",
        [
            heading("What an episode looks like"),
            paragraph(
                "The learner sees the labelled drawings on the left, one per class here, and must name the drawings on "
                "the right. Every episode has new classes, so there is nothing to memorise: the network has to learn "
                "features from which ridge regression learns new classes in closed form."
            ),
            figure(episode_picture(sample), "A 5-way 1-shot episode of test characters: support left, queries right."),
            heading("How well it learns unseen classes"),
            table(heads, cells, strong=(0,)),
            paragraph(
                f"Mean over {episodes:,} episodes of test alphabets, 15 queries per class, ± half the 95% interval. "
                f"All rows saw the same episodes. R2-D2 and prototypical networks were trained in the same way "
                f"({plan.episodes} episodes, {recipe.way}-way, 1 to {recipe.max_shot} shots, checkpoint chosen on "
                f"validation alphabets). All rows are inductive: no query affects the answer to another. The whole "
                f"demonstration took {seconds:.0f} seconds."
            ),
            heading("How it learnt"),
            figure(
                curves_picture({row.name: row.curve for row in rows if row.curve}, "5-way 1-shot accuracy, %"),
                f"Accuracy on {_alphabets(benchmark.val)} validation alphabets during meta-training.",
            ),
            heading("What to try next"),
            paragraph(f"The trained models, their logs and checkpoints are in {folder}."),
            code(
                [
                    "# part of the first row again",
                    f"handful evaluate {folder / 'r2d2'} --way 5 --shot 1 5",
                    "# a larger network, trained for longer",
                    "handful train --out runs/mine --width 64C --episodes 2000",
                    "# the paper's benchmarks and your own images",
                    "handful data list",
                ]
            ),
        ],
    )


def _alphabets(dataset: ClassDataset) -> int:
    return len(set(dataset.groups or ()))
