"""Decoding on all cores: images come back as chunks in the requested order, with a few chunks in memory at a time.

The workers are plain interpreters that run this module and communicate over pipes. `concurrent.futures` does not fit
here. Processes that it spawns import the caller's main module again, so a script without a main guard would start
itself over and over. Forked processes inherit the caller's threads and locks, including torch's. joblib's processes
start with the current folder on their search path, where a file called numpy.py would run. Our workers import neither
torch nor the main module and never look for modules in the current folder, so packing works the same from a script, a
notebook and the command line.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType

import numpy as np
from PIL.Image import Image

from handful.data.archives import Blob
from handful.data.decode import Decoding, shaped, upright
from handful.errors import DataError

CHUNK_BYTES = 1 << 22
INLINE = 1000
"""Fewer images than this are decoded in this process, without starting workers."""


@dataclass(frozen=True)
class Item:
    """One image to decode: where its bytes are, its name for error messages, and how to rotate it."""

    blob: Blob
    name: str
    quarter_turns: int = 0


def decode_all(items: Sequence[Item], decoding: Decoding, jobs: int | None = None) -> Iterator[np.ndarray]:
    """The images in order, as chunks (k, height, width, channels) of a few megabytes."""
    jobs = jobs or os.cpu_count() or 1
    per_chunk = max(1, min(512, CHUNK_BYTES // (decoding.height * decoding.width * decoding.channels)))
    chunks = (items[start : start + per_chunk] for start in range(0, len(items), per_chunk))
    if jobs == 1 or len(items) < INLINE:
        for chunk in chunks:
            yield decode_chunk(chunk, decoding)
        return
    with Workers(jobs, decoding) as workers:
        waiting: deque[Future[np.ndarray]] = deque(workers.submit(chunk) for chunk in islice(chunks, 2 * jobs))
        while waiting:
            yield waiting.popleft().result()
            waiting.extend(workers.submit(chunk) for chunk in islice(chunks, 1))


def decode_chunk(items: Sequence[Item], decoding: Decoding) -> np.ndarray:
    """The images (k, height, width, channels) of one chunk; an error names the first image that fails."""
    pixels = np.empty((len(items), *decoding.shape), dtype=np.uint8)
    uses = Counter(item.blob for item in items)
    kept: dict[Blob, Image] = {}  # images that occur in the chunk in several rotations
    for row, item in zip(pixels, items, strict=True):
        try:
            image = kept.get(item.blob) or upright(item.blob.read(), decoding)
            if uses[item.blob] > 1:
                kept[item.blob] = image
            row[:] = shaped(image, decoding, item.quarter_turns)
        except DataError as error:
            raise DataError(f"The image {item.name} {error}") from error
        except Exception as error:  # a zip member with a bad checksum or method, a file that vanished
            raise DataError(f"The image {item.name} cannot be read: {error}") from error
    return pixels


class Workers:
    """A pool of interpreters, each fed by its own thread."""

    def __init__(self, jobs: int, decoding: Decoding) -> None:
        self._decoding = decoding
        self._local = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._pool = ThreadPoolExecutor(jobs)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self._processes):
            process.kill()
        self._pool.shutdown(wait=True)
        for process in self._processes:
            process.communicate()

    def submit(self, items: Sequence[Item]) -> Future[np.ndarray]:
        """Decode one chunk in whichever worker is free first."""
        return self._pool.submit(self._decode, items)

    def _decode(self, items: Sequence[Item]) -> np.ndarray:
        process = self._process()
        if process.stdin is None or process.stdout is None:
            raise DataError("A decoding worker has no pipes.")
        request = {"items": [asdict(item) for item in items], "decoding": asdict(self._decoding)}
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            reply = json.loads(process.stdout.readline() or "{}")
        except (OSError, ValueError):
            reply = {}
        if "error" in reply:
            raise DataError(str(reply["error"]))
        pixels = process.stdout.read(int(reply.get("bytes", 0)))
        shape = (len(items), *self._decoding.shape)
        if len(pixels) != np.prod(shape):
            raise DataError(
                f"A decoding worker died between {items[0].name} and {items[-1].name}. The system may have run out of "
                f"memory; try again with fewer jobs."
            )
        return np.frombuffer(pixels, dtype=np.uint8).reshape(shape)

    def _process(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._local, "process"):
            self._local.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "handful.data._packing"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": search_path()},
            )
            self._processes.append(self._local.process)
        process: subprocess.Popen[bytes] = self._local.process
        return process


def search_path() -> str:
    """Where workers look for modules: the caller's search path without the current folder, then handful's folder."""
    entries = [entry for entry in sys.path if entry and not _is_current_folder(entry)]
    return os.pathsep.join([*entries, str(Path(__file__).parents[2])])


def _is_current_folder(path: str) -> bool:
    try:
        return os.path.samefile(path, os.curdir)
    except OSError:
        return False


def serve() -> None:
    """Run a worker: it reads one JSON request per line, and answers each with a JSON line and raw pixels."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles interrupts and then ends the workers
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        items = [Item(**{**item, "blob": Blob(**item["blob"])}) for item in request["items"]]
        try:
            pixels = decode_chunk(items, Decoding(**request["decoding"])).tobytes()
        except DataError as error:
            out.write(json.dumps({"error": str(error)}).encode() + b"\n")
        else:
            out.write(json.dumps({"bytes": len(pixels)}).encode() + b"\n" + pixels)
        out.flush()


if __name__ == "__main__":
    serve()
