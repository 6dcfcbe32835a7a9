"""How a fit by Dask grows with examples: time, memory of each process, and scikit-learn on sizes that it can hold.

python -m benchmarks.scale --examples 1000000 --features 1280 --classes 1000 --workers 1
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from handful.classifier.distributed import cluster, fit
from handful.classifier.shards import Block

ROWS = 2048


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
        generator = np.random.default_rng(number)
        means = np.random.default_rng(2**40).standard_normal((self.way, self.features), dtype=np.float32)
        codes = (number * ROWS + np.arange(n)) % self.way
        noise = generator.standard_normal((n, self.features), dtype=np.float32)
        return Block((0.15 * means[codes] + noise).astype(np.float64), codes)


def measure(data: Synthetic, workers: int, lam: float) -> dict[str, Any]:
    """Seconds, peak memory of client and workers, and the accuracy that leave-one-out finds."""
    with cluster(f"local:{workers}") as client:
        begun = time.perf_counter()
        found = fit(data, client, lam)
        seconds = time.perf_counter() - begun
        peaks = client.run(_peak).values()
    return {
        "examples": data.examples,
        "features": data.features,
        "classes": data.way,
        "workers": workers,
        "seconds": round(seconds, 1),
        "client_gb": round(_peak(), 2),
        "worker_gb": round(max(peaks), 2),
        "leave_one_out": round(found.estimate.accuracy, 4),
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def compare(data: Synthetic, lam: float) -> dict[str, Any]:
    """Seconds of scikit-learn's Ridge and one epoch of SGDClassifier on the same examples, in memory."""
    from sklearn.linear_model import Ridge, SGDClassifier

    blocks = [data.read(number) for number in range(len(data))]
    X, y = np.concatenate([each.features for each in blocks]), np.concatenate([each.codes for each in blocks])
    times = {}
    for name, model, target in (
        ("sklearn Ridge", Ridge(alpha=lam), np.eye(data.way)[y]),
        ("sklearn SGDClassifier, 1 epoch", SGDClassifier(max_iter=1, tol=None), y),
    ):
        begun = time.perf_counter()
        model.fit(X, target)
        times[name] = round(time.perf_counter() - begun, 1)
    return times


def main() -> None:
    """Measure one size and print it as JSON."""
    parser = argparse.ArgumentParser()
    for name, default in (("examples", 10_000), ("features", 1280), ("classes", 100), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lam", type=float, default=100.0)
    parser.add_argument("--compare", action="store_true")
    given = parser.parse_args()
    data = Synthetic(given.examples, given.features, given.classes)
    print(json.dumps(measure(data, given.workers, given.lam) | (compare(data, given.lam) if given.compare else {})))


if __name__ == "__main__":
    main()
