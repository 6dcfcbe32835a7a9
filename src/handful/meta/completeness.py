"""When a run counts as complete: patience ended it, its last episode is trained, or next to nothing is left to learn.

The step schedule of the paper halves the rate again and again, so that the last 100,000 of 120,000 episodes share less
than 0.5% of the summed learning rate. A run that has come so far is complete; one that was stopped before is in part. A
cosine schedule brings its rate down to 0 on purpose, so that such a run is complete at its last episode only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from handful.meta.config import Plan

NEGLIGIBLE = 0.005
"""Share of the summed learning rate below which the rest of a run does not matter."""


@dataclass(frozen=True)
class Completion:
    """Whether a run is complete, and why or why not, in words."""

    complete: bool
    why: str

    def __str__(self) -> str:
        return f"{'complete' if self.complete else 'in part'}: {self.why}"


def rate_left(plan: Plan, episode: int) -> float:
    """The share of the plan's summed learning rate that the updates after this episode have."""
    return _summed(plan, episode) / _summed(plan, 0)


@lru_cache
def complete_at(plan: Plan) -> int:
    """The first episode at which the run counts as complete, if patience does not end it sooner."""
    if plan.schedule != "step":
        return plan.episodes
    low, high = 0, -(-plan.episodes // plan.episodes_per_step)
    while low < high:
        middle = (low + high) // 2
        if rate_left(plan, middle * plan.episodes_per_step) < NEGLIGIBLE:
            high = middle
        else:
            low = middle + 1
    return min(plan.episodes, low * plan.episodes_per_step)


def completion(plan: Plan, episode: int, finished: bool = False, failure: str = "") -> Completion:
    """What a run of the plan has come to; `finished` says that patience stopped it before its last episode."""
    whole = f"episode {episode:,} of {plan.episodes:,}"
    if failure:
        return Completion(False, f"{failure}; {whole}")
    if episode >= plan.episodes:
        return Completion(True, f"all {plan.episodes:,} episodes")
    if finished:
        return Completion(True, f"no validation score rose for {plan.patience:,} episodes, stopped at {whole}")
    if plan.schedule == "cosine":
        left = f"its learning rate still at {100 * plan.rate_at(episode) / plan.rate:.0f}%"
        return Completion(False, f"{episode:,} of {plan.episodes:,} episodes, {left}")
    share = 100 * rate_left(plan, episode)
    left = f"{share:.{0 if share >= 10 else 1 if share >= 1 else 2}f}% of the summed learning rate left"
    if episode >= complete_at(plan):
        return Completion(True, f"{left} at {whole}")
    return Completion(False, f"{episode:,} of {plan.episodes:,} episodes, {left}")


@lru_cache(maxsize=1024)
def _summed(plan: Plan, first: int) -> float:
    """The rates of all updates from this episode to the last, added up."""
    return math.fsum(plan.rate_at(start) for start in range(first, plan.episodes, plan.episodes_per_step))
