"""What 200 tasks say: means with intervals, a table in Markdown, a picture."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handful._io import write_atomically

FALSE_REJECTION = 0.05
OURS = "FewShotClassifier"
Rows = list[dict[str, Any]]
"""One dictionary a task."""


def summary(rows: Rows) -> dict[str, Any]:
    """Means over tasks, with 95% intervals, and paired differences to ours."""
    accuracy = {name: np.array([row["accuracy"][name] for row in rows]) for name in rows[0]["accuracy"]}
    estimate, truth = _column(rows, "estimate"), _column(rows, "matched_accuracy")
    inside = (_column(rows, "low") <= truth) & (truth <= _column(rows, "high"))
    shown = (_column(rows, "shown_low") <= truth) & (truth <= _column(rows, "shown_high"))
    return {
        "tasks": len(rows),
        "accuracy": {name: _mean(values) for name, values in accuracy.items()},
        "ours_minus": {name: _mean(accuracy[OURS] - values) for name, values in accuracy.items() if name != OURS},
        "estimate": {
            "correlation": float(np.corrcoef(estimate, truth)[0, 1]),
            "mean_error": float(np.mean(estimate - truth)),
            "mean_absolute_error": float(np.mean(np.abs(estimate - truth))),
            "interval_covers": float(inside.mean()),
            "interval_for_the_queries_covers": float(shown.mean()),
        },
        "ece": {
            "before": _pooled_ece(rows, "_before"),
            "after": _pooled_ece(rows, ""),
            "before_by_task": float(_column(rows, "ece_before").mean()),
            "after_by_task": float(_column(rows, "ece").mean()),
        },
        "unknown": {name: float(np.nanmean(_column(rows, name))) for name in ("auroc", "false_rejection", "detection")},
    }


def _column(rows: Rows, name: str) -> NDArray[np.float64]:
    return np.array([row[name] for row in rows], dtype=float)


def _mean(values: NDArray[np.float64]) -> dict[str, float]:
    return {"mean": float(values.mean()), "ci95": float(1.96 * values.std(ddof=1) / math.sqrt(len(values)))}


def _pooled(rows: Rows, suffix: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    confidences = np.concatenate([row[f"confidences{suffix}"] for row in rows])
    return confidences, np.concatenate([row[f"right{suffix}"] for row in rows]).astype(float)


def _pooled_ece(rows: Rows, suffix: str, bins: int = 15) -> float:
    confidences, right = _pooled(rows, suffix)
    bin_of = np.minimum((confidences * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(bin_of, weights=confidences - right, minlength=bins)).sum() / len(right))


def plot(results: dict[str, Rows], path: Path) -> None:
    """Estimate against truth, confidence against accuracy, and how well strangers are told."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for (name, rows), colour in zip(results.items(), ("#0b6bcb", "#d9480f"), strict=True):
        left.plot(
            _column(rows, "matched_accuracy"), _column(rows, "estimate"), "o", ms=4, alpha=0.6, color=colour, label=name
        )
        for suffix, style in (("_before", ":"), ("", "-")):
            confidences, correct = _pooled(rows, suffix)
            edges = np.quantile(confidences, np.linspace(0, 1, 11))
            bin_of = np.clip(np.searchsorted(edges, confidences, side="right") - 1, 0, 9)
            points = [
                (confidences[bin_of == b].mean(), correct[bin_of == b].mean()) for b in range(10) if (bin_of == b).any()
            ]
            label = f"{name}, {'before' if suffix else 'after'}"
            middle.plot(*zip(*points, strict=True), style, marker=".", color=colour, label=label)
        bins = {"bins": 20, "range": (0.5, 1), "color": colour}
        right.hist(_column(rows, "auroc"), alpha=0.25, **bins)
        right.hist(_column(rows, "auroc"), histtype="step", lw=1.8, label=name, **bins)
    for axes in (left, middle):
        axes.plot([0, 1], [0, 1], color="#999999", lw=1, zorder=0)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), aspect="equal")
    least = min(
        float(_column(rows, name).min()) for rows in results.values() for name in ("estimate", "matched_accuracy")
    )
    lowest = math.floor(20 * least - 1) / 20
    left.set(xlim=(lowest, 1.01), ylim=(lowest, 1.01))
    right.set(xlim=(0.5, 1))
    right.yaxis.get_major_locator().set_params(integer=True)
    left.set(title="Leave-one-out against truth", xlabel="accuracy on new images", ylabel="leave-one-out estimate")
    middle.set(title="Calibration, before and after", xlabel="confidence", ylabel="accuracy")
    right.set(title="Telling strangers", xlabel="AUROC of the unknown score", ylabel="tasks")
    for axes in (left, middle, right):
        axes.legend(frameon=False, fontsize=8)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=110)
    plt.close(figure)
    write_atomically(path, target.getvalue())


