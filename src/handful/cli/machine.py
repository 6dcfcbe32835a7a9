"""The one place that decides on device, threads and memory; all else follows the tensors it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from handful.allocator import keep_freed_memory
from handful.errors import InvalidOptionError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda", "mps"]


def prepare(device: Device = "auto", threads: int = 0) -> torch.device:
    """Set the number of threads (0: torch's choice) and give the device (auto: CUDA if there is one, else the CPU).

    Freed memory stays in the process from here on.
    """
    import torch

    keep_freed_memory()

    if threads < 0:
        raise InvalidOptionError(f"threads must be 0 (all cores) or more, but got {threads}.")
    if threads:
        torch.set_num_threads(threads)
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidOptionError("This machine has no CUDA device that torch can use. Leave --device at auto or cpu.")
    if device == "mps" and not torch.backends.mps.is_available():
        raise InvalidOptionError("This machine has no MPS device that torch can use. Leave --device at auto or cpu.")
    return torch.device(device)
