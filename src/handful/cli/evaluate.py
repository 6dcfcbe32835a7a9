"""`handful evaluate`: few-shot accuracy of a trained run on unseen classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.errors import InvalidOptionError
from handful.meta.config import Device

if TYPE_CHECKING:
    from handful import FewShotModel
    from handful.meta.config import Recipe
    from handful.meta.engine import Engine


@dataclass(frozen=True)
class Evaluate:
    """Measure the accuracy of a trained run over test episodes, with its 95% interval."""

    run_folder: Positional[Path]
    """Folder of a run, or one checkpoint file."""
    way: int = 5
    """Classes per episode."""
    shot: tuple[int, ...] = (1, 5)
    """Labelled images per class; several values give several results."""
    query: int = 15
    """Queries per class."""
    episodes: int = 10_000
    """Episodes to average over."""
    split: Literal["test", "val", "train"] = "test"
    """Which classes to use: make choices on val, report on test."""
    checkpoint: str = "mean"
    """Which checkpoint of the run: mean, 1-shot or 5-shot (the best on validation), or last."""
    views: tuple[Literal["mirror", "shift", "shift-2"], ...] = ()
    """Average the features of each image with those of its mirror image, of copies moved by one pixel (shift), or of
    copies moved by one and two pixels (shift-2)."""
    centre: bool = False
    """Subtract the mean features of all training images from all features."""
    lam: float | None = None
    """Use this lambda, whatever the number of images, instead of the learner's own."""
    data: str = ""
    """Name or path of a data set to use instead of the run's own."""
    within_group: bool = False
    """Draw all classes of an episode from one group, for example one alphabet."""
    seed: int = 0
    """Seed for the test episodes."""
    memory: float = 4.0
    """Memory limit in gigabytes."""
    json: Path | None = None
    """Write all results to this file, including the accuracy of each episode."""
    verbose: bool = False
    """Explain how the result was computed, and why."""
    device: Device = "auto"
    """Device to compute on."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Evaluate each number of shots and print one line for each."""
        from handful import data, evaluate
        from handful._io import write_atomically
        from handful.episodes import EpisodeSampler, FixedShots
        from handful.meta.features import embed_pool_within
        from handful.meta.run import benchmark_of, read_run, require_fitting

        if not 0 < self.memory < 1e6:
            raise InvalidOptionError(f"--memory is in gigabytes and must be positive, but got {self.memory}.")
        engine = prepare(self.device, self.threads)
        trained = read_run(self.run_folder, self.checkpoint)
        model, recipe = trained.model.to(engine.device), trained.recipe
        if self.data:
            moved = Path(self.data).name == Path(recipe.data).name  # the run's own folder keeps its training classes
            benchmark = data.load(self.data, split=(recipe.split or None) if moved else None)
        else:
            benchmark = benchmark_of(recipe, recorded=True)
        dataset = getattr(benchmark, self.split)
        require_fitting(trained.image_shape, dataset.image_shape, benchmark.name)
        model, memory = self._changed(model, recipe, engine), int(self.memory * 1e9)
        pool = embed_pool_within(model.embedding, dataset, memory, engine)
        results = []
        for shot in self.shot:
            shape = FixedShots(self.way, shot, self.query, self.within_group)
            sampler = EpisodeSampler(dataset, shape, self.seed)
            result = evaluate(model, sampler, self.episodes, engine=engine, memory=memory, pool=pool)
            if engine.leads:
                print("; ".join([str(result), *self._changes()]), flush=True)
            if self.verbose and engine.leads:
                once = "" if pool is None else f" after embedding {len(pool):,} images once"
                print(f"  {result.route}; {result.seconds:.2f} s{once}")
            whence = {"data": benchmark.name, "run": str(self.run_folder)}
            changes = {"views": list(self.views), "centre": self.centre, "lam": self.lam}
            results.append({**whence, **changes, **result.as_json()})
        if self.json is not None and engine.leads:
            write_atomically(self.json, json.dumps(results, indent=1).encode())
            print(f"Written to {self.json}")
        return 0

    def _changed(self, model: FewShotModel, recipe: Recipe, engine: Engine) -> FewShotModel:
        """The model with what the options change in its features and its lambda."""
        from handful import FewShotModel
        from handful.embeddings import Centred, MeanOverViews
        from handful.learners import with_lam
        from handful.meta.features import mean_features
        from handful.meta.run import benchmark_of

        embedding, learner = model.embedding, model.learner
        if self.views:
            shift = 2 if "shift-2" in self.views else int("shift" in self.views)
            embedding = MeanOverViews(embedding, mirror="mirror" in self.views, shift=shift)
        if self.centre:
            train = benchmark_of(recipe, recorded=True).train
            embedding = Centred(embedding, mean_features(model.embedding, train, engine))
        if self.lam is not None:
            learner = with_lam(learner, self.lam)
        return FewShotModel(embedding, learner, model.together).eval()

    def _changes(self) -> list[str]:
        views = [f"features averaged over views: {', '.join(self.views)}"] if self.views else []
        centred = ["features centred"] if self.centre else []
        return [*views, *centred, *([] if self.lam is None else [f"lambda {self.lam:g}"])]
