"""Device and threads as flags, without importing torch before they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from handful.meta.engine import Engine

Device = Literal["auto", "cpu", "cuda", "mps"]


def prepare(device: Device = "auto", threads: int = 0) -> Engine:
    """The engine that the flags ask for."""
    from handful.meta import engine

    return engine.prepare(device, threads)