def report(summaries: dict[str, dict[str, Any]], about: dict[str, str], command: str) -> str:
    """The results as Markdown."""
    names = list(next(iter(summaries.values()))["accuracy"])
    head = " | ".join(f"{name}: {about[name]}" for name in summaries)
    lines = [
        "# A classifier for a handful of images, on real tasks",
        "",
        f"{sum(s['tasks'] for s in summaries.values())} random tasks of 5 to 20 classes with 1 to 10 images each, "
        "every class with its own number of images; queries are balanced. All methods see the same features. "
        f"Made by `{command}`; inductive, one query at a time.",
        "",
        f"| accuracy, % | {head} |",
        "| --- |" + " --- |" * len(summaries),
    ]
    for name in names:
        cells = [
            f"{100 * s['accuracy'][name]['mean']:.1f} ± {100 * s['accuracy'][name]['ci95']:.1f}"
            for s in summaries.values()
        ]
        gaps = [
            ""
            if name == OURS
            else f" (ours {100 * s['ours_minus'][name]['mean']:+.1f} ± {100 * s['ours_minus'][name]['ci95']:.1f})"
            for s in summaries.values()
        ]
        lines.append(f"| {name} | " + " | ".join(cell + gap for cell, gap in zip(cells, gaps, strict=True)) + " |")
    lines += [
        "",
        "Intervals are 95% over tasks; the differences are paired. The constants of ours were chosen on validation "
        "classes, which share none with these ([estimator-constants.md](estimator-constants.md)). An earlier version "
        "was measured on these same tasks, and the rules of interval and threshold were changed after it.",
        "",
    ]
    lines += [f"| | {' | '.join(summaries)} |", "| --- |" + " --- |" * len(summaries)]
    for label, group, key, form in (
        ("leave-one-out: correlation with the true accuracy", "estimate", "correlation", "{:.2f}"),
        ("leave-one-out: mean error, points", "estimate", "mean_error", "{:+.1%}"),
        ("leave-one-out: mean absolute error, points", "estimate", "mean_absolute_error", "{:.1%}"),
        (
            "tasks whose 95% interval for so many images holds it",
            "estimate",
            "interval_for_the_queries_covers",
            "{:.0%}",
        ),
        ("tasks whose 95% interval of the accuracy holds it", "estimate", "interval_covers", "{:.0%}"),
        ("calibration error before (softmax of the predictions)", "ece", "before", "{:.3f}"),
        ("calibration error after", "ece", "after", "{:.3f}"),
        ("AUROC of the unknown score", "unknown", "auroc", "{:.3f}"),
        (f"known queries rejected at the threshold for {FALSE_REJECTION:.0%}", "unknown", "false_rejection", "{:.1%}"),
        ("strangers rejected there", "unknown", "detection", "{:.1%}"),
    ):
        cells = [form.format(s[group][key]) for s in summaries.values()]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "The true accuracy that leave-one-out is compared with is that on new images in the examples' own mix of "
        "classes, for classes with at least two examples. Each held-out example leaves its class one image short, "
        "so the estimate tends to lie below the truth, most so where classes have two or three images. The truth "
        "itself is a sample of 50 (cifar-fs) or 10 (omniglot) queries a class, so the interval to compare it with is "
        "that for so many new images, `score_estimate_.interval(images)`.",
        "",
        "![Leave-one-out against truth, calibration, and telling strangers](own-images.png)",
        "",
    ]
    return "\n".join(lines)
