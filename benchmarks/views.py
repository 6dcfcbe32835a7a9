"""What averaging the features over views of each image gains: on validation classes, then once on test classes.

    python -m benchmarks.views results/weights/RUN [...]

RUN-best-1-shot.safetensors is evaluated at one shot and RUN-best-5-shot.safetensors at five. Writes results/views.md,
and the number of correct answers in each episode to results/views.counts.safetensors.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from handful import FewShotModel, data, evaluate
from handful._io import write_atomically
from handful.data.table import ClassDataset
from handful.embeddings import MeanOverViews
from handful.episodes import EpisodeSampler, FixedShots
from handful.meta.features import embed_pool
from handful.meta.run import read_run

ALONE = "the image alone"
VIEWS = {
    ALONE: {},
    "mirror": {"mirror": True},
    "shift": {"shift": True},
    "mirror and shift": {"mirror": True, "shift": True},
}
WAY, QUERIES, EPISODES = 5, {1: 47, 5: 43}, 10_000
PAGE, COUNTS = Path("results/views.md"), Path("results/views.counts.safetensors")


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    names = [run.name for run in runs]
    counts = measured(runs, "val", list(VIEWS))
    best = max(
        VIEWS, key=lambda views: float(torch.stack([percent(counts, "val", name, views) for name in names]).mean())
    )
    counts |= measured(runs, "test", list(dict.fromkeys([ALONE, best])))
    command = f"python -m benchmarks.views {' '.join(f'results/weights/{name}' for name in names)}"
    where = f"torch {torch.__version__}, one thread, Python {platform.python_version()}, {platform.machine()}"
    write_atomically(PAGE, ("\n".join([*page(counts, names, best), f"`{command}`; {where}."]) + "\n").encode())
    save_file(counts, COUNTS)


def measured(runs: Sequence[Path], split: str, views: Sequence[str]) -> dict[str, Tensor]:
    """The number of correct answers in each episode, by split, run, views and shots."""
    found = {}
    for run in runs:
        for shot, query in QUERIES.items():
            trained = read_run(run.with_name(f"{run.name}-best-{shot}-shot.safetensors"))
            dataset: ClassDataset = getattr(data.load(trained.recipe.data), split)
            episodes = EpisodeSampler(dataset, FixedShots(WAY, shot, query))
            for name in views:
                model = FewShotModel(MeanOverViews(trained.model.embedding, **VIEWS[name]), trained.model.learner)
                right = evaluate(model, episodes, EPISODES, pool=embed_pool(model.embedding, dataset)).accuracies
                found[key(split, run.name, name, shot)] = (WAY * query * right).round().to(torch.uint8)
                print(key(split, run.name, name, shot), f"{100 * float(right.mean()):.2f}", flush=True)
    return found


def key(split: str, run: str, views: str, shot: int) -> str:
    """The name of a column of counts."""
    return f"{split}, {run}, {views}, {shot}-shot"


def percent(counts: Mapping[str, Tensor], split: str, run: str, views: str) -> Tensor:
    """The accuracy in percent of each episode, (shots, episodes)."""
    return torch.stack(
        [100 * counts[key(split, run, views, shot)].double() / (WAY * query) for shot, query in QUERIES.items()]
    )


def page(counts: Mapping[str, Tensor], runs: Sequence[str], best: str) -> list[str]:
    """The lines of the page, from the counts alone."""
    return [
        "# Features averaged over views of each image",
        "",
        f"Accuracy in percent over {EPISODES:,} {WAY}-way episodes (seed 0) with {QUERIES[1]} queries per class at one",
        f"shot and {QUERIES[5]} at five, with 1.96 standard errors. Gains are paired: the same weights on the same",
        "episodes, with and without views. Each image is embedded by itself, so the method stays inductive.",
        "",
        "## Validation classes",
        "",
        *table(counts, "val", runs, list(VIEWS)),
        "",
        f"## Test classes, with the views that are best on validation classes: {best}",
        "",
        *table(counts, "test", runs, list(dict.fromkeys([ALONE, best]))),
        "",
    ]


def table(counts: Mapping[str, Tensor], split: str, runs: Sequence[str], views: Sequence[str]) -> list[str]:
    """Rows of Markdown: accuracy, and the gain over the image alone, for each number of shots."""
    lines = ["| run | views | 1-shot | gain | 5-shot | gain |", "| --- | --- | --- | --- | --- | --- |"]
    for run in runs:
        for name in views:
            cells = []
            for ours, alone in zip(percent(counts, split, run, name), percent(counts, split, run, ALONE), strict=True):
                cells += [with_interval(ours), "" if name == ALONE else with_interval(ours - alone, "+")]
            lines.append(f"| {run} | {name} | {' | '.join(cells)} |")
    return lines


def with_interval(values: Tensor, sign: str = "") -> str:
    """The mean and 1.96 standard errors."""
    return f"{float(values.mean()):{sign}.2f} ± {1.96 * float(values.std(correction=0)) / len(values) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
