"""How the work grows beyond one process: a fit by Dask with its examples, and training with its processes.

    python -m benchmarks.scale fit --examples 1000000 --classes 1000 --workers 2 --alone    # one size
    python -m benchmarks.scale peers --examples 30000 --classes 100                         # scikit-learn, in memory
    python -m benchmarks.scale ranks --embedding conv4-wide --processes 2 --alone           # training under torchrun
    python -m benchmarks.scale page                                                         # SCALE.md and its pictures

Each measurement is added to benchmarks/scale.json, in place of an older one of the same size.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from benchmarks.growth import exponent
from benchmarks.material import random_split
from handful._io import read_json, write_atomically
from handful.classifier import distributed
from handful.classifier.shards import Block
from handful.embeddings import ResNet12, conv4
from handful.episodes import EpisodeSampler, FixedShots
from handful.learners import R2D2
from handful.meta.config import Plan
from handful.meta.engine import Engine, prepare
from handful.meta.model import FewShotModel
from handful.meta.state import TrainingState
from handful.meta.steps import GradientMean
from handful.meta.train import seeded, train

HERE = Path(__file__).resolve().parent
RECORD, PAGE = HERE / "scale.json", "SCALE.md"
ROWS = 2048
"""Examples per block."""
PER_STEP, UPDATES = 4, 3
"""Episodes per update, and updates that are timed."""
EMBEDDINGS: dict[str, Callable[[], torch.nn.Module]] = {
    "conv4-64C": lambda: conv4("64C"),
    "conv4-wide": lambda: conv4("wide"),
    "resnet12": lambda: ResNet12(block_size=2),
}
SUMS = ("ordered", "fast", "ddp")


@lru_cache(maxsize=1)
def _means(way: int, features: int) -> Any:
    return 0.15 * np.random.default_rng(2**40).standard_normal((way, features), dtype=np.float32)


@dataclass(frozen=True)
class Synthetic:
    """Examples around random class means, made when a block is read: nothing is stored."""

    examples: int
    features: int
    way: int

    @property
    def classes(self) -> tuple[str, ...]:
        """Numbers as names."""
        return tuple(f"{number:05d}" for number in range(self.way))

    def __len__(self) -> int:
        return len(range(0, self.examples, ROWS))

    def read(self, number: int) -> Block:
        """A pure function of the number of the block."""
        n = min(ROWS, self.examples - number * ROWS)
        codes = (number * ROWS + np.arange(n)) % self.way
        drawn = np.random.default_rng(number).standard_normal((n, self.features), dtype=np.float32)
        drawn += _means(self.way, self.features)[codes]
        return Block(drawn.astype(np.float64), codes)


def fit(examples: int, features: int, classes: int, workers: int, lam: str) -> dict[str, Any]:
    """Seconds of both passes, peak memory of client and workers, and the accuracy that leave-one-out finds."""
    data, passes = Synthetic(examples, features, classes), []
    inside = distributed.summed

    def timed(*given: Any) -> Any:
        begun = time.perf_counter()
        found = inside(*given)
        passes.append(round(time.perf_counter() - begun, 2))
        return found

    distributed.summed = timed
    with distributed.cluster(f"local:{workers}") as client:
        before = [_used(), *client.run(_used).values()]  # workers have loaded the library before the clock starts
        begun = time.perf_counter()
        found = distributed.fit(data, client, "auto" if lam == "auto" else float(lam))
        seconds = time.perf_counter() - begun
        used = [_used(), *client.run(_used).values()]
    size = {"examples": examples, "features": features, "classes": classes, "workers": workers}
    return size | {
        "seconds": round(seconds, 2),
        "sums": passes[0],
        "leave_one_out": passes[1],
        "cpu_seconds": round(sum(after[1] - earlier[1] for after, earlier in zip(used, before, strict=True)), 2),
        "client_gb": round(used[0][0], 2),
        "worker_gb": round(max(peak for peak, _ in used[1:]), 2),
        "lam": found.lam,
        "accuracy": round(found.estimate.accuracy, 5),
    }


def _peak() -> float:
    """Gigabytes that this process has held at most."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20


