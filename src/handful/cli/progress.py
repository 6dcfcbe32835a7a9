"""A progress bar over a training run, for commands that train more than one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handful.meta.train import Progress


def watched(name: str, total: int, steps: Iterator[Progress]) -> Iterable[Progress]:
    """Show the training of `name` for `total` episodes while passing its progress on.

    A bar on a terminal; a line per validation elsewhere, so that a log shows that a long run is alive.
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
    """What a validation gave, as a line: the episode, each score, and whether the mean is the best so far."""
    scores = "  ".join(f"{name} {100 * value:.2f}%" for name, value in (progress.scores or {}).items())
    mark = "  best so far" if "mean" in progress.improved else ""
    return f"episode {progress.episode:>7,}  validation {scores}{mark}"
