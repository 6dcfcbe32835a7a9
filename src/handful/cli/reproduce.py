"""`handful reproduce` and `handful recipes`: the experiments of the paper, and the named recipes."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.cli.train import watched
from handful.errors import InvalidOptionError
from handful.meta.config import Device
from handful.paper.recipes.own import Schedule, Variant, Width

if TYPE_CHECKING:
    from handful.meta.engine import Engine
    from handful.paper.reproduce import Options


Target = Literal[
    "table1",
    "table2",
    "table3",
    "table4",
    "figure-iterations",
    "figure-hyperparameters",
    "appendix-a",
    "ablation",
    "beyond",
    "estimates",
    "verify",
    "queue",
    "status",
]

WITH_PATH = ("verify", "queue")


@dataclass(frozen=True)
class Reproduce:
    """Reproduce a table or figure of the paper: train its runs, test them and compare with the published numbers."""

    target: Positional[Target]
    """The table or figure to reproduce, or one of these:
    `estimates` measures how long all of them would take, without training;
    `verify PATH` recomputes every figure of the reports in a folder from their per-episode counts;
    `queue FILE` runs a file with one `handful reproduce` command per line;
    `status` shows the progress of all runs in --out."""
    path: Positional[Path | None] = None
    """For `verify`, a report or a folder of reports; for `queue`, the file of commands."""
    budget: float = 0.0
    """Total minutes of training, shared among the runs; the next call continues them. 0 means no limit.
    With --on, each run gets this time."""
    until: Literal["complete", "end", "now"] = "complete"
    """When a run stops: once it is complete, or only at the end of its plan. `now` trains nothing, tests what exists.
    It is complete after its last episode, when patience runs out, or past 99.5% of a step schedule's summed rate."""
    only: tuple[str, ...] = ()
    """Only rows or columns whose name contains one of these, for example: --only cifar-fs/r2d2-64C."""
    variant: tuple[Variant, ...] = ()
    """Which recipes to train: the paper's text, the authors' code, or modern training; several give several rows.
    By default authors, or modern for `beyond`."""
    seeds: int = 1
    """Number of training runs per recipe, with consecutive seeds starting at --first-seed."""
    first_seed: int = 0
    """Seed of the first run; use it to train seeds on different machines, each with its own report."""
    out: Path = Path("runs/reproduce")
    """Folder for the runs and the report; tables share their runs."""
    dry_run: bool = False
    """Train nothing, but list every row with the time it still needs, or why it cannot run now."""
    episodes: int = 0
    """Stop every run after this many episodes and end cosine schedules there; the report says so. 0 means no limit."""
    episodes_of: tuple[str, ...] = ()
    """Another number of episodes for recipes whose name contains WORD, given as WORD=N: maml=200 lrd2=900."""
    width: Width | None = None
    """Embedding to use instead of the recipes'; the report says so."""
    schedule: Schedule | None = None
    """Learning rate schedule to use instead of the recipes'; the report says so. cosine suits short runs."""
    validate_every: int | None = None
    """Episodes between validations, instead of the recipes' number; 0 for none, which saves time in short runs."""
    test_episodes: int = 10_000
    """Number of test episodes for each column."""
    test_episodes_of: tuple[str, ...] = ()
    """Test slow methods on the first N episodes only, given as WORD=N: maml=500, because MAML takes a second each."""
    checkpoint: Literal["shot", "mean", "last"] = "shot"
    """Checkpoint to test: the best on validation for each shot (as the authors do), for the mean of them, or last."""
    device: Device = "auto"
    """Device to compute on."""
    threads: int = 0
    """Number of threads; 0 for one per core."""
    wait: bool = False
    """Wait for runs that another process is training, instead of leaving them out."""
    processes: int = 1
    """For `queue`, the number of commands to run at the same time; if more than one, each gets one thread."""
    on: str = ""
    """Train each run as a separate job: local:N for N at a time on this machine, or slurm."""

    def run(self) -> int:
        """Run the target, or estimate its time with --dry-run."""
        self._check()
        alone = {"verify": self._verify, "queue": self._queue, "status": self._status}
        if self.target in alone:
            return alone[self.target]()
        engine = prepare(self.device, self.threads)
        if self.target == "table4":
            return self._timing()
        if self.target == "estimates":
            return self._estimates(engine)
        return self._forecast(engine) if self.dry_run else self._reproduce(engine)

    def _check(self) -> None:
        if self.path is not None and self.target not in WITH_PATH:
            raise InvalidOptionError(
                f"{self.target} takes no path, but got {self.path}. Use --out to say where to write."
            )
        for name in ("budget", "episodes", "validate_every", "first_seed"):
            value = getattr(self, name) or 0
            if value < 0:
                raise InvalidOptionError(f"--{name.replace('_', '-')} must not be negative, but got {value:g}.")
        if self.seeds < 1 or self.test_episodes < 2:
            raise InvalidOptionError(
                f"--seeds must be at least 1 and --test-episodes at least 2, but got {self.seeds} and "
                f"{self.test_episodes}."
            )

    def _verify(self) -> int:
        from handful.paper.verify import reports_below, verify

        verified = [verify(path) for path in reports_below(self.path or self.out)]
        for each in verified:
            _say(str(each))
        wrong, excused = (sum(bool(getattr(each, word)) for each in verified) for word in ("complaint", "excuse"))
        same, figures = len(verified) - wrong - excused, sum(each.figures for each in verified)
        _say(f"Reports: {same} recomputed ({figures:,} figures), {excused} without counts, {wrong} wrong.")
        return 2 if wrong else 0

    def _queue(self) -> int:
        from handful.paper.queue import work_off

        if self.path is None or self.processes < 1:
            raise InvalidOptionError("queue needs a file of commands, and --processes must be at least 1.")
        failed = work_off(self.path, self.processes, self.out, _say)
        _say(f"{failed} jobs failed; start the queue again to retry them." if failed else "All jobs are done.")
        return 2 if failed else 0

    def _status(self) -> int:
        from handful.paper.queue import runs_below

        found = runs_below(self.out)
        for each in found:
            _say(str(each))
        complete, running = sum(s.completion.complete for s in found), sum(bool(s.holder) for s in found)
        _say(f"{len(found)} runs in {self.out}: {complete} complete, {running} running.")
        return 0

    def _reproduce(self, engine: Engine) -> int:
        from handful.paper.experiments import EXPERIMENTS, narrowed
        from handful.paper.report import summary, write_report
        from handful.paper.reproduce import plan_cells, reproduce
        from handful.paper.weights import keep_weights

        experiment = narrowed(EXPERIMENTS[self.target], self.only)
        options = self._options(engine)
        if self.on:
            from handful.paper.reproduce import train_on

            train_on(self.on, [job for _, own in plan_cells(experiment, options) for job in own], options, _say)
            options = replace(options, until="now")
        results = reproduce(experiment, options, _command(), _say, watched)
        for path in (*write_report(results, self.out), *keep_weights(results, self.out)):
            _say(f"Written to {path}")
        _say(summary(results))
        return 0

    def _options(self, engine: Engine) -> Options:
        from handful.paper.jobs import Departures
        from handful.paper.reproduce import Options

        return Options(
            out=self.out,
            variants=self.variant,
            seeds=range(self.first_seed, self.first_seed + self.seeds),
            minutes=self.budget,
            until=self.until,
            wait=self.wait,
            departures=Departures(
                self.episodes,
                tuple(_pair("--episodes-of", pair) for pair in self.episodes_of),
                self.width,
                self.schedule,
                self.validate_every,
            ),
            test_episodes=self.test_episodes,
            test_episodes_of=tuple(_pair("--test-episodes-of", pair, least=2) for pair in self.test_episodes_of),
            checkpoint=self.checkpoint,
            engine=engine,
        )

    def _forecast(self, engine: Engine) -> int:
        from handful.paper.experiments import EXPERIMENTS, narrowed
        from handful.paper.forecast import forecast

        for line in forecast(narrowed(EXPERIMENTS[self.target], self.only), self._options(engine)):
            _say(line)
        return 0

    def _estimates(self, engine: Engine) -> int:
        from handful.paper.cost import price_all, write_estimates

        priced = price_all(self._options(engine), self.only, _say)
        for path in write_estimates(priced, self.out, _command()):
            _say(f"Written to {path}")
        return 0

    def _timing(self) -> int:
        from handful.paper.cost import duration
        from handful.paper.table4 import ROWS, time_rows, write_timing

        rows = [row for row in ROWS if not self.only or any(word.lower() in row.lower() for word in self.only)]
        if not rows:
            raise InvalidOptionError(
                f"No row of table4 contains {' or '.join(self.only)}. Its rows: {', '.join(ROWS)}."
            )
        seconds = 60 * self.budget / (2 * len(rows)) if self.budget else float("inf")
        if self.dry_run:
            _say(
                f"Table 4: {len(rows)} rows on random images (no data set is needed), extrapolated from a few episodes:"
            )
            timed = time_rows(rows, 0.5, _say, both=False)
            whole = duration(sum(each.by_episode.seconds for each in timed))
            _say(f"In total: {whole} episode by episode, and less for the second way, which embeds each image once.")
            return 0
        for path in write_timing(time_rows(rows, seconds, _say), self.out, _command()):
            _say(f"Written to {path}")
        return 0


