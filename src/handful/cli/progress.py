"""A progress bar over a training run, for commands that train more than one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from handful.training import Progress


def watched(name: str, total: int, steps: Iterator[Progress]) -> Iterable[Progress]:
    """Show the training of `name` for `total` episodes on a terminal while passing its progress on."""
    from tqdm import tqdm

    with tqdm(total=total, desc=name, unit="ep", dynamic_ncols=True, disable=None) as bar:
        for progress in steps:
            bar.update(progress.episode - bar.n)
            if progress.scores:
                scores = " ".join(f"{100 * value:.1f}%" for value in progress.scores.values())
                bar.set_postfix(loss=f"{progress.loss:.2f}", val=scores, refresh=False)
            yield progress
