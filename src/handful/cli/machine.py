"""Device and threads as flags, without importing torch before they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from handful.meta.engine import Engine

Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "tf32", "bf16"]
Reduce = Literal["ordered", "fast"]


def prepare(
    device: Device = "auto",
    threads: int = 0,
    precision: Precision = "float32",
    reduce: Reduce = "ordered",
    compiled: bool = False,
) -> Engine:
    """The engine that the flags ask for."""
    from handful.meta import engine

    return engine.prepare(device, threads, precision=precision, reduce=reduce, compiled=compiled)