def _pair(flag: str, words: str, least: int = 1) -> tuple[str, int]:
    word, _, number = words.rpartition("=")
    if not word or not number.isdecimal() or int(number) < least:
        raise InvalidOptionError(
            f"{flag} takes WORD=N with N at least {least}, for example maml=200, but got '{words}'."
        )
    return word, int(number)


def _say(line: str) -> None:
    print(line, flush=True)


def _command() -> str:
    return shlex.join(["handful", *sys.argv[1:]])


@dataclass(frozen=True)
class Recipes:
    """List the named recipes; train one with: handful train --recipe NAME --out FOLDER."""

    words: Positional[tuple[str, ...]] = ()
    """Only recipes whose name contains all of these words, for example: handful recipes cifar-fs r2d2 authors."""
    show: str = ""
    """Show every value of this recipe and its source: the paper's text, released code, or our choice."""

    def run(self) -> int:
        """Print one line per recipe, or one per value of a recipe."""
        return _show(self.show) if self.show else _list(self.words)


def _list(words: tuple[str, ...]) -> int:
    from handful.errors import InvalidOptionError
    from handful.paper.recipes import NAMED

    chosen = {name: entry for name, entry in NAMED.items() if all(word.lower() in name.lower() for word in words)}
    if not chosen:
        raise InvalidOptionError(
            f"No recipe's name contains {' and '.join(map(repr, words))}. `handful recipes` lists all {len(NAMED)}."
        )
    width = max(map(len, chosen))
    for name, entry in chosen.items():
        recipe = entry.recipe
        size = recipe.way * recipe.images_per_class
        print(f"{name:<{width}}  {entry.about}; {recipe.way}-way episodes of {size} images")
    more = "" if words else " To list fewer, give words of their names, for example: handful recipes cifar-fs r2d2"
    print(f"{len(chosen)} of {len(NAMED)} recipes.{more}")
    return 0


def _show(name: str) -> int:
    from handful.learners.registry import default_options
    from handful.paper.recipes import NAMED, named_recipe
    from handful.paper.recipes.provenance import values_of

    recipe = named_recipe(name)
    rows = [(v.field, _written(v.value), v.source) for v in values_of(NAMED[name], default_options(recipe.learner))]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    print(f"{name}: {NAMED[name].about}")
    for field, value, source in rows:
        print(f"  {field:<{widths[0]}}  {value:<{widths[1]}}  {source}")
    return 0


def _written(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value) or "-"
