"""`handful evaluate`: few-shot accuracy of a trained run on unseen classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.errors import InvalidOptionError
from handful.meta.config import Device


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
    views: tuple[Literal["mirror", "shift"], ...] = ()
    """Average the features of each image with those of its mirror image, of copies moved by one pixel, or of both."""
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
        from handful import FewShotModel, data, evaluate
        from handful._io import write_atomically
        from handful.embeddings import MeanOverViews
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
        if self.views:
            mean = MeanOverViews(model.embedding, mirror="mirror" in self.views, shift="shift" in self.views)
            model = FewShotModel(mean, model.learner, model.together).eval()
        memory = int(self.memory * 1e9)
        pool = embed_pool_within(model.embedding, dataset, memory, engine)
        results = []
        for shot in self.shot:
            shape = FixedShots(self.way, shot, self.query, self.within_group)
            sampler = EpisodeSampler(dataset, shape, self.seed)
            result = evaluate(model, sampler, self.episodes, engine=engine, memory=memory, pool=pool)
            if engine.leads:
                views = f"; features averaged over views: {', '.join(self.views)}" if self.views else ""
                print(f"{result}{views}", flush=True)
            if self.verbose and engine.leads:
                once = "" if pool is None else f" after embedding {len(pool):,} images once"
                print(f"  {result.route}; {result.seconds:.2f} s{once}")
            whence = {"data": benchmark.name, "run": str(self.run_folder), "views": list(self.views)}
            results.append({**whence, **result.as_json()})
        if self.json is not None and engine.leads:
            write_atomically(self.json, json.dumps(results, indent=1).encode())
            print(f"Written to {self.json}")
        return 0
