"""`handful reproduce`: a table or figure of the paper, beside its published numbers."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from handful.cli.machine import Device, prepare
from handful.cli.progress import watched
from handful.errors import InvalidOptionError
from handful.recipes.settings import Variant

if TYPE_CHECKING:
    import torch

    from handful.reproduce.conduct import Options

Target = Literal[
    "table1",
    "table2",
    "table3",
    "table4",
    "figure-iterations",
    "figure-hyperparameters",
    "appendix-a",
    "ablation",
    "estimates",
]


@dataclass(frozen=True)
class Reproduce:
    """Train what a table or figure of the paper needs, test it on the same episodes, and compare with the print."""

    target: Positional[Target]
    """Which table or figure; `estimates` measures what the runs of all of them would take, and trains nothing."""
    budget: float = 0.0
    """Minutes to train for in all, shared out among the runs; they go on next time. 0: until all are complete."""
    only: tuple[str, ...] = ()
    """Only rows or columns whose name contains one of these, for example: --only cifar-fs/r2d2-64C."""
    variant: tuple[Variant, ...] = ("authors",)
    """What to train by: the paper's text, its authors' code, or what is known today; several give several rows."""
    seeds: int = 1
    """Training runs of each recipe, from seeds 0, 1, ..."""
    out: Path = Path("runs/reproduce")
    """Folder for the runs and the report; runs are shared between tables."""
    dry_run: bool = False
    """Train nothing: list the runs with the time that they would take, from a short measurement."""
    episodes: int = 0
    """Cut every run short at so many episodes, and say so in the report; a cosine schedule ends there. 0: no cut."""
    episodes_of: tuple[str, ...] = ()
    """Another cut for recipes whose name contains a word, as WORD=N, for example: --episodes-of maml=200 lrd2=900."""
    width: Literal["32C", "64C", "wide"] | None = None
    """Another embedding than the recipes', and say so in the report."""
    schedule: Literal["step", "cosine", "constant"] | None = None
    """Another course of the learning rate than the recipes', and say so in the report; cosine suits short runs."""
    validate_every: int | None = None
    """Episodes between two validations, in place of the recipes'; 0 for none, which saves time in short runs."""
    test_episodes: int = 10_000
    """Test episodes of each column."""
    test_episodes_of: tuple[str, ...] = ()
    """Only the first N of them for recipes whose name contains a word, as WORD=N: MAML takes a second for each."""
    checkpoint: Literal["shot", "mean", "last"] = "shot"
    """What to test: the best on validation for the number of shots (as the authors), for the mean, or the last."""
    device: Device = "auto"
    """Where to compute."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Do it, or say what it would take."""
        for name in ("budget", "episodes", "validate_every"):
            value = getattr(self, name) or 0
            if value < 0:
                raise InvalidOptionError(f"--{name.replace('_', '-')} must not be negative, but got {value:g}.")
        if self.seeds < 1 or self.test_episodes < 2:
            raise InvalidOptionError(
                f"--seeds must be at least 1 and --test-episodes at least 2, but got {self.seeds} and "
                f"{self.test_episodes}."
            )
        device = prepare(self.device, self.threads).device
        if self.target == "table4":
            return self._timing()
        if self.target == "estimates":
            return self._estimates(device)
        return self._estimate(device) if self.dry_run else self._conduct(device)

    def _conduct(self, device: torch.device) -> int:
        from handful.reproduce.conduct import conduct
        from handful.reproduce.experiments import EXPERIMENTS, narrowed
        from handful.reproduce.tables import summary
        from handful.reproduce.write import write_report

        experiment = narrowed(EXPERIMENTS[self.target], self.only)
        results = conduct(experiment, self._options(device), _command(), _say, watched)
        for path in write_report(results, self.out):
            _say(f"Written to {path}")
        _say(summary(results))
        return 0

    def _options(self, device: torch.device) -> Options:
        from handful.reproduce.conduct import Options
        from handful.reproduce.jobs import Departures

        return Options(
            out=self.out,
            variants=self.variant,
            seeds=self.seeds,
            minutes=self.budget,
            departures=Departures(
                self.episodes,
                tuple(_pair("--episodes-of", pair) for pair in self.episodes_of),
                self.width,
                self.schedule,
                self.validate_every,
            ),
            test_episodes=self.test_episodes,
            test_episodes_of=tuple(_pair("--test-episodes-of", pair) for pair in self.test_episodes_of),
            checkpoint=self.checkpoint,
            device=device,
        )

    def _estimate(self, device: torch.device) -> int:
        from handful.reproduce.experiments import EXPERIMENTS, narrowed
        from handful.reproduce.forecast import forecast

        for line in forecast(narrowed(EXPERIMENTS[self.target], self.only), self._options(device)):
            _say(line)
        return 0

    def _estimates(self, device: torch.device) -> int:
        from handful.reproduce.estimates import price_all, write_estimates

        priced = price_all(self._options(device), self.only, _say)
        for path in write_estimates(priced, self.out, _command()):
            _say(f"Written to {path}")
        return 0

    def _timing(self) -> int:
        from handful.reproduce.timing import ROWS, time_rows
        from handful.reproduce.timing_report import write_timing

        rows = tuple(
            row for row in ROWS if not self.only or any(word.lower() in row.label.lower() for word in self.only)
        )
        if not rows:
            raise InvalidOptionError(f"No row of table4 matches. Its rows: {', '.join(row.label for row in ROWS)}.")
        seconds = 60 * self.budget / (2 * len(rows)) if self.budget else float("inf")
        if self.dry_run:
            _say("A few episodes of each row, scaled up:")
            time_rows(rows, 1.0, _say)
            return 0
        for path in write_timing(time_rows(rows, seconds, _say), self.out, _command()):
            _say(f"Written to {path}")
        return 0


def _pair(flag: str, words: str) -> tuple[str, int]:
    word, _, number = words.rpartition("=")
    if not word or not number.isdecimal() or not int(number):
        raise InvalidOptionError(f"{flag} takes WORD=N, for example maml=200, but got '{words}'.")
    return word, int(number)


def _say(line: str) -> None:
    print(line, flush=True)


def _command() -> str:
    return shlex.join(["handful", *sys.argv[1:]])
