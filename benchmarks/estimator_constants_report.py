"""What validation tasks say about each constant of FewShotClassifier: which value is best, and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Measured = dict[str, dict[float, float]]
"""For each constant and each of its values, what one task says."""


@dataclass(frozen=True)
class Constant:
    """A constant: the values that it might have, the one that it has, and what tells them apart."""

    name: str
    values: tuple[float, ...]
    shipped: float
    criterion: str

    @property
    def sign(self) -> int:
        """1 where more is better."""
        return -1 if self.criterion == "log loss" else 1


def verdict(constant: Constant, rows: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    """Every value's mean on each data set, its paired gain over the shipped one over all tasks, and the best value.

    The shipped value is beaten if the best one gains more than its 95% interval.
    """
    tables = {
        name: np.array([[row[constant.name][v] for v in constant.values] for row in found if constant.name in row])
        for name, found in rows.items()
    }
    shipped = int(np.argmin(np.abs(np.array(constant.values) - constant.shipped)))
    every = np.concatenate(list(tables.values()))
    gains = constant.sign * (every - every[:, [shipped]])
    half = 1.96 * gains.std(0, ddof=1) / math.sqrt(len(gains))
    best = int(gains.mean(0).argmax())
    return {
        "constant": constant.name,
        "criterion": constant.criterion,
        "tasks": len(every),
        "values": list(constant.values),
        "means": {name: table.mean(0).tolist() for name, table in tables.items()},
        "gain_over_shipped": gains.mean(0).tolist(),
        "gain_ci95": half.tolist(),
        "shipped": constant.values[shipped],
        "best": constant.values[best],
        "beaten": bool(gains.mean(0)[best] > half[best]),
    }


def report(facts: Mapping[str, Any]) -> str:
    """The verdicts as Markdown."""
    sets = list(facts["rules"])
    lines = [
        "# The constants of the classifier, chosen on validation classes",
        "",
        "Random tasks like those of [own-images.md](own-images.md), from the validation classes of CIFAR-FS "
        "(features of EfficientNet-Lite0) and of Omniglot (the weights that come with handful); no test class was "
        "looked at. One constant varies at a time, the others are as shipped. A shipped value stays unless another is "
        "better by more than the paired 95% interval over all tasks. The values were chosen on tasks of the same seed. "
        f"Made by `{facts['command']}`.",
        "",
        f"| constant | measured by | value | {' | '.join(sets)} | better than shipped by |",
        "| --- | --- | --- |" + " --- |" * (len(sets) + 1),
    ]
    for found in facts["constants"]:
        lines += _rows(found, sets)
    beaten = [found["constant"] for found in facts["constants"] if found["beaten"]]
    lines += ["", f"Beaten: {', '.join(beaten)}." if beaten else "No shipped value is beaten.", ""]
    lines += [f"| rule | {' | '.join(sets)} |", "| --- |" + " --- |" * len(sets)]
    for rule in facts["rules"][sets[0]]:
        lines.append(f"| {rule} | " + " | ".join(f"{facts['rules'][name][rule]:.1%}" for name in sets) + " |")
    return "\n".join([*lines, ""])


def _rows(found: Mapping[str, Any], sets: Sequence[str]) -> list[str]:
    lines = []
    for i, value in enumerate(found["values"]):
        means = " | ".join(f"{found['means'][name][i]:.4f}" for name in sets)
        ours = value == found["shipped"]
        gain = "shipped" if ours else f"{found['gain_over_shipped'][i]:+.4f} ± {found['gain_ci95'][i]:.4f}"
        shown = f"**{value:.3g}**" if ours else f"{value:.3g}"
        lines.append(f"| {found['constant']} | {found['criterion']} | {shown} | {means} | {gain} |")
    return lines
