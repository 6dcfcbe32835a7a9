"""Accuracy against time of the embeddings for photographs, on folders of class folders.

    python -m benchmarks.photo_embeddings --validation flowers/ leaves/ --test birds/ pets/ textures/

The default is chosen on the validation sets. Times are of one thread of the CPU, decoding included; a set is cut to 15
classes of 20 images.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from handful.classifier.embedder import choose_embedder, unit_rows
from handful.classifier.examples import Options, Source, fit_state
from handful.classifier.features import embed
from handful.classifier.inputs import Matrix, Picture, class_folders

EMBEDDINGS = ("photographs", "efficientnet-lite2", "photographs-large")
CLASSES, IMAGES, WAY, TASKS, SEED = 15, 20, 10, 30, 0
SHOTS = (1, 5)
TARGET = Path("results/photo-embeddings.md")


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--validation", type=Path, nargs="+", required=True)
    parser.add_argument("--test", type=Path, nargs="+", required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sets = [*asked.validation, *asked.test]
    rows: dict[str, list[str]] = {name: [] for name in EMBEDDINGS}
    spent: dict[str, list[float]] = {name: [] for name in EMBEDDINGS}
    for folder in sets:
        paths, labels = sample(folder)
        features: dict[str, Matrix] = {}
        for name in EMBEDDINGS:
            embedder = choose_embedder(name, ())
            if len(embedder.parts) > 1:  # what is measured already, side by side
                features[name] = unit_rows(np.hstack([features[part.name] for part in embedder.parts]))
                spent[name].append(sum(spent[part.name][-1] for part in embedder.parts))
                continue
            start = time.process_time()
            features[name] = embed(paths, embedder, None, thumbnails=False).features
            spent[name].append(1000 * (time.process_time() - start) / len(paths))
        for shot in SHOTS:
            for name, (mean, half) in accuracies(features, labels, shot).items():
                rows[name].append(f"{100 * mean:.1f} ± {100 * half:.1f}")
        print(folder, {name: cells[-len(SHOTS) :] for name, cells in rows.items()}, flush=True)
    write(sets, len(asked.validation), rows, spent)


def sample(folder: Path) -> tuple[list[Picture], np.ndarray]:
    """Pictures and labels of some classes, chosen at random once and for all."""
    found = class_folders(folder)
    rng = np.random.default_rng(SEED)
    chosen = rng.permutation(np.unique(found.labels))[:CLASSES]
    rows = np.concatenate([np.flatnonzero(found.labels == label)[:IMAGES] for label in chosen])
    return [found.pictures[row] for row in rows], found.labels[rows]


def accuracies(features: dict[str, Matrix], labels: np.ndarray, shot: int) -> dict[str, tuple[float, float]]:
    """The mean accuracy of each embedding over the same tasks, with half its 95% interval."""
    rng = np.random.default_rng(SEED)
    found: dict[str, list[float]] = {name: [] for name in features}
    for _ in range(TASKS):
        classes = rng.permutation(np.unique(labels))[:WAY]
        rows = [rng.permutation(np.flatnonzero(labels == label)) for label in classes]
        support, query = (np.concatenate([row[part] for row in rows]) for part in (slice(shot), slice(shot, None)))
        for name, matrix in features.items():
            state = fit_state(Options(), matrix[support], labels[support], [Source()] * len(support))
            guesses = state.classes[state.scores(matrix[query]).argmax(1)]
            found[name].append(float((guesses == labels[query]).mean()))
    return {name: (float(np.mean(each)), 1.96 * float(np.std(each)) / TASKS**0.5) for name, each in found.items()}


def write(sets: Sequence[Path], validation: int, rows: dict[str, list[str]], spent: dict[str, list[float]]) -> None:
    """The table in Markdown, with what was run and where."""
    part = ["validation" if number < validation else "test" for number in range(len(sets))]
    head = [f"{folder.name}, {shot}-shot ({part[number]})" for number, folder in enumerate(sets) for shot in SHOTS]
    given = [" ".join(f"{each.name}/" for each in some) for some in (sets[:validation], sets[validation:])]
    where = f"Python {platform.python_version()} on {platform.machine()} {platform.system()}"
    lines = [
        "# Embeddings for photographs: accuracy against time",
        "",
        f"Accuracy in percent of ridge regression over {TASKS} random {WAY}-way tasks (seed {SEED}), 95% intervals;",
        "milliseconds of CPU per image in ONNX Runtime with one thread, decoding included, while other work shared the",
        "machine. The default, `photographs-large`, was chosen on the validation sets.",
        "",
        f"| embedding | ms | {' | '.join(head)} |",
        f"| --- | ---: |{' ---: |' * len(head)}",
        *(f"| `{name}` | {np.mean(spent[name]):.0f} | {' | '.join(cells)} |" for name, cells in rows.items()),
        "",
        f"`python -m benchmarks.photo_embeddings --validation {given[0]} --test {given[1]}`, {where}",
    ]
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
