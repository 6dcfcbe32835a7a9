"""Sessions of the studio that have learnt something, and waiting for their background work."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from handful.serve.studio_session import Session
from tests.serve.browser import KINDS, drawing

PATIENCE = 120.0
"""Seconds after which background work counts as stuck."""


def until(done: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < limit, "the background work did not end"
        time.sleep(0.02)


def settled(session: Session) -> Any:
    until(lambda: all(item["ready"] for item in session.state()["items"]) and not session.progress()["total"])
    return session.state()


def taught(session: Session, count: int = 3) -> Any:
    for kind in KINDS:
        for number in range(count):
            session.add_image(drawing(kind, number), f"{kind}-{number}.png", kind, "drop")
    return settled(session)


def numbers(state: Any) -> list[float]:
    return [state["estimate"][key] for key in ("accuracy", "low", "high")] + state["rejection"]["thresholds"][1:]
