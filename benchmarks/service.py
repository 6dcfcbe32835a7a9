"""`python -m benchmarks --only service`: the HTTP service under load, against calling the library directly.

One `handful serve` process on 127.0.0.1, and clients that each send one image and wait for the answer. Speed is
compared with the embedding in full batches, which no service can beat. Writes benchmarks/SERVICE.md.
"""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import torch
from PIL import Image

from handful._io import write_atomically
from handful.classifier import FewShotClassifier
from handful.classifier.inputs import pictures
from handful.serve.decode import pixels_for
from handful.serve.worker import BATCH

HERE = Path(__file__).resolve().parent
CLASSES, SHOTS, SIZE = 5, 8, 320
EACH = 32
"""Different images that clients send, so that no cache helps and decoding is real."""
BARE = f"decoding and the network, batches of {BATCH}"


@dataclass(frozen=True)
class Load:
    """What some clients saw."""

    clients: int
    asked: float
    seconds: float
    latencies: tuple[float, ...]
    statuses: dict[int, int]

    @property
    def rate(self) -> float:
        """Answers with 200 per second."""
        return self.statuses.get(200, 0) / self.seconds

    def at(self, share: float) -> float:
        """A quantile of the latency, in milliseconds."""
        return 1000 * float(np.quantile(self.latencies, share))


