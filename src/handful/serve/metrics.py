"""The metrics of the service in Prometheus' text format."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram of response times, in seconds."""
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """ASGI middleware that counts answers by operation and status, and measures the seconds that each took.

    The operation is the name that the application put into the scope; requests without one count as "none", so that
    arbitrary paths do not become labels.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.started = time.time()
        self.answers: Counter[Labels] = Counter()
        self.seconds: dict[str, list[int]] = {}
        self.sums: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and count its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            self._count(scope.get("operation", "none"), status, time.perf_counter() - begun)

    def _count(self, operation: str, status: int, seconds: float) -> None:
        self.answers[("operation", operation), ("status", str(status))] += 1
        self.seconds.setdefault(operation, [0] * (len(BUCKETS) + 1))[bisect_left(BUCKETS, seconds)] += 1
        self.sums[operation] += seconds  # type: ignore[assignment]

    def lines(self) -> list[str]:
        """The counts so far."""
        found = family("handful_requests_total", "counter", "Requests by operation and status.", self.answers)
        name = "handful_request_seconds"
        found += [
            f"# HELP {name} Seconds from the headers of a request to the end of its answer.",
            f"# TYPE {name} histogram",
        ]
        for operation, counts in self.seconds.items():
            ends = [*map(str, BUCKETS), "+Inf"]
            for end, reached in zip(ends, accumulate(counts), strict=True):
                found.append(sample(f"{name}_bucket", (("operation", operation), ("le", end)), reached))
            found.append(sample(f"{name}_sum", (("operation", operation),), self.sums[operation]))
            found.append(sample(f"{name}_count", (("operation", operation),), sum(counts)))
        found += family("process_start_time_seconds", "gauge", "Start of the process.", {(): self.started})
        found += family("process_resident_memory_bytes", "gauge", "Memory in use.", _memory())
        return found


def family(name: str, kind: str, text: str, values: Mapping[Labels, float]) -> list[str]:
    """One metric with all of its samples."""
    return [
        f"# HELP {name} {text}",
        f"# TYPE {name} {kind}",
        *(sample(name, key, each) for key, each in values.items()),
    ]


def sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    """One line."""
    inside = ",".join(f'{key}="{_escaped(each)}"' for key, each in labels)
    exact = str(value).removesuffix(".0")
    return f"{name}{{{inside}}} {exact}" if inside else f"{name} {exact}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _memory() -> dict[Labels, float]:
    """The resident memory of this process in bytes, on Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return {}
    return {(): float(pages * os.sysconf("SC_PAGE_SIZE"))}
