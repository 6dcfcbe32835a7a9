"""`handful train` and `handful demo`: meta-training, with a progress bar or a log line per validation."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Suppress, arg

from handful.cli.machine import HANGUP, STOPPING, let_go_of_the_terminal, prepare
from handful.errors import InvalidOptionError
from handful.meta.config import Device, Option, Precision, Recipe, Reduce, differences, less_patient, prolongs

if TYPE_CHECKING:
    from handful.meta.manifest import Record
    from handful.meta.run import Run
    from handful.meta.train import Progress


@dataclass(frozen=True)
class RecipeFlags(Recipe):
    """The recipe to train; give the learner's options with --set."""

    options: Annotated[Mapping[str, Option], Suppress] = field(default_factory=dict)


def flags_of(recipe: Recipe) -> RecipeFlags:
    """The recipe as flag defaults."""
    return RecipeFlags(**_values(recipe))


def _values(recipe: Recipe) -> dict[str, Any]:
    return {each.name: getattr(recipe, each.name) for each in dataclasses.fields(Recipe)}


@dataclass(frozen=True)
class Train:
    """Meta-train an embedding and a learner on episodes; stop at any time and continue with --resume."""

    out: Path
    """Folder for the run: its recipe, log and checkpoints."""
    recipe_name: Annotated[str, arg(name="recipe")] = ""
    """Start from a named recipe (`handful recipes` lists them); other flags override its values."""
    recipe: Annotated[RecipeFlags, OmitArgPrefixes] = field(default_factory=RecipeFlags)
    set: tuple[str, ...] = ()
    """Options of the learner as name=value, for example: --set lam=10 learn_lam=true."""
    resume: bool = False
    """Continue the run in --out with its own recipe; with the same --threads, the result has the same bits.
    A larger --episodes or --patience extends the run, even a finished one."""
    minutes: float = 0.0
    """Save and stop after this many minutes; 0 means no limit."""
    save_every: int = 500
    """Episodes between checkpoints (each validation saves one too)."""
    tensorboard: bool = False
    """Also write TensorBoard event files to the run's folder; log.jsonl is always written."""
    device: Device = "auto"
    """Device to compute on."""
    threads: int = 0
    """Number of threads; 0 for one per core."""
    precision: Precision = "float32"
    """Precision of the embedding: float32, tf32 (CUDA convolutions only) or bf16. It does not affect learners."""
    compile: bool = False
    """Compile the embedding with torch.compile, which takes a minute and makes steps faster."""
    reduce: Reduce = "ordered"
    """How torchrun's processes sum the gradients of several episodes per step: ordered (same bits with any number of
    processes) or fast (all-reduce)."""

    def run(self) -> int:
        """Train with a progress bar on a terminal, then print the best scores and where the run is."""
        from handful.meta.engine import restarted
        from handful.meta.lock import held
        from handful.meta.run import RECIPE, Run, benchmark_of, read_recipe
        from handful.meta.tracking import event_writer

        engine = prepare(self.device, self.threads, self.precision, self.reduce, self.compile)
        resuming = self.resume or (restarted() and (self.out / RECIPE).exists())
        recipe = self._resumed(read_recipe(self.out)) if resuming else self._recipe()
        if not self.minutes >= 0:
            raise InvalidOptionError(f"--minutes must not be negative, but got {self.minutes}.")
        if self.tensorboard:
            event_writer()
        run = Run(self.out, recipe, benchmark_of(recipe, recorded=resuming), engine)
        with held(self.out) if engine.leads else nullcontext():
            run.resume() if resuming else run.start()
            return self._train(run) if engine.leads else self._follow(run)

    def _resumed(self, old: Recipe) -> Recipe:
        """The recipe to continue with: that of the run, or the same for more episodes."""
        if not self.resume:  # torchrun restarted a new run with its original arguments
            return old
        new = self._recipe()
        if prolongs(old, new):
            return new
        refused = set(differences(old, new)) - {"episodes", "patience"}
        if refused:
            raise InvalidOptionError(
                f"The run in {self.out} has different values for {' and '.join(sorted(refused))}. --resume continues "
                f"with the recipe of the run: leave these flags out, or start a new run with another --out."
            )
        before, now = old.plan.episodes, new.plan.episodes
        if now < before:
            raise InvalidOptionError(
                f"The run in {self.out} is planned for {before:,} episodes and can be made longer, but not shorter "
                f"({now:,}). Stop it with Ctrl-C or --minutes."
            )
        if less_patient(old.plan, new.plan):
            raise InvalidOptionError(
                f"The run in {self.out} has --patience {old.plan.patience} (0 is no limit), which can be raised or "
                f"turned off, but not lowered to {new.plan.patience}. To end the run, use Ctrl-C or --minutes."
            )
        raise InvalidOptionError(
            f"The run in {self.out} cannot be extended from {before:,} to {now:,} episodes: {old.plan.fixed_length}, "
            f"so a longer run would have trained differently from the start. Start a new one with another --out."
        )

    def _train(self, run: Run) -> int:
        from handful.errors import DivergedError
        from handful.meta.manifest import record_by_hand

        recipe, record = run.recipe, record_by_hand(run, self._name(run.recipe))
        print(f"{recipe.learner} on {recipe.data}: {run.state.episode:,} of {recipe.plan.episodes:,} episodes so far")
        try:
            with stop_requests() as requests:
                self._show(run, record, requests)
        except DivergedError as error:
            record.fail(error)
            raise
        record.write()
        best = ", ".join(f"{name} {100 * value:.2f}%" for name, value in run.state.best.items())
        word = "Done" if run.state.finished else "Stopped"
        print(f"{word}: {run.state.episode:,} episodes. Best validation: {best or 'none was made'}.")
        onwards = f"handful evaluate {self.out}" if run.state.finished else f"handful train --out {self.out} --resume"
        print(f"Saved in {self.out}. Next: {onwards}")
        return 128 + requests[0] if requests else 0

    def _show(self, run: Run, record: Record, requests: list[int]) -> None:
        """Train to the end or until a request to stop, with a progress bar; each validation updates the record."""
        from tqdm import tqdm

        total = run.recipe.plan.episodes
        with (
            self._tracked(run) as track,
            tqdm(total=total, initial=run.state.episode, unit="ep", dynamic_ncols=True, disable=None) as bar,
        ):
            for progress in (steps := run.train(self.save_every)):
                track(progress)
                bar.update(progress.episode - bar.n)
                bar.set_postfix(loss=f"{progress.loss:.3f}", acc=f"{100 * progress.accuracy:.0f}%", refresh=False)
                if progress.scores:
                    bar.write(validation_line(progress))
                    record.write()
                if run.engine.anyone(self._over(requests, progress)):
                    steps.close()

    def _follow(self, run: Run) -> int:
        """Compute this process's share of every update; only the first process prints and writes."""
        with stop_requests() as requests:
            for progress in (steps := run.train(self.save_every)):
                if run.engine.anyone(self._over(requests, progress)):
                    steps.close()
        return 128 + requests[0] if requests else 0

    def _over(self, requests: list[int], progress: Progress) -> bool:
        return bool(requests) or bool(self.minutes and progress.seconds > 60 * self.minutes)

    def _tracked(self, run: Run) -> AbstractContextManager[Callable[[Progress], object]]:
        """A function that sends progress to TensorBoard, or does nothing without --tensorboard."""
        from handful.meta.tracking import tensorboard

        return tensorboard(run.folder) if self.tensorboard else nullcontext(lambda progress: None)

    def _name(self, recipe: Recipe) -> str:
        """The recipe's name, if no flag changed anything but its seed."""
        from handful.paper.recipes import NAMED

        named = NAMED.get(self.recipe_name)
        same = named is not None and named.recipe == dataclasses.replace(recipe, seed=named.recipe.seed)
        return self.recipe_name if same else ""

    def _recipe(self) -> Recipe:
        values = _values(self.recipe)
        return Recipe(**{**values, "options": {**values["options"], **parse_options(self.set)}})