def _used() -> tuple[float, float]:
    """The peak of this process, and the seconds of a processor that it has used."""
    return _peak(), time.process_time()


def peers(examples: int, features: int, classes: int, lam: float = 100.0) -> list[dict[str, Any]]:
    """Seconds of scikit-learn's Ridge and one epoch of SGDClassifier on the same examples, in memory."""
    from sklearn.linear_model import Ridge, SGDClassifier

    data = Synthetic(examples, features, classes)
    X, y = np.empty((examples, features)), np.empty(examples, dtype=np.int64)
    for number in range(len(data)):
        part = slice(number * ROWS, (number + 1) * ROWS)
        X[part], y[part] = (block := data.read(number)).features, block.codes
    rows = []
    for name, model, target in (
        ("Ridge", Ridge(alpha=lam, copy_X=False), np.eye(classes)[y]),
        ("SGDClassifier, 1 epoch", SGDClassifier(max_iter=1, tol=None, random_state=0), y),
    ):
        begun, spent = time.perf_counter(), time.process_time()
        model.fit(X, target)
        size = {"name": name, "examples": examples, "features": features, "classes": classes}
        taken = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - spent, "gb": _peak()}
        rows.append(size | {key: round(value, 2) for key, value in taken.items()})
    return rows


def rank(embedding: str, shots: int, queries: int) -> None:
    """What one process of torchrun does: time updates by each way to sum, and print what all processes saw."""
    engine = prepare("cpu", 1)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    sampler = EpisodeSampler(random_split(20, 20, 32), FixedShots(5, shots, queries))
    steps = {"ordered": _updates(embedding, sampler, engine)}
    seconds: dict[str, list[float]] = {each: [] for each in SUMS}
    for _ in range(2):
        next(steps["ordered"])
    peak = _peak()  # before the others take memory
    fast = Engine(rank=engine.rank, world=engine.world, reduce="fast")
    steps |= {"fast": _updates(embedding, sampler, fast), "ddp": _ddp_updates(embedding, sampler, engine)}
    for name in ("fast", "ddp"):
        next(steps[name])
    for _ in range(UPDATES):
        for name in SUMS:
            seconds[name].append(_timed(lambda each=steps[name]: next(each)))
    alone = {name: _sum_alone(embedding, each) for name, each in (("ordered", engine), ("fast", fast))}
    mine = {"peak_gb": round(peak, 3), "update": {name: statistics.median(found) for name, found in seconds.items()}}
    every: list[Any] = [None] * engine.world
    torch.distributed.all_gather_object(every, mine | {"sum": alone})
    if engine.leads:
        print(json.dumps(every))


def _timed(action: Callable[[], Any]) -> float:
    """Seconds of an action that all processes begin together."""
    torch.distributed.barrier()
    begun = time.perf_counter()
    action()
    torch.distributed.barrier()
    return time.perf_counter() - begun


def _model(embedding: str) -> FewShotModel:
    with seeded(0):
        return FewShotModel(EMBEDDINGS[embedding](), R2D2())


def _updates(embedding: str, sampler: EpisodeSampler, engine: Engine) -> Iterator[Any]:
    plan = Plan(episodes=10**6, episodes_per_step=PER_STEP, validate_every=0)
    return train(model := _model(embedding), sampler, state=TrainingState(model, plan), engine=engine)


def _ddp_updates(embedding: str, sampler: EpisodeSampler, engine: Engine) -> Iterator[Any]:
    """The same episodes by DistributedDataParallel, which sums while it goes backward through the last episode."""
    model = _model(embedding).train()
    wrapped, optimiser = DistributedDataParallel(model), torch.optim.Adam(model.parameters())
    mine = engine.share(PER_STEP, "episodes per step")
    while True:
        optimiser.zero_grad(set_to_none=True)
        for place in mine:
            episode = sampler[place]
            with nullcontext() if place == mine[-1] else wrapped.no_sync():
                loss = model.learner.objective(wrapped(episode), episode.query.targets) / len(mine)
                loss.backward()
        optimiser.step()
        yield


