"""Where and how to compute: device, precision and processes as one value, decided once and passed down."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from handful.errors import InvalidOptionError
from handful.meta.config import Precision, Reduce

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_NEVER = 2**31 - 1
_LARGEST_BLOCK, _LARGEST_BLOCK_OF_OLD = 2**30, 32 * 2**20


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory for the next allocation; returns whether that worked.

    By default glibc returns blocks of more than 32 MB to the system as soon as they are freed, so every training step
    faults in and zeroes tens of thousands of pages again. Call this once, at the start of a program: steps become up to
    twice as fast, and the process keeps the most memory that it has ever used. The command line does this itself. On
    systems without glibc (macOS, Windows, musl) nothing happens.
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


READ_EVERY = 20
"""Updates between two reads of the loss on an accelerator, because each read waits for the device."""
PREFETCH = 2
"""Episodes that are prepared ahead while an accelerator computes."""


@dataclass(frozen=True)
class Engine:
    """The device and precision to compute with, and this process's rank among those that share the work."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rank: int = 0
    """The number of this process."""
    world: int = 1
    """How many processes share the work."""
    precision: Precision = "float32"
    """Precision of the embedding: tf32 for its convolutions on CUDA, or bf16 by autocast. Solvers are not affected."""
    reduce: Reduce = "ordered"
    """ordered sums gradients in an order that does not depend on the number of processes; fast is an all-reduce."""
    compiled: bool = False
    """Whether the embedding is compiled with torch.compile for training."""
    read_every: int = 1
    """Updates between two reads of the loss; if more than one, the updates in between do not wait for the device."""
    prefetch: int = 0
    """Episodes to prepare ahead in a thread."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise InvalidOptionError(f"Process {self.rank} of {self.world} does not exist; they are numbered from 0.")

    @property
    def leads(self) -> bool:
        """Whether this is the process that prints and writes files."""
        return self.rank == 0

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which the embedding runs."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.precision == "bf16" else nullcontext()

    def widened(self, features: Tensor) -> Tensor:
        """Half-precision features converted to float32, as solvers need them."""
        return features.float() if self.precision == "bf16" else features

    def share(self, count: int, what: str) -> range:
        """This process's consecutive part of `count` work items, which must divide evenly."""
        if count % self.world:
            raise InvalidOptionError(
                f"{count} {what} cannot be divided evenly among {self.world} processes. Make it a multiple of "
                f"{self.world}, or start a different number of processes."
            )
        each = count // self.world
        return range(self.rank * each, (self.rank + 1) * each)

    def gathered(self, mine: Tensor) -> Tensor:
        """The tensors of all processes, of equal shapes, concatenated along the first dimension in order of rank."""
        if self.world == 1:
            return mine
        whole = mine.new_empty(self.world * len(mine), *mine.shape[1:])
        into = getattr(torch.distributed, "all_gather_single", None) or torch.distributed.all_gather_into_tensor
        into(whole, mine.contiguous())
        return whole

    def total(self, mine: Tensor) -> Tensor:
        """The sum of the tensors of all processes, computed in place."""
        if self.world > 1:
            torch.distributed.all_reduce(mine)
        return mine

    def anyone(self, flag: bool) -> bool:
        """Whether the flag is set in any process, so that all processes take the same decision."""
        return flag if self.world == 1 else bool(self.total(torch.tensor(float(flag), device=self.device)))

    def wait_for_all(self) -> None:
        """Wait until every process has reached this point."""
        self.anyone(False)


CPU = Engine()


MOST_THREADS = 1024
"""The most threads, because OpenMP ends the process if the system refuses more threads."""


def prepare(
    device: str = "auto",
    threads: int = 0,
    *,
    precision: Precision = "float32",
    reduce: Reduce = "ordered",
    compiled: bool = False,
) -> Engine:
    """The engine of a program; this also sets the number of threads (0: torch's default) and keeps freed memory.

    `device` is auto (CUDA if available, else the CPU), or the name of a device that torch can use. Under torchrun, this
    connects the processes.
    """
    keep_freed_memory()
    if not 0 <= threads <= MOST_THREADS:
        raise InvalidOptionError(f"threads must be from 0 (all cores) to {MOST_THREADS:,}, but got {threads}.")
    if threads:
        torch.set_num_threads(threads)
    usable = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = ("cuda" if usable["cuda"] else "cpu") if device == "auto" else device
    if not usable.get(kind, False):
        raise InvalidOptionError(
            f"This machine has no {device.upper()} device that torch can use. Use --device auto or cpu."
        )
    if precision == "tf32" and kind != "cuda":
        raise InvalidOptionError(f"tf32 only works on CUDA devices, not on {kind}. Use --precision float32 or bf16.")
    # for convolutions only: the matrix products of solvers keep full precision
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    rank, world = _join(kind)
    chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if kind == "cuda" else torch.device(kind)
    faster = {"read_every": READ_EVERY, "prefetch": PREFETCH} if kind != "cpu" else {}
    return Engine(chosen, rank, world, precision, reduce, compiled, **faster)


def restarted() -> bool:
    """Whether torchrun has restarted this program after one of its processes died."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _join(kind: str) -> tuple[int, int]:
    """This process's rank and the number of processes started by torchrun, or 0 and 1 without it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or (world := int(os.environ["WORLD_SIZE"])) == 1:
        return 0, 1
    if kind == "mps":
        raise InvalidOptionError("Several processes can share the work on CPUs or CUDA devices, but not on MPS.")
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if kind == "cuda" else "gloo")
        atexit.register(torch.distributed.destroy_process_group)
    return torch.distributed.get_rank(), world
