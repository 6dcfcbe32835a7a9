"""Every learner on Omniglot in ten minutes: trains each quick recipe, evaluates it, writes one table.

    python -m benchmarks.omniglot_learners --minutes 10

A recipe's learning rate falls to 0 at its last episode, so the number of episodes is set to what this machine can do in
the time: a few updates of a model that is thrown away are timed first. The number is recorded, and `handful train` with
it repeats the run. Learners that are in the output file already are kept if they had as much time, so that the work can
go on after a stop, and some can be given more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from handful import __version__, data, evaluate
from handful._io import write_atomically
from handful.data.table import Benchmark
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.meta.config import Recipe
from handful.meta.engine import keep_freed_memory
from handful.meta.features import embed_pool
from handful.meta.run import Run, build
from handful.meta.state import TrainingState
from handful.meta.train import train
from handful.paper.recipes.beyond import QUICK

TARGETS = {"siamese": 0.80, "meta-lstm": 0.80}
TARGET = 0.90
LIMIT = 10.0
"""Minutes after which a training ends in any case."""
SHARE = 0.9
"""Of the time, planned for; the rest is for a machine that becomes slower."""
TIMED = 15
"""Updates to time at least, so that one long pause among them does not count."""


def main() -> None:
    """Train and evaluate what is missing, rewriting the table after each learner."""
    options = _options()
    if options.threads:
        torch.set_num_threads(options.threads)
    keep_freed_memory()
    benchmark = data.load(options.data)
    path = options.out.with_suffix(".json")
    rows: dict[str, Any] = json.loads(path.read_text())["learners"] if path.exists() else {}
    for name in options.only or QUICK:
        if name in rows and _budget(rows[name]) >= options.minutes:
            print(f"{name}: kept from {path}")
        else:
            rows[name] = {"earlier": _earlier(rows.get(name)), **_row(name, options, benchmark)}
            print(_line(name, rows[name]), flush=True)
        write_atomically(path, json.dumps({**_facts(options), "learners": rows}, indent=1).encode())
        write_atomically(options.out.with_suffix(".md"), _table(options, rows).encode())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="training time to plan for, at most 10")
    parser.add_argument("--only", nargs="*", choices=list(QUICK), help="these learners, not all")
    parser.add_argument("--data", default="omniglot", help="another data set, to try the script")
    parser.add_argument("--episodes", type=int, default=2_000, help="test episodes of each kind")
    parser.add_argument("--shots", type=int, nargs="*", default=[1, 5], help="shots of the test episodes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="0 for all cores")
    parser.add_argument("--runs", type=Path, default=Path("runs/learners"), help="folder of the training runs")
    parser.add_argument("--out", type=Path, default=Path("results/omniglot-learners"), help="without its ending")
    return parser.parse_args()


def _row(name: str, options: argparse.Namespace, benchmark: Benchmark) -> dict[str, Any]:
    recipe = replace(QUICK[name].recipe(), data=options.data, seed=options.seed)
    if "classes" in recipe.options:
        recipe = replace(recipe, options={**recipe.options, "classes": len(benchmark.train)})
    recipe, pace = _in_time(recipe, benchmark, options.minutes)
    print(f"{name}: {recipe.plan.episodes:,} episodes at {1e3 * pace:.0f} ms each", flush=True)
    folder = options.runs / name
    shutil.rmtree(folder, ignore_errors=True)
    run = Run(folder, recipe, benchmark)
    run.start()
    seconds = 0.0
    for progress in (steps := run.train()):
        seconds = progress.seconds
        if seconds > 60 * LIMIT:
            steps.close()
    pool = embed_pool(run.model.embedding, benchmark.test)
    tests = {}
    for shot in options.shots:
        result = evaluate(
            run.model,
            EpisodeSampler(benchmark.test, FixedShots(5, shot, 15), options.seed),
            options.episodes,
            pool=pool,
        )
        kept = {key: value for key, value in result.as_json().items() if key != "accuracies"}
        tests[f"{shot}-shot"] = kept
    repeat = f"handful train --recipe omniglot/{name}-32C/quick --episodes {recipe.plan.episodes} --seed {options.seed}"
    trained = {
        "repeat": repeat,
        "minutes": options.minutes,
        "training_minutes": seconds / 60,
        "trained_episodes": run.state.episode,
        "threads": torch.get_num_threads(),
    }
    return {"recipe": recipe.as_json(), **trained, "test": tests}


def _in_time(recipe: Recipe, benchmark: Benchmark, minutes: float) -> tuple[Recipe, float]:
    """The recipe with as many episodes as fit, and the seconds that one takes here."""
    plan = recipe.plan
    shape = RandomShots(recipe.way, recipe.images_per_class, recipe.min_shot, recipe.max_shot, plan.episodes_per_step)
    model = build(recipe, benchmark.train.image_shape)
    steps = train(model, EpisodeSampler(benchmark.train, shape, recipe.seed), state=TrainingState(model, plan))
    next(steps)  # the first update also warms up
    begun = time.perf_counter()
    moments = [begun]
    while moments[-1] - begun < min(10.0, 60 * minutes / 10) or len(moments) <= TIMED:
        next(steps)
        moments.append(time.perf_counter())
    # the median, so that a moment in which the machine did something else does not count
    pace = statistics.median(after - before for before, after in pairwise(moments)) / plan.episodes_per_step
    updates = max(1, int(SHARE * 60 * minutes / pace / plan.episodes_per_step))
    return replace(recipe, plan=replace(plan, episodes=updates * plan.episodes_per_step)), pace


def _earlier(row: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The test figures of trainings that were replaced by another one, each with the reason if it is known."""
    if row is None:
        return []
    first, test = next(iter(row["test"].items()))
    return [*row.get("earlier", []), {first: round(100 * test["mean"], 1), "why": "it was trained again for longer"}]


