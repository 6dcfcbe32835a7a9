"""`handful demo`: the whole path in three minutes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from handful.cli.machine import prepare
from handful.cli.progress import watched


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
        from handful.cli.demonstration import demonstrate

        prepare("cpu", self.threads)
        report = demonstrate(self.out, self.episodes, self.train_episodes, self.seed, watched, print)
        print(f"\nReport: {report.resolve().as_uri()}")
        print(f"Next:   handful evaluate {self.out / 'r2d2'} --way 20 --shot 1 5")
        return 0
