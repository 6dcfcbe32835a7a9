"""The weights of a report: the tested checkpoints of complete runs of small networks, each with a model card."""

from __future__ import annotations

import json
from pathlib import Path

from handful._io import write_atomically
from handful.meta.checkpoint import read_checkpoint, write_checkpoint
from handful.paper.report import Block, Heading, Lines, markdown
from handful.paper.results import Cell, Outcome, Results, Score

FOLDER = "weights"
MOST_BYTES = 1_500_000
"""Larger files stay with their runs: a 64C network has 0.5 MB, the wide one 10 MB and more."""
CARDS = {"test": ".md", "val": ".validation.md"}
"""A run may be in experiments of both kinds, and the weights then have both cards."""
EPISODES = {"test": "Test episodes", "val": "Validation episodes"}
UNSEEN = {"test": "classes that training never saw", "val": "validation classes, which also chose the checkpoint"}
HEAD = ("accuracy, %", "open interval", "episodes")


def keep_weights(results: Results, out: Path) -> list[Path]:
    """Write OUT/weights/NAME.safetensors and a model card for every small, tested checkpoint of a complete run."""
    written: list[Path] = []
    for score, cells in _kept(results):
        manifest, checkpoint = score.manifest, score.measurement.checkpoint
        tensors, facts = read_checkpoint(score.folder / f"{checkpoint}.safetensors")
        weights = {name: value for name, value in tensors.items() if name.startswith("model.")}
        if sum(value.nbytes for value in weights.values()) > MOST_BYTES:
            continue
        name = f"{manifest.name.replace('/', '--')}-seed{manifest.recipe.seed}-{checkpoint}"
        path = out / FOLDER / f"{name}.safetensors"
        write_checkpoint(path, weights, facts)
        card = path.with_suffix(CARDS[results.experiment.split])
        write_atomically(card, _card(score, cells, results, path).encode())
        written += [path, card]
    return written


def _kept(results: Results) -> list[tuple[Score, list[Cell]]]:
    """The tested checkpoints of complete, unchanged runs, each with the cells that it was tested for."""
    found: dict[tuple[Path, str], tuple[Score, list[Cell]]] = {}
    for cell in results.cells:
        for score in cell.scores:
            if score.manifest.completion.complete and not score.manifest.altered:
                found.setdefault((score.folder, score.measurement.checkpoint), (score, []))[1].append(cell)
    return list(found.values())


def _card(score: Score, cells: list[Cell], results: Results, path: Path) -> str:
    manifest, measured = score.manifest, score.measurement
    recipe, best = manifest.recipe, measured.checkpoint.startswith("best")
    seed = f" --seed {recipe.seed}" if recipe.seed else ""
    changes = f", changed: {manifest.changes}" if manifest.changes else ""
    alone = "" if changes else f"`handful train --recipe {manifest.name}{seed} --out RUN`, or "
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    blocks: list[Block] = [
        f"The {recipe.learner} learner on a {recipe.width} network, trained on {manifest.data} by the recipe "
        f"`{manifest.name}`{changes}. {str(manifest.completion).capitalize()}.",
        _accuracies(score, cells, results.experiment.split),
        f"Accuracies are of {UNSEEN[results.experiment.split]}, with 1.96 standard errors over episodes; the open "
        f"interval is over episodes that share no image. {measured.limits.capitalize()}. Of the run's checkpoints this "
        f"is `{measured.checkpoint}`{', chosen on validation classes' if best else ''}.",
        Heading("How to load it"),
        f'    handful evaluate {path.name}\n\n    import handful\n    model = handful.load_model("{path.name}")',
        Heading("How it was made"),
        f"- {alone}`{results.command}`\n"
        f"- data: {manifest.data}, SHA-256 of classes and pixels `{manifest.content}`\n"
        f"- {measured.episodes_trained:,} episodes at this checkpoint, seed {recipe.seed}; {versions}",
        "The recipe in full:",
        "```json\n" + json.dumps(recipe.as_json(), indent=1) + "\n```",
        Heading("Limits and licence"),
        f"It has seen the training classes of {manifest.data} only, at that data set's image size, and is meant for "
        f"comparing methods: on other images expect much less than the figures above. The weights have the licence of "
        f"handful (MIT); the images that they were trained on have terms of their own.",
    ]
    return markdown(path.stem, blocks)


def _accuracies(score: Score, cells: list[Cell], split: str) -> Lines:
    rows = []
    for cell in cells:
        own = next(each for each in cell.scores if each.folder == score.folder)
        ours = Outcome.of([own.measurement.counts])
        rows.append((cell.column.title, str(ours.closed), f"± {100 * ours.opened.half:.2f}", f"{ours.closed.n:,}"))
    return Lines((EPISODES[split], *HEAD), tuple(dict.fromkeys(rows)))