def _sum_alone(embedding: str, engine: Engine) -> float:
    """Median seconds of the sum of gradients alone, with all processes ready."""
    parameters = list(_model(embedding).parameters())
    taken = []
    for _ in range(11):
        gradients = GradientMean(parameters, PER_STEP, engine)
        for _ in engine.share(PER_STEP, "episodes per step"):
            for each in parameters:
                each.grad = torch.ones_like(each)
            gradients.take()
        taken.append(_timed(gradients.give))
    return statistics.median(taken)


def ranks(embedding: str, processes: int, shots: int, queries: int) -> dict[str, Any]:
    """Seconds per update and memory of each process, for one number of processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command += ["-m", "benchmarks.scale", "rank", "--embedding", embedding]
    command += ["--shots", str(shots), "--queries", str(queries)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    every = json.loads(done.stdout.splitlines()[-1])
    weights = sum(each.numel() for each in _model(embedding).parameters())
    size = {"embedding": embedding, "weights": weights, "processes": processes, "images": 5 * (shots + queries)}
    slowest = {
        kind: {name: round(max(each[kind][name] for each in every), 5) for name in every[0][kind]}
        for kind in ("update", "sum")
    }
    return size | slowest | {"gb_per_process": [each["peak_gb"] for each in every]}


def add(kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to the record; one of the same size is replaced."""
    keys = {
        "fit": ("examples", "features", "classes", "workers"),
        "peers": ("name", "examples", "features", "classes"),
        "ranks": ("embedding", "processes", "images"),
    }[kind]
    record = read_json(RECORD) if RECORD.exists() else {}
    new = {tuple(row[key] for key in keys): dict(row) for row in rows}
    kept = {tuple(row[key] for key in keys): row for row in record.get(kind, [])}
    record[kind] = [row for _, row in sorted((kept | new).items())]
    record["machine"] = _machine()
    write_atomically(RECORD, (json.dumps(record, indent=1) + "\n").encode())
    for row in rows:
        print(json.dumps(row))


def _machine() -> str:
    model = Path("/proc/cpuinfo").read_text().partition("model name")[2].partition("\n")[0].strip(": \t")
    return f"{os.cpu_count()} cores of {model}, Python {platform.python_version()}, torch {torch.__version__}"


Rows = list[dict[str, Any]]
COLOURS = {"ordered": "#0072b2", "fast": "#d55e00", "ddp": "#009e73"}
NAMES = {"ordered": "ordered sum", "fast": "all-reduce", "ddp": "DDP"}


def series(rows: Rows, axis: str, **fixed: Any) -> Rows:
    """The fits that differ in one size alone."""
    return sorted(
        (row for row in rows if all(row[key] == value for key, value in fixed.items())), key=lambda row: row[axis]
    )


INTRODUCTION = """# Beyond one process

Written by `python -m benchmarks.scale page` from `benchmarks/scale.json`; `benchmarks/scale.py` names the commands that
measured it. Machine: {machine}. Examples are made on the fly, by seed.

## A fit by Dask

Lambda is chosen, every example is held out exactly, and nothing is stored. Processor seconds are those of client and
workers together, without starting them; other programs used the same core. Seconds are given where nothing else ran on
the machine.

![Time and memory of a fit](scale-fit.svg)
"""
PEERS = "scikit-learn on the same examples, in memory, one thread. It neither chooses lambda nor holds out an example:"
TRAINING = """## Training under torchrun

One update of R2-D2 from {episodes} episodes of 32x32 images, one thread per process, gloo on one machine with nothing
else running. It has two cores: four processes share them, so their seconds show the overhead of sharing, and no gain.
The sum is timed by itself too, when all processes are ready. Medians, of the slowest process.

![Time and memory per process](scale-ranks.svg)
"""
FIT_COLUMNS = (
    "Examples",
    "Features",
    "Classes",
    "Workers",
    "Processor s",
    "Seconds",
    "Client, GB",
    "Worker, GB",
    "Right",
)
PEER_COLUMNS = ("Estimator", "Examples", "Features", "Classes", "Processor s", "GB")
RANK_COLUMNS = (
    *("Embedding", "Weights", "Images per episode", "Processes"),
    *("Update: ordered", "all-reduce", "DDP", "Sum: ordered", "all-reduce", "GB per process"),
)