def measure(out: Path, seconds: float = 8, requests: int = 10_000, embedding: str = "photographs") -> str:
    """Run every load, write the page, and return it."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path, images = _classifier(Path(folder), embedding)
        direct = _direct(path, images, seconds)
        small, drawings = _classifier(Path(folder), "characters")
        with serving(path, 512) as (address, _):
            loads = [asyncio.run(_load(address, embedding, images, n, seconds)) for n in (1, 8, 64)]
        with serving(path, 16) as (address, _):
            beyond = asyncio.run(_load(address, embedding, images, 64, seconds))
        with serving(small, 512) as (address, pid):
            memory = asyncio.run(_memory(address, pid, drawings, requests))
    page = _page(embedding, direct, loads, beyond, memory)
    write_atomically(out, page.encode())
    return page


def _classifier(folder: Path, embedding: str) -> tuple[Path, list[bytes]]:
    """A classifier of noisy colour patterns, and JPEG files to ask it about."""
    rng = np.random.default_rng(0)
    coarse = rng.uniform(0, 255, (CLASSES, 8, 8, 3))

    def image(label: int) -> bytes:
        noisy = coarse[label] + rng.normal(0, 20, (8, 8, 3))
        grown = Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
        target = folder / "image.jpg"
        grown.save(target, quality=90)
        return target.read_bytes()

    labels = [label for label in range(CLASSES) for _ in range(SHOTS)]
    clf = FewShotClassifier(embedding, cache=False).fit([image(label) for label in labels], [f"c{n}" for n in labels])
    path = folder / f"{embedding}.handful"
    clf.save(path)
    return path, [image(n % CLASSES) for n in range(EACH)]


def _direct(path: Path, images: list[bytes], seconds: float) -> dict[str, float]:
    """Images per second in this process: the bare network in batches, and FewShotClassifier.answer."""
    clf = FewShotClassifier.load(path, cache=False)
    assert clf.embedder_ is not None
    (part,) = clf.embedder_.parts
    batch = images[:BATCH]
    pixels = np.stack([pixels_for(each, part.preprocessing) for each in pictures(batch)])
    works = {
        f"the network alone, batches of {BATCH}": lambda: part(pixels),
        BARE: lambda: part(np.stack([pixels_for(each, part.preprocessing) for each in pictures(batch)])),
        "`FewShotClassifier.answer`, 32 images at once": lambda: clf.answer(images),
    }
    found = {}
    for name, work in works.items():
        work()
        begun, count = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds / 3:
            work()
            count += len(images) if "answer" in name else len(batch)
        found[name] = count / (time.perf_counter() - begun)
    return found


@contextmanager
def serving(path: Path, queue: int) -> Iterator[tuple[str, int]]:
    """A service in a process of its own, with one thread for the network."""
    words = ["serve", str(path), "--port", "0", "--threads", "1", "--queue", str(queue)]
    with subprocess.Popen([sys.executable, "-m", "handful", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = ""
        while not address:
            line = process.stdout.readline()
            address = line.split()[1].removesuffix("/openapi.json") if line.startswith("Description:") else ""
        try:
            yield address, process.pid
        finally:
            process.terminate()


async def _load(address: str, model: str, images: list[bytes], clients: int, seconds: float) -> Load:
    """Clients that ask one image after the other, for some seconds."""
    latencies: list[float] = []
    statuses: Counter[int] = Counter()
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as client:
        await client.post(f"/models/{model}/predict", files={"images": images[0]})
        begun = time.perf_counter()

        async def ask(number: int) -> None:
            turn = number
            while time.perf_counter() - begun < seconds:
                start = time.perf_counter()
                content = images[turn % len(images)]
                answered = await client.post(f"/models/{model}/predict", files={"images": ("a.jpg", content)})
                statuses[answered.status_code] += 1
                if answered.status_code == 200:
                    latencies.append(time.perf_counter() - start)
                turn += 1

        await asyncio.gather(*(ask(number) for number in range(clients)))
        taken = time.perf_counter() - begun
    return Load(clients, seconds, taken, tuple(latencies), dict(statuses))


async def _memory(address: str, pid: int, images: list[bytes], requests: int) -> list[tuple[int, float]]:
    """Megabytes of the process after some of the requests."""
    found: list[tuple[int, float]] = []
    async with httpx.AsyncClient(base_url=address, timeout=120) as client:
        for done in range(0, requests + 1, 8):
            if done % (requests // 10) < 8:
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                found.append((done, pages * os.sysconf("SC_PAGE_SIZE") / 1e6))
            form = {"images": ("a.jpg", images[done // 8 % len(images)])}
            answers = [client.post("/models/characters/predict", files=form) for _ in range(8)]
            assert all(each.status_code == 200 for each in await asyncio.gather(*answers))
    return found


def _page(
    embedding: str, direct: dict[str, float], loads: list[Load], beyond: Load, memory: list[tuple[int, float]]
) -> str:
    busy = os.getloadavg()[0]
    bare = direct[BARE]
    lines = [
        "# The service under load",
        "",
        "Written by `python -m benchmarks --only service`. One `handful serve` process with one thread for the "
        f"network; each client sends one JPEG of {SIZE} x {SIZE} pixels and waits for the answer. Clients run on the "
        "same machine.",
        "",
        f"- {platform.machine()}, {os.cpu_count()} cores; the load average at the end was {busy:.1f}"
        + (" — other work was running, so times are upper bounds and ratios are rough." if busy > 3 else "."),
        f"- Each load lasts {beyond.asked:g} seconds (8 by default); memory is watched over {memory[-1][0]:,} requests "
        "(10,000 by default).",
        f"- Embedding: {embedding}; Python {platform.python_version()}, torch {torch.__version__}.",
        "",
        "| in this process, without HTTP | images per second |",
        "| --- | --- |",
        *(f"| {name} | {rate:.1f} |" for name, rate in direct.items()),
        "",
        "| clients | images per second | p50 | p99 | answers | share of the embedding's own speed |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {load.clients} | {load.rate:.1f} | {load.at(0.5):.0f} ms | {load.at(0.99):.0f} ms "
            f"| {_statuses(load)} | {load.rate / bare:.2f} |"
            for load in loads
        ),
        "",
        f"With a queue of 16 images and {beyond.clients} clients that do not wait after a refusal: "
        f"{_statuses(beyond)}; {beyond.rate:.1f} images per second were answered.",
        "",
        f"Memory over {memory[-1][0]:,} requests (embedding characters): "
        + ", ".join(f"{size:.0f} MB after {done:,}" for done, size in memory)
        + ".",
    ]
    return "\n".join(lines) + "\n"


def _statuses(load: Load) -> str:
    return ", ".join(f"{count:,} x {status}" for status, count in sorted(load.statuses.items()))
