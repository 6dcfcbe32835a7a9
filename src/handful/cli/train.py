"""`handful train`: meta-train a model from a recipe, with checkpoints."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, arg

from handful.cli.machine import Device, prepare
from handful.recipes import Recipe, parse_options


@dataclass(frozen=True)
class Train:
    """Meta-train an embedding and a learner over episodes; stop at any time and go on with --resume."""

    out: Path
    """Folder of the run: recipe, log and checkpoints go here."""
    recipe_name: Annotated[str, arg(name="recipe")] = ""
    """Start from a named recipe (`handful recipes` lists them); other flags change it."""
    recipe: Annotated[Recipe, OmitArgPrefixes] = field(default_factory=Recipe)
    set: tuple[str, ...] = ()
    """Options of the learner as name=value, for example: --set lam=10 learn_lam=true."""
    resume: bool = False
    """Go on with the run in this folder, to the same bits; the recipe is the folder's, other flags are ignored."""
    minutes: float = 0.0
    """Stop after so many minutes, saved and ready to be resumed; 0 for no limit."""
    save_every: int = 500
    """Episodes between two checkpoints (validation always saves one)."""
    device: Device = "auto"
    """Where to compute."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Train, showing a progress bar on a terminal; prints where the run is and its best scores."""
        from tqdm import tqdm

        from handful.runs import RECIPE, Run, benchmark_of, read_recipe

        device = prepare(self.device, self.threads)
        resuming = self.resume and (self.out / RECIPE).exists()
        recipe = read_recipe(self.out) if resuming else self._recipe()
        run = Run(self.out, recipe, benchmark_of(recipe), device)
        run.resume() if resuming else run.start()
        print(f"{recipe.learner} on {recipe.data}: {run.state.episode:,} of {recipe.plan.episodes:,} episodes so far")
        per_step = recipe.plan.episodes_per_step
        with tqdm(
            total=recipe.plan.episodes, initial=run.state.episode, unit="ep", dynamic_ncols=True, disable=None
        ) as bar:
            for progress in (steps := run.train(self.save_every)):
                bar.update(per_step)
                bar.set_postfix(loss=f"{progress.loss:.3f}", acc=f"{100 * progress.accuracy:.0f}%", refresh=False)
                if progress.scores:
                    scores = "  ".join(f"{name} {100 * value:.2f}%" for name, value in progress.scores.items())
                    mark = "  best so far" if "mean" in progress.improved else ""
                    bar.write(f"episode {progress.episode:>7,}  validation {scores}{mark}")
                if self.minutes and progress.seconds > 60 * self.minutes:
                    steps.close()
        best = ", ".join(f"{name} {100 * value:.2f}%" for name, value in run.state.best.items())
        word = "Done" if run.state.finished else f"Stopped after {self.minutes:g} minutes"
        print(f"{word}: {run.state.episode:,} episodes. Best validation: {best or 'none was made'}.")
        print(f"Saved in {self.out}. Next: handful evaluate {self.out}")
        return 0

    def _recipe(self) -> Recipe:
        return dataclasses.replace(self.recipe, options={**self.recipe.options, **parse_options(self.set)})