def page(record: dict[str, Any], out: Path = HERE) -> None:
    """Draw both pictures and write the page around them."""
    draw_fits(record, out / "scale-fit.svg")
    draw_ranks(record["ranks"], out / "scale-ranks.svg")
    lines = [
        INTRODUCTION.format(machine=record["machine"]),
        *_table(FIT_COLUMNS, [_fit_cells(row) for row in record["fit"]]),
        "",
        PEERS,
        "",
        *_table(PEER_COLUMNS, [_peer_cells(row) for row in record["peers"]]),
        "",
        TRAINING.format(episodes=PER_STEP),
        *_table(RANK_COLUMNS, [_rank_cells(row) for row in record["ranks"]]),
    ]
    write_atomically(out / PAGE, ("\n".join(lines) + "\n").encode())


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (names, ["---:"] * len(names), *rows)]


def _fit_cells(row: Mapping[str, Any]) -> list[str]:
    sizes = [f"{row[key]:,}" for key in ("examples", "features", "classes", "workers")]
    seconds = f"{row['seconds']:.0f}" if row.get("alone") else ""
    return [
        *sizes,
        f"{row['cpu_seconds']:.1f}",
        seconds,
        f"{row['client_gb']:.2f}",
        f"{row['worker_gb']:.2f}",
        f"{row['accuracy']:.2%}",
    ]


def _peer_cells(row: Mapping[str, Any]) -> list[str]:
    sizes = [f"{row[key]:,}" for key in ("examples", "features", "classes")]
    return [row["name"], *sizes, f"{row['cpu_seconds']:.1f}", f"{row['gb']:.2f}"]


def _rank_cells(row: Mapping[str, Any]) -> list[str]:
    updates = [f"{row['update'][name]:.2f} s" for name in SUMS]
    sums = [f"{1000 * row['sum'][name]:.1f} ms" for name in ("ordered", "fast")]
    sizes = [f"{row['weights']:,}", str(row["images"]), str(row["processes"])]
    return [row["embedding"], *sizes, *updates, *sums, f"{max(row['gb_per_process']):.2f}"]


def draw_fits(record: dict[str, Any], path: Path) -> None:
    """Time against examples, classes and features, and memory against examples."""
    figure, pyplot = _canvas(2, 2)
    (time_axes, memory), others = figure.subplots(2, 2)
    largest = max(record["fit"], key=lambda row: row["examples"])
    usual = {"features": 1280, "classes": 100}
    ours = series(record["fit"], "examples", workers=1, **usual)
    lines: list[tuple[str, Rows, str, str]] = [("handful, held out and lambda chosen", ours, "#0072b2", "o")]
    for name, colour, marker in (("Ridge", "#d55e00", "s"), ("SGDClassifier, 1 epoch", "#009e73", "^")):
        lines.append((f"scikit-learn {name}", series(record["peers"], "examples", name=name, **usual), colour, marker))
    for label, rows, colour, marker in lines:
        x, y = [row["examples"] for row in rows], [row["cpu_seconds"] for row in rows]
        time_axes.loglog(x, y, color=colour, marker=marker, label=f"{label}: exponent {exponent(x, y):.2f}")
    title = f"{largest['examples']:,} examples, {largest['classes']:,} classes, {largest['workers']} workers"
    time_axes.loglog([largest["examples"]], [largest["cpu_seconds"]], "*", color="#0072b2", markersize=12, label=title)
    for key, colour, marker in (("worker_gb", "#0072b2", "o"), ("client_gb", "#56b4e9", "v")):
        name = f"handful, {key.removesuffix('_gb')}"
        memory.semilogx(
            [row["examples"] for row in ours], [row[key] for row in ours], color=colour, marker=marker, label=name
        )
        memory.semilogx([largest["examples"]], [largest[key]], "*", color=colour, markersize=12)
    held = lines[1][1]
    memory.semilogx(
        [row["examples"] for row in held],
        [row["gb"] for row in held],
        color="#d55e00",
        marker="s",
        label="scikit-learn",
    )
    memory.axhline(4, color="#777777", linestyle="--", linewidth=1, label="aim: 4 GB per process")
    memory.set_ylim(0, 4.4)
    for axes, axis, fixed in (
        (others[0], "classes", {"features": 1280}),
        (others[1], "features", {"classes": 100}),
    ):
        rows = series(record["fit"], axis, examples=30_000, workers=1, **fixed)
        x, y = [row[axis] for row in rows], [row["cpu_seconds"] for row in rows]
        label = f"handful, 30,000 examples: exponent {exponent(x, y):.2f}"
        axes.loglog(x, y, color="#0072b2", marker="o", label=label)
        axes.set_xticks(x, [f"{value:,}" for value in x])
        axes.minorticks_off()
        axes.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
        axes.set_xlabel(axis)
    for axes in (time_axes, memory):
        axes.set_xlabel("examples (1,280 features, 100 classes)")
    for axes in (time_axes, *others):
        axes.set_ylabel("processor seconds")
    memory.set_ylabel("peak memory of a process, GB")
    _save(figure, pyplot, path)


