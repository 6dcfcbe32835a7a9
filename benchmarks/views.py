"""What a trained network gains at evaluation, with nothing trained again.

    python -m benchmarks.views results/weights/RUN [...]

Features are averaged over views of each image, lambda stays the same for any number of images, and features are
centred. Each checkpoint is tested once in the setting that is best for it on validation classes.
RUN-best-1-shot.safetensors is evaluated at one shot and RUN-best-5-shot.safetensors at five. Writes results/views.md,
and the number of correct answers in each episode to results/views.counts.safetensors.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from handful import FewShotModel, data, evaluate
from handful._io import write_atomically
from handful.data.table import Benchmark
from handful.embeddings import MeanOverViews
from handful.episodes import EpisodeSampler, FixedShots
from handful.learners import with_lam
from handful.meta.features import embed_pool, mean_features
from handful.meta.run import read_run


@dataclass(frozen=True)
class Setting:
    """What differs from the image alone."""

    mirror: bool = False
    shift: int = 0
    lam: float | None = None
    centre: bool = False


ALONE, TEN = "the image alone", "mirror and shift"
LAM = 250.0
"""The learner's own lambda at one shot: 50 for each of five images."""
SETTINGS = {
    ALONE: Setting(),
    "mirror": Setting(mirror=True),
    "shift": Setting(shift=1),
    TEN: Setting(mirror=True, shift=1),
    "mirror, shift-2": Setting(mirror=True, shift=2),
    "mirror, shift-2, lambda 250": Setting(mirror=True, shift=2, lam=LAM),
    "mirror, shift-2, lambda 250, centred": Setting(mirror=True, shift=2, lam=LAM, centre=True),
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
    counts: dict[str, Tensor] = {}
    for run in runs:
        for shot in QUERIES:
            counts |= measured(run, shot, "val", list(SETTINGS))
            counts |= measured(run, shot, "test", tested(counts, run.name, shot))
    command = f"python -m benchmarks.views {' '.join(f'results/weights/{name}' for name in names)}"
    where = f"torch {torch.__version__}, one thread, Python {platform.python_version()}, {platform.machine()}"
    write_atomically(PAGE, ("\n".join([*page(counts, names), f"`{command}`; {where}."]) + "\n").encode())
    save_file(counts, COUNTS)


def tested(counts: Mapping[str, Tensor], run: str, shot: int) -> list[str]:
    """The settings to test for a run: the image alone, ten views, and the best on validation classes."""
    best = max(SETTINGS, key=lambda name: float(percent(counts, "val", run, name, shot).mean()))
    return list(dict.fromkeys([ALONE, TEN, best]))


def measured(run: Path, shot: int, split: str, settings: Sequence[str]) -> dict[str, Tensor]:
    """The number of correct answers in each episode, by setting."""
    trained = read_run(run.with_name(f"{run.name}-best-{shot}-shot.safetensors"))
    benchmark: Benchmark = data.load(trained.recipe.data)
    episodes = EpisodeSampler(getattr(benchmark, split), FixedShots(WAY, shot, QUERIES[shot]))
    pools = Pools(trained.model.embedding, benchmark, split)
    found = {}
    for name in settings:
        learner, lam = trained.model.learner, SETTINGS[name].lam
        model = FewShotModel(trained.model.embedding, learner if lam is None else with_lam(learner, lam))
        right = evaluate(model, episodes, EPISODES, pool=pools.of(SETTINGS[name])).accuracies
        found[key(split, run.name, name, shot)] = (WAY * QUERIES[shot] * right).round().to(torch.uint8)
        print(key(split, run.name, name, shot), f"{100 * float(right.mean()):.2f}", flush=True)
    return found


class Pools:
    """The features of all images of a split in any setting; each view is embedded once."""

    def __init__(self, embedding: nn.Module, benchmark: Benchmark, split: str) -> None:
        self.embedding, self.benchmark, self.split = embedding, benchmark, split
        self.views: dict[tuple[bool, tuple[int, int]], Tensor] = {}
        self.mean: Tensor | None = None

    def of(self, setting: Setting) -> Tensor:
        """The pool of a setting, (n, features)."""
        wanted = MeanOverViews(self.embedding, mirror=setting.mirror, shift=setting.shift).views
        pool = torch.stack([self._view(view) for view in wanted]).mean(0)
        if not setting.centre:
            return pool
        if self.mean is None:
            self.mean = mean_features(self.embedding, self.benchmark.train)
        return pool - self.mean

    def _view(self, view: tuple[bool, tuple[int, int]]) -> Tensor:
        if view not in self.views:
            one = MeanOverViews(self.embedding, shift=max(map(abs, view[1])))
            one.views = (view,)
            self.views[view] = embed_pool(one, getattr(self.benchmark, self.split))
        return self.views[view]


def key(split: str, run: str, setting: str, shot: int) -> str:
    """The name of a column of counts."""
    return f"{split}, {run}, {setting}, {shot}-shot"


def percent(counts: Mapping[str, Tensor], split: str, run: str, setting: str, shot: int) -> Tensor:
    """The accuracy in percent of each episode, (episodes,)."""
    return 100 * counts[key(split, run, setting, shot)].double() / (WAY * QUERIES[shot])


def page(counts: Mapping[str, Tensor], runs: Sequence[str]) -> list[str]:
    """The lines of the page, from the counts alone."""
    lines = [
        "# More from the same weights",
        "",
        f"Accuracy in percent over {EPISODES:,} {WAY}-way episodes (seed 0) with {QUERIES[1]} queries per class at one",
        f"shot and {QUERIES[5]} at five, with 1.96 standard errors. Gains are paired: the same weights on the same",
        "episodes. Each image is embedded by itself, so the method stays inductive. Nothing is trained.",
        "",
        "* **mirror**, **shift**, **shift-2**: features are averaged over the image, its mirror image, and copies",
        "  moved by one pixel, or by one and two pixels, in each of the four directions.",
        f"* **lambda {LAM:g}**: the learner's own at one shot, {LAM / WAY:g} times the number of images, also at five.",
        "* **centred**: less the mean features of the training images, without views.",
        "",
        "A run is tested in the setting that is best for it on validation classes, with ten views, and without.",
    ]
    for split, title in (("val", "Validation classes"), ("test", "Test classes")):
        for shot in QUERIES:
            lines += ["", f"## {title}, {shot}-shot", "", *table(counts, split, runs, shot)]
    return [*lines, ""]


def table(counts: Mapping[str, Tensor], split: str, runs: Sequence[str], shot: int) -> list[str]:
    """Rows of Markdown: accuracy, and the gain over the image alone."""
    lines = ["| run | setting | accuracy | gain |", "| --- | --- | --- | --- |"]
    for run in runs:
        alone = percent(counts, split, run, ALONE, shot)
        for name in SETTINGS if split == "val" else tested(counts, run, shot):
            ours = percent(counts, split, run, name, shot)
            gain = "" if name == ALONE else with_interval(ours - alone, "+")
            lines.append(f"| {run} | {name} | {with_interval(ours)} | {gain} |")
    return lines


def with_interval(values: Tensor, sign: str = "") -> str:
    """The mean and 1.96 standard errors."""
    return f"{float(values.mean()):{sign}.2f} ± {1.96 * float(values.std(correction=0)) / len(values) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
