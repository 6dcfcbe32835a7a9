"""What every learner costs: a training episode and an adapted task, relative to prototypical networks.

    python -m benchmarks.learners

All learners take turns on the same episodes, so that a busy moment hits all of them, and ratios are taken within each
round. `--clock cpu` counts the processor's time of this process, for a machine that is not quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from handful import FewShotModel, __version__
from handful._io import write_atomically
from handful.embeddings import build_embedding
from handful.episodes import Episode, LabelledSet
from handful.learners.registry import build_learner
from handful.meta.engine import keep_freed_memory
from handful.paper.published import TABLE_4
from handful.paper.recipes.beyond import QUICK, Quick

REFERENCE = "protonet"
MEASURED = {**QUICK, "maml, 5 and 10 steps": Quick("maml", {"way": 5, "steps": 5, "test_steps": 10})}
"""The quick recipes' learners, and MAML with as many steps in training and at test as the paper's table 4 has it."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Cost:
    """Seconds of one learner, round by round."""

    training: list[float]
    adapting: list[float]


def main() -> None:
    """Measure in turns, print the table and write it."""
    options = _options()
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    shape = (1, 28, 28) if options.images == "omniglot" else (3, 84, 84)
    models = {name: _model(name, shape) for name in MEASURED}
    episode = _episode(shape, options.query)
    costs = {name: Cost([], []) for name in models}
    for number in range(options.rounds + 1):
        for name, model in models.items():
            training = _timed(partial(_train, model, episode), CLOCKS[options.clock])
            adapting = _timed(partial(_adapt, model, episode), CLOCKS[options.clock])
            if number:  # the first round warms up
                costs[name].training.append(training)
                costs[name].adapting.append(adapting)
    table = _table(costs, options)
    print(table)
    if options.out:
        raw = {name: {"training": cost.training, "adapting": cost.adapting} for name, cost in costs.items()}
        write_atomically(options.out.with_suffix(".md"), table.encode())
        write_atomically(options.out.with_suffix(".json"), json.dumps({**_facts(options), "seconds": raw}).encode())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--query", type=int, default=15, help="queries per class")
    parser.add_argument("--images", choices=["omniglot", "mini-imagenet"], default="omniglot")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="where to write the table and all times, without its ending")
    return parser.parse_args()


def _model(name: str, shape: tuple[int, int, int]) -> FewShotModel:
    """The 32C network with the learner's options of its quick recipe, for 5 classes."""
    spec = MEASURED[name]
    torch.manual_seed(0)
    return FewShotModel(*build_learner(spec.learner, build_embedding("32C", shape[0]), shape, spec.options))


def _episode(shape: tuple[int, int, int], query: int) -> Episode:
    generator = torch.Generator().manual_seed(0)

    def labelled(count: int) -> LabelledSet:
        targets = torch.eye(5).repeat_interleave(count, 0)
        return LabelledSet(torch.rand(5 * count, *shape, generator=generator), targets)

    return Episode(labelled(1), labelled(query), torch.arange(5))


def _train(model: FewShotModel, episode: Episode) -> None:
    model.train()
    posed = model.learner.pose(episode)
    model.learner.objective(model(posed), posed.query.targets).backward()
    model.zero_grad(set_to_none=True)


def _adapt(model: FewShotModel, episode: Episode) -> None:
    model.eval()
    with torch.no_grad():
        model.adapt(episode.support)(episode.query.inputs)


def _timed(work: Callable[[], None], clock: Callable[[], float]) -> float:
    begun = clock()
    work()
    return clock() - begun


def _table(costs: dict[str, Cost], options: argparse.Namespace) -> str:
    facts = _facts(options)
    size = "28x28" if options.images == "omniglot" else "84x84"
    lines = [
        "# What every learner costs",
        "",
        f"The time for one 5-way 1-shot episode with {options.query} queries per class and {size} images, with the 32C "
        f"network and the learners' options from their quick recipes: a forward and backward pass in training; "
        f"adapting to the support and answering all queries at test time. Times are medians of {options.rounds} "
        f"rounds in which all learners take turns; ratios are medians of ratios within a round. The embedding is "
        f"always included, and takes most of the time of the closed forms.",
        "",
        f"The paper's table 4, with ten 84x84 images per episode on another machine, gives relative to prototypical "
        f"networks: {_published()}.",
        "",
        f"`{facts['command']}` on {facts['machine']}, {options.clock} clock, torch {torch.__version__}.",
        "",
        f"| learner | training episode | relative to {REFERENCE} | adapted task | relative to {REFERENCE} |",
        "| --- | --- | --- | --- | --- |",
    ]
    base = costs[REFERENCE]
    for name, cost in sorted(costs.items(), key=lambda item: statistics.median(item[1].adapting)):
        cells = [name]
        for own, other in ((cost.training, base.training), (cost.adapting, base.adapting)):
            ratio = statistics.median(a / b for a, b in zip(own, other, strict=True))
            cells += [f"{1e3 * statistics.median(own):.1f} ms", f"{ratio:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _published() -> str:
    base = TABLE_4["Proto nets (32C)"]
    rows = ("R2-D2 (32C)", "LR-D2, one against the rest, 1 iteration (32C)", "MAML (32C)")
    return "; ".join(f"{name} {TABLE_4[name] / base:.1f}" for name in rows)


def _facts(options: argparse.Namespace) -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    return {
        "command": f"python -m benchmarks.learners {' '.join(sys.argv[1:])}".strip(),
        "machine": f"{processor or platform.processor()}, {os.cpu_count()} cores, {options.threads} threads",
        "versions": f"handful {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }


if __name__ == "__main__":
    main()