def parse_options(pairs: tuple[str, ...]) -> dict[str, Option]:
    """Learner options from arguments like `lam=10` or `learn_lam=true`."""
    return dict(_parse_option(pair) for pair in pairs)


def _parse_option(pair: str) -> tuple[str, Option]:
    key, found, value = pair.partition("=")
    if not found or not key or not value:
        raise InvalidOptionError(f"A learner option is written name=value, for example lam=10, but got '{pair}'.")
    if value.lower() in ("true", "false"):
        return key, value.lower() == "true"
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, value


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGHUP in a list instead of interrupting, so that a run can stop between updates.

    A second signal interrupts at once.
    """
    requests: list[int] = []

    def note(number: int, frame: object) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        if number == HANGUP:
            let_go_of_the_terminal()

    wanted = [each for each in STOPPING if signal.getsignal(each) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {each: signal.signal(each, note) for each in wanted}
    try:
        yield requests
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def watched(name: str, total: int, steps: Iterator[Progress]) -> Iterable[Progress]:
    """Yield the progress of training `name` for `total` episodes, and show it on the way.

    On a terminal it shows a progress bar; elsewhere it prints a line per validation, so that a log shows signs of life.
    """
    from tqdm import tqdm

    with tqdm(total=total, desc=name, unit="ep", dynamic_ncols=True, disable=None) as bar:
        for progress in steps:
            bar.update(progress.episode - bar.n)
            if progress.scores:
                scores = " ".join(f"{100 * value:.1f}%" for value in progress.scores.values())
                bar.set_postfix(loss=f"{progress.loss:.2f}", val=scores, refresh=False)
                if bar.disable:
                    print(f"{name}: {validation_line(progress)}", flush=True)
            yield progress


def validation_line(progress: Progress) -> str:
    """The result of a validation on one line: the episode, each score, and whether the mean is the best so far."""
    scores = "  ".join(f"{name} {100 * value:.2f}%" for name, value in (progress.scores or {}).items())
    mark = "  best so far" if "mean" in progress.improved else ""
    return f"episode {progress.episode:>7,}  validation {scores}{mark}"


@dataclass(frozen=True)
class Demo:
    """Meta-train R2-D2 on drawn characters, test it on unseen alphabets and write an HTML report (3 minutes)."""

    out: Path = Path("runs/demo")
    """Folder for the trained models and the report."""
    episodes: int = 10_000
    """Test episodes for each number of ways and shots."""
    train_episodes: int = 300
    """Training episodes for each method."""
    seed: int = 0
    """Seed for weights and episodes."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Run the demonstration and print where the report is."""
        from handful.cli.demonstration import demonstrate

        prepare("cpu", self.threads)
        report = demonstrate(self.out, self.episodes, self.train_episodes, self.seed, watched, print)
        print(f"\nReport: {report.resolve().as_uri()}")
        print(f"Next:   handful evaluate {self.out / 'r2d2'} --way 20 --shot 1 5")
        return 0
