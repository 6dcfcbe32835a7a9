"""FewShotClassifier against refits of scikit-learn's classifiers: fitting, adding, forgetting, predicting.

    python -m benchmarks.estimator

50 classes of 20 images, 1280 features a piece as from the cache, one thread, interleaved, medians. Every function
returns a dictionary from contestant to its median time in milliseconds, the first being ours. Fitting chooses lambda
among 13 and the scale by leave-one-out; RidgeClassifierCV is the peer that chooses among as many.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeClassifier, RidgeClassifierCV
from threadpoolctl import threadpool_limits

from handful import FewShotClassifier
from handful.classifier.selection import GRID

CLASSES, SHOTS, E = 50, 20, 1280


def examples(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Features of length 1 whose classes differ by a shift."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(CLASSES, E))
    features = centres.repeat(SHOTS, 0) + 2.0 * rng.normal(size=(CLASSES * SHOTS, E))
    return features / np.linalg.norm(features, axis=1, keepdims=True), np.arange(CLASSES).repeat(SHOTS)


def peers(alpha: float) -> dict[str, Callable[[], Any]]:
    """scikit-learn's classifiers, to be fitted anew whenever an example comes or goes."""
    return {
        "RidgeClassifier": lambda: RidgeClassifier(alpha),
        "RidgeClassifierCV, 13 lambdas": lambda: RidgeClassifierCV(np.array(GRID)),
        "LogisticRegression": LogisticRegression,
    }


def interleaved(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each contestant in milliseconds; all run in turn, the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    with threadpool_limits(1):
        for number in range(rounds + 1):
            for name, act in contestants.items():
                start = time.perf_counter()
                act()
                if number:
                    times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(each) for name, each in times.items()}


def fitting(rounds: int = 5) -> dict[str, float]:
    """A first fit, all choices included."""
    X, y = examples()
    ours = {"FewShotClassifier": lambda: FewShotClassifier().fit(X, y)}
    given = {"FewShotClassifier(lam=1)": lambda: FewShotClassifier(lam=1.0).fit(X, y)}
    return interleaved({**ours, **given, **_refits(X, y)}, rounds)


def adding(rounds: int = 9) -> dict[str, float]:
    """One more example, up to the next prediction."""
    X, y = examples()
    new, query = examples(1)[0][:1], examples(2)[0][:1]
    fitted = FewShotClassifier().fit(X, y)
    more, labels = np.vstack([X, new]), np.append(y, y[0])

    def add() -> object:
        return copy.copy(fitted).partial_fit(new, y[:1]).predict(query)

    return interleaved({"FewShotClassifier.partial_fit": add, **_refits(more, labels)}, rounds)


def new_class(rounds: int = 9) -> dict[str, float]:
    """Five examples of a class never seen, up to the next prediction."""
    X, y = examples()
    new, query = examples(1)[0][:5], examples(2)[0][:1]
    fitted = FewShotClassifier().fit(X, y)
    more, labels = np.vstack([X, new]), np.append(y, [CLASSES] * 5)

    def add() -> object:
        return copy.copy(fitted).partial_fit(new, [CLASSES] * 5).predict(query)

    return interleaved({"FewShotClassifier.partial_fit": add, **_refits(more, labels)}, rounds)


def forgetting(rounds: int = 9) -> dict[str, float]:
    """One example less, up to the next prediction."""
    X, y = examples()
    query = examples(2)[0][:1]
    fitted = FewShotClassifier().fit(X, y)
    less, labels = np.delete(X, 500, 0), np.delete(y, 500)

    def forget() -> object:
        return copy.copy(fitted).forget(index=500).predict(query)

    return interleaved({"FewShotClassifier.forget": forget, **_refits(less, labels)}, rounds)


def predicting(rounds: int = 200) -> dict[str, float]:
    """The label of one example whose features are known."""
    X, y = examples()
    query = examples(2)[0][:1]
    fitted = {"FewShotClassifier": FewShotClassifier().fit(X, y)}
    fitted |= {name: make().fit(X, y) for name, make in peers(1.0).items()}
    return interleaved({name: lambda model=model: model.predict(query) for name, model in fitted.items()}, rounds)


def _refits(X: NDArray[np.float64], y: NDArray[np.int64]) -> dict[str, Callable[[], object]]:
    return {f"{name}.fit": lambda make=make: make().fit(X, y) for name, make in peers(1.0).items()}


def main() -> None:
    """Print every comparison with its ratios to ours."""
    runs = {
        "fit 50 classes x 20 images on cached features": fitting(),
        "add an image": adding(),
        "add a class of 5 images": new_class(),
        "forget an image": forgetting(),
        "predict one image": predicting(),
    }
    for title, medians in runs.items():
        print(title)
        ours = next(iter(medians.values()))
        for name, median in medians.items():
            print(f"    {name:40} {median:9.2f} ms   {median / ours:6.2f}x")


if __name__ == "__main__":
    main()
