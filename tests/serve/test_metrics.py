"""Metrics: answers by operation and status, a histogram of seconds, and labels that cannot break a line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from handful.serve.metrics import BUCKETS, Metrics, family, sample


def answered(metrics: Metrics, scope: dict[str, Any]) -> None:
    async def nothing(*_: Any) -> Any:
        return {}

    asyncio.run(metrics(scope, nothing, nothing))


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/broken":
        raise RuntimeError("on purpose")
    if scope["path"] == "/known":
        scope["operation"] = "predict"
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": b""})


def test_answers_are_counted_by_operation_and_status_and_unknown_paths_together() -> None:
    metrics = Metrics(application)
    for path in ("/known", "/known", "/a", "/b"):
        answered(metrics, {"type": "http", "path": path})
    with pytest.raises(RuntimeError, match="on purpose"):
        answered(metrics, {"type": "http", "path": "/broken"})
    answered(metrics, {"type": "lifespan", "path": "/known"})  # no request
    lines = metrics.lines()
    assert 'handful_requests_total{operation="predict",status="200"} 2' in lines
    assert 'handful_requests_total{operation="none",status="200"} 2' in lines
    assert 'handful_requests_total{operation="none",status="0"} 1' in lines  # failed before it answered
    assert 'handful_request_seconds_count{operation="predict"} 2' in lines
    assert not any("/a" in line for line in lines)


def test_a_bucket_counts_all_that_took_at_most_its_bound() -> None:
    metrics = Metrics(application)
    for seconds in (0.005, 0.006, 0.2, 100.0):
        metrics._count("predict", 200, seconds)
    found = dict(line.rsplit(" ", 1) for line in metrics.lines() if "_bucket" in line)
    by_bound = [
        found[f'handful_request_seconds_bucket{{operation="predict",le="{end}"}}'] for end in (*BUCKETS, "+Inf")
    ]
    assert by_bound == ["1", "2", "2", "2", "2", "3", "3", "3", "3", "3", "3", "3", "4"]
    assert 'handful_request_seconds_sum{operation="predict"} 100.211' in metrics.lines()


def test_labels_are_escaped_and_may_be_missing() -> None:
    assert sample("x", (("name", 'a"b\\c\nd'),), 1.5) == r'x{name="a\"b\\c\nd"} 1.5'
    assert sample("x", (), 3) == "x 3"
    assert family("x", "gauge", "What it is.", {(): 2.0}) == ["# HELP x What it is.", "# TYPE x gauge", "x 2"]


@pytest.mark.parametrize(("value", "text"), [(12_345_678, "12345678"), (1721650123.25, "1721650123.25"), (7.0, "7")])
def test_values_are_exact(value: float, text: str) -> None:
    assert sample("x", (), value) == f"x {text}"
