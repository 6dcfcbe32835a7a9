"""Where the time of our own contestants goes, operator by operator."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from benchmarks import tasks
from benchmarks.contest import Setting, run_module

PROFILED: dict[str, tuple[str, dict[str, Any], int]] = {
    "a training step, 64C": ("training_step", {"width": "64C"}, 3),
    "a training step, wide": ("training_step", {"width": "wide"}, 1),
    "10,000 test episodes, 32C": ("evaluation", {"width": "32C", "learner": "r2d2", "episodes": 10_000}, 1),
    "the same after embedding": ("after_embedding", {"width": "32C", "learner": "r2d2", "episodes": 10_000}, 1),
    "after embedding, 64C": ("after_embedding", {"width": "64C", "learner": "r2d2", "episodes": 10_000}, 1),
    "after embedding, wide": ("after_embedding", {"width": "wide", "learner": "lrd2", "episodes": 2_000}, 1),
    "sampling, 5-way 5-shot, 15 queries": ("sampling", {"augment": False, "episodes": 512}, 2),
    "LR-D2 one-vs-all head, 10 steps, e = 8064": ("logistic_forward_backward", {"steps": 10, "repeats": 10}, 2),
    "a ridge head, 5-way 1-shot, e = 3584": ("ridge_forward_backward", {"e": 3584, "shot": 1, "repeats": 20}, 3),
    "a ridge head, 5-way 5-shot, e = 3584": ("ridge_forward_backward", {"e": 3584, "shot": 5, "repeats": 20}, 3),
}


def profiles(setting: Setting) -> dict[str, list[tuple[str, float]]]:
    """For each of our contestants, the operators that take most of its time, with their share."""
    done: dict[str, list[tuple[str, float]]] = run_module("benchmarks.profiles", setting, str(setting.threads))
    return done


def shares(name: str, options: dict[str, Any], repeats: int, most: int = 6) -> list[tuple[str, float]]:
    """Operators by their own time; Python's time between them is counted under the operator that it follows."""
    run = getattr(tasks, name)(**options)
    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(repeats):
            run()
    events = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return [(event.key, event.self_cpu_time_total / total) for event in events[:most]]


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps({title: shares(*plan) for title, plan in PROFILED.items()}))