def _retrained(rows: dict[str, Any]) -> str:
    """Which learners were trained again after a test figure had been seen."""
    told = []
    for name, row in rows.items():
        if earlier := row.get("earlier"):
            figures = ", ".join(str(value) for each in earlier for key, value in each.items() if key != "why")
            told.append(f"`{name}` ({figures} before: {'; '.join(dict.fromkeys(each['why'] for each in earlier))})")
    if not told:
        return "No learner was trained again after its test figure was seen."
    return (
        f"{len(told)} of {len(rows)} learners were trained again after a test figure had been seen; the table shows "
        f"the last training, which is not always the best: {', '.join(told)}. The other learners were tested once."
    )


def _budget(row: dict[str, Any]) -> float:
    """The minutes that a learner's training was planned for; rows of older files only have the minutes it took."""
    return float(row.get("minutes", row["training_minutes"]))


def _facts(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "data": options.data,
        "seed": options.seed,
        "limit_minutes": LIMIT,
        "versions": {"handful": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": f"{_processor()}, {os.cpu_count()} cores",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _table(options: argparse.Namespace, rows: dict[str, Any]) -> str:
    facts = _facts(options)
    shots = list(next(iter(rows.values()))["test"])
    head = [
        f"# Every learner on {options.data} in {LIMIT:g} minutes",
        "",
        f"5-way accuracy in % on unseen classes, over {options.episodes:,} test episodes with 15 queries per class, "
        f"with 95% intervals. The network has four blocks of 32 filters and was trained on 1-shot problems with 5 or "
        f"more ways, with the recipes `omniglot/NAME-32C/quick`, for at most {LIMIT:g} minutes. There is one training "
        f"seed ({options.seed}); the 5-shot figures are from the same models.",
        "",
        f"Made by `python -m benchmarks.omniglot_learners` on {facts['machine']}, torch {torch.__version__}, handful "
        f"{__version__}; the JSON file next to this one has the command that repeats each training.",
        "",
        _retrained(rows),
        "",
        f"| learner | {' | '.join(shots)} | goal (1-shot) | limits | episodes | minutes | threads |",
        f"| --- | {'--- | ' * len(shots)}--- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *(_line(name, rows[name]) for name in QUICK if name in rows), ""])


def _line(name: str, row: dict[str, Any]) -> str:
    goal = TARGETS.get(name, TARGET)
    scores = [f"{100 * each['mean']:.2f} ± {100 * each['ci95']:.2f}" for each in row["test"].values()]
    first = next(iter(row["test"].values()))
    reached = "reached" if first["mean"] >= goal else "**missed**"
    cost = [f"{row['trained_episodes']:,}", f"{row['training_minutes']:.1f}", str(row["threads"])]
    return f"| {' | '.join([name, *scores, f'{100 * goal:.0f}, {reached}', first['limits'], *cost])} |"


if __name__ == "__main__":
    main()
