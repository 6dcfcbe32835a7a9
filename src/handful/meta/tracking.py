"""Send `Progress` to experiment trackers, in addition to a run's own `log.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from handful.errors import InvalidOptionError
from handful.meta.train import Progress


def event_writer() -> type[Any]:
    """TensorBoard's event writer. Call this before a run starts, so that a missing package leaves no folder behind."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InvalidOptionError(
            "TensorBoard is not installed. Install it: pip install 'handful[tensorboard]'."
        ) from error
    return SummaryWriter


@contextmanager
def tensorboard(folder: Path | str) -> Iterator[Callable[[Progress], None]]:
    """A function that writes each `Progress` to TensorBoard's event files in `folder`."""
    with event_writer()(folder) as writer:

        def record(progress: Progress) -> None:
            values = {"train/loss": progress.loss, "train/accuracy": progress.accuracy, "train/rate": progress.rate}
            values |= {f"validation/{name}": score for name, score in (progress.scores or {}).items()}
            for name, value in values.items():
                writer.add_scalar(name, value, progress.episode)

        yield record