def draw_ranks(rows: Rows, path: Path) -> None:
    """Seconds per update above memory of each process, one column per embedding."""
    embeddings = [name for name in EMBEDDINGS if any(row["embedding"] == name for row in rows)]
    figure, pyplot = _canvas(2, len(embeddings))
    grid = figure.subplots(2, len(embeddings), squeeze=False)
    for column, name in enumerate(embeddings):
        found = series(rows, "processes", embedding=name)
        processes = [row["processes"] for row in found]
        for way in SUMS:
            grid[0, column].plot(
                processes, [row["update"][way] for row in found], "o-", color=COLOURS[way], label=NAMES[way]
            )
        each = [(row["processes"], gb) for row in found for gb in row["gb_per_process"]]
        grid[1, column].plot(*zip(*each, strict=True), "o", color=COLOURS["ordered"], label="one process, ordered sum")
        grid[0, column].set_title(f"{name}, {found[0]['weights']:,} weights", fontsize=9)
        for axes in grid[:, column]:
            axes.set_xticks(processes)
            axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
            axes.set_xlabel("processes (on two cores)")
    grid[0, 0].set_ylabel("seconds per update")
    grid[1, 0].set_ylabel("peak memory, GB")
    _save(figure, pyplot, path)


def _canvas(rows: int, columns: int) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams["svg.hashsalt"] = "handful"
    return pyplot.figure(figsize=(4.6 * columns, 3.2 * rows), layout="constrained"), pyplot


def _save(figure: Any, pyplot: Any, path: Path) -> None:
    for axes in figure.axes:
        axes.legend(fontsize=7, frameon=False)
        axes.grid(alpha=0.25)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Parse, measure, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "peers", "ranks", "rank", "page"))
    numbers = {"examples": 10_000, "features": 1280, "classes": 100, "workers": 1, "processes": 1}
    for name, default in (numbers | {"shots": 1, "queries": 5}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lam", default="auto")
    parser.add_argument("--alone", action="store_true", help="nothing else runs on this machine, so seconds count")
    parser.add_argument("--embedding", choices=tuple(EMBEDDINGS), default="conv4-64C")
    given = parser.parse_args()
    size = given.examples, given.features, given.classes
    if given.what == "fit":
        add("fit", [fit(*size, given.workers, given.lam) | {"alone": given.alone}])
    elif given.what == "peers":
        add("peers", peers(*size))
    elif given.what == "rank":
        rank(given.embedding, given.shots, given.queries)
    elif given.what == "ranks":
        add("ranks", [ranks(given.embedding, given.processes, given.shots, given.queries) | {"alone": given.alone}])
    else:
        page(read_json(RECORD))


if __name__ == "__main__":
    main()
