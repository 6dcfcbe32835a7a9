"""Contestants for the benchmark's own tests."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable


def sleeper(seconds: float) -> Callable[[], int]:
    """Sleeps, and says how often it has."""
    count = itertools.count(1)

    def run() -> int:
        time.sleep(seconds)
        return next(count)

    return run


def broken() -> Callable[[], None]:
    """Cannot be set up."""
    raise ValueError("broken on purpose")
