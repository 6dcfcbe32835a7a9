"""Embedding in a separate thread: images that arrive together are embedded as one batch, and the queue is limited."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from handful.classifier.embedder import Embedder
from handful.classifier.inputs import Matrix
from handful.errors import HandfulError
from handful.serve.decode import TooLargeError

T = TypeVar("T")
BATCH = 8
"""Images in one pass of the network; larger batches do not fit into the CPU cache, are slower, and make others wait."""
QUEUE = 512
"""The most images that are accepted and not answered yet; more are refused."""


class BusyError(HandfulError):
    """The queue is full or the service is stopping; `retry_after` says when to try again, in seconds."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True)
class _Job:
    embedder: Embedder
    pixels: NDArray[np.uint8]
    features: Future[Matrix] = field(default_factory=Future)


class Worker:
    """Call `admit` around a request, `run` for work like decoding or scoring, and `embed` for the network.

    One thread runs the network, because the network already uses all cores. It takes the oldest job and all others for
    the same embedding that fit into a batch, so a busy service has full batches and an idle one answers at once.
    """

    def __init__(self, queue: int = QUEUE, batch: int = BATCH, side_threads: int = 2) -> None:
        self.queue, self.batch = queue, batch
        self.pending = 0
        """Images that are admitted and not answered yet."""
        self.images, self.batches, self.seconds = 0, 0, 0.0
        """Images, batches and seconds of the network so far."""
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._side = ThreadPoolExecutor(side_threads, thread_name_prefix="handful-side")
        self._thread = threading.Thread(target=self._work, name="handful-embedding", daemon=True)
        self._thread.start()

    @contextmanager
    def admit(self, images: int) -> Iterator[None]:
        """Count these images as pending; raises if the queue has no room for them now, or never would."""
        if self._stopping:
            raise BusyError("The service is stopping.", 5)
        if images > self.queue:
            raise TooLargeError(f"A request may have at most {self.queue} images, but this one has {images}.")
        if self.pending + images > self.queue:
            raise BusyError(f"{self.pending} images are already waiting. Try again later.", self.retry_after())
        self.pending += images
        try:
            yield
        finally:
            self.pending -= images

    def retry_after(self) -> int:
        """Seconds until the pending images will probably have been answered."""
        each = self.seconds / self.images if self.images else 0.05
        return min(60, max(1, math.ceil(each * self.pending)))

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in another thread, so that the event loop is not blocked."""
        return await asyncio.get_running_loop().run_in_executor(self._side, function, *arguments)

    async def embed(self, embedder: Embedder, pixels: NDArray[np.uint8]) -> Matrix:
        """Features (n, e) of pixels (n, h, w, c), in order."""
        jobs = [_Job(embedder, pixels[i : i + self.batch]) for i in range(0, len(pixels), self.batch)]
        with self._changed:
            if self._stopping and not self.pending:
                raise BusyError("The service is stopping.", 5)
            self._jobs.extend(jobs)
            self._changed.notify()
        return np.concatenate(await asyncio.gather(*(asyncio.wrap_future(job.features) for job in jobs)))

    async def stop(self) -> None:
        """Admit nothing more, finish what was admitted, and end the threads."""
        self._stopping = True
        while self.pending:
            await asyncio.sleep(0.02)
        with self._changed:
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)
        self._side.shutdown()

    def _work(self) -> None:
        while jobs := self._next():
            begun = time.perf_counter()
            wanted = [job for job in jobs if job.features.set_running_or_notify_cancel()]
            if wanted:
                self._answer(wanted)
                self.seconds += time.perf_counter() - begun
                self.images += sum(len(job.pixels) for job in wanted)
                self.batches += 1

    def _next(self) -> list[_Job]:
        """The jobs of the next batch; none when stopping."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or (self._stopping and not self.pending))
            if not self._jobs:
                return []
            taken, left = [self._jobs.popleft()], deque[_Job]()
            room = self.batch - len(taken[0].pixels)
            for job in self._jobs:
                if job.embedder is taken[0].embedder and len(job.pixels) <= room:
                    taken.append(job)
                    room -= len(job.pixels)
                else:
                    left.append(job)
            self._jobs = left
        return taken

    def _answer(self, jobs: Sequence[_Job]) -> None:
        try:
            features = jobs[0].embedder(np.concatenate([job.pixels for job in jobs]))
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].features.set_exception(error)
                return
            for job in jobs:  # separately, so that one client's images cannot make another's fail
                self._answer([job])
            return
        ends = np.cumsum([len(job.pixels) for job in jobs])
        for job, rows in zip(jobs, np.split(features, ends[:-1]), strict=True):
            job.features.set_result(rows)
