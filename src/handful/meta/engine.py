"""Where and how to compute: device and processes as one value, decided once and passed down."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field

import torch

from handful.errors import InvalidOptionError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1
_LARGEST_BLOCK, _LARGEST_BLOCK_OF_OLD = 2**30, 32 * 2**20


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory for the next allocation; whether it could be told.

    By default glibc hands blocks of more than 32 MB back to the system as soon as they are freed, and so every training
    step faults in and zeroes its activations again, tens of thousands of pages. Call this once, at the start of a
    program: steps become up to twice as fast, and the process keeps the most memory that it ever used. The command line
    does so by itself. On systems without glibc (macOS, Windows, musl) nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 (musl has a mallopt that does nothing, but not this)
        mallopt = library.mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    # older glibc refuses a threshold above 32 MB
    kept = mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK) or mallopt(_MMAP_THRESHOLD, _LARGEST_BLOCK_OF_OLD)
    return bool(kept and mallopt(_TRIM_THRESHOLD, _NEVER))


@dataclass(frozen=True)
class Engine:
    """The device to compute on, and this process's place among those that share the work."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rank: int = 0
    """The number of this process."""
    world: int = 1
    """How many processes share the work."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise InvalidOptionError(f"Process {self.rank} of {self.world} does not exist; they are numbered from 0.")


CPU = Engine()


def prepare(device: str = "auto", threads: int = 0) -> Engine:
    """The engine of a program: sets the number of threads (0: torch's choice) and keeps freed memory from here on.

    `device` is auto (CUDA if there is one, else the CPU), or the name of a device that torch can use here.
    """
    keep_freed_memory()
    if threads < 0:
        raise InvalidOptionError(f"threads must be 0 (all cores) or more, but got {threads}.")
    if threads:
        torch.set_num_threads(threads)
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return Engine(torch.device("cuda" if usable["cuda"] else "cpu"))
    if not usable.get(device, False):
        raise InvalidOptionError(
            f"This machine has no {device.upper()} device that torch can use. Leave --device at auto or cpu."
        )
    return Engine(torch.device(device))
