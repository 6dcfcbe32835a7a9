"""`handful demo`: the whole path in three minutes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from handful.cli.machine import prepare

if TYPE_CHECKING:
    from handful.training import Progress


@dataclass(frozen=True)
class Demo:
    """Meta-train R2-D2 on drawn characters, evaluate it on unseen alphabets, write an HTML report (3 minutes)."""

    out: Path = Path("runs/demo")
    """Folder for the trained models and the report."""
    episodes: int = 10_000
    """Test episodes of each kind."""
    train_episodes: int = 300
    """Episodes to meta-train for, each method."""
    seed: int = 0
    """Seed of weights and episodes."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Run it and say where the report is."""
        from handful.demo import demonstrate

        prepare("cpu", self.threads)
        report = demonstrate(self.out, self.episodes, self.train_episodes, self.seed, _watch, print)
        print(f"\nReport: {report.resolve().as_uri()}")
        print(f"Next:   handful evaluate {self.out / 'r2d2'} --way 20 --shot 1 5")
        return 0


def _watch(name: str, total: int, steps: Iterator[Progress]) -> Iterable[Progress]:
    from tqdm import tqdm

    with tqdm(total=total, desc=f"Training {name}", unit="ep", dynamic_ncols=True, disable=None) as bar:
        for progress in steps:
            bar.update(progress.episode - bar.n)
            if progress.scores:
                bar.set_postfix(
                    loss=f"{progress.loss:.2f}", val=f"{100 * progress.scores['1-shot']:.1f}%", refresh=False
                )
            yield progress
