"""How the weights that come with the package are made: `python -m tools.pack_weights RUN`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from handful import data
from handful._io import write_atomically
from handful.classifier.embedder import CHARACTERS
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import HandfulError
from handful.meta.checkpoint import write_checkpoint
from handful.meta.evaluate import Evaluation, evaluate
from handful.meta.features import embed_pool
from handful.meta.run import TrainedModel, benchmark_of, read_run

KINDS = ((5, 1), (5, 5), (20, 1), (20, 5))
EPISODES = 2000


def pack(run: Path, target: Path = CHARACTERS) -> str:
    """Take the weights of a run into the package, with a model card beside them; returns the card."""
    trained = read_run(run)
    tensors = {f"model.{name}": value for name, value in trained.model.state_dict().items()}
    facts = {
        "training": {"episode": trained.episodes},
        "recipe": trained.recipe.as_json(),
        "image_shape": list(trained.image_shape),
    }
    names = dict.fromkeys([trained.recipe.data, "glyphs"])
    card = model_card(target.stem, trained, {name: measure(trained, name) for name in names})
    write_checkpoint(target, tensors, facts)
    write_atomically(target.with_suffix(".md"), card.encode())
    return card


def measure(trained: TrainedModel, name: str) -> tuple[Evaluation, ...]:
    """Accuracy on the test classes of a data set, which may be the one that the run was trained on."""
    own = name == trained.recipe.data
    test = (benchmark_of(trained.recipe) if own else data.load(name)).test
    pool = embed_pool(trained.model.embedding, test)
    kinds = (EpisodeSampler(test, FixedShots(way, shot, 10), seed=1) for way, shot in KINDS)
    return tuple(evaluate(trained.model, sampler, EPISODES, pool=pool) for sampler in kinds)


def model_card(name: str, trained: TrainedModel, results: Mapping[str, tuple[Evaluation, ...]]) -> str:
    """What a user must know of the weights: data, recipe, accuracy, what they are not for."""
    recipe, plan = trained.recipe, trained.recipe.plan
    parameters = sum(parameter.numel() for parameter in trained.model.embedding.parameters())
    channels, height, width = trained.image_shape
    shots = f"{recipe.way}-way, {recipe.min_shot} to {recipe.max_shot} shots"
    rows = [
        ("network", f"convolutional, {recipe.width}, {parameters:,} parameters"),
        ("input", f"{height}x{width}x{channels}, pixels in [0, 1], ink bright on black"),
        ("trained on", f"the meta-training classes of `{recipe.data}`, by this project"),
        ("recipe", f"{recipe.learner}, {shots}, {trained.episodes:,} episodes, rate {plan.rate:g}, seed {recipe.seed}"),
        ("licence", "that of handful"),
    ]
    tests = [f"`{each}`{'' if each == recipe.data else ', never trained on'}" for each in results]
    scores = [
        [
            f"{way}-way {shot}-shot",
            *(f"{100 * each[i].mean:.2f} ± {100 * each[i].ci95:.2f}" for each in results.values()),
        ]
        for i, (way, shot) in enumerate(KINDS)
    ]
    return "\n".join(
        [
            f"# Weights `{name}`",
            "",
            "Features of drawn characters: the default embedding of `FewShotClassifier` for line drawings.",
            "",
            *_table(["", ""], rows),
            "",
            f"Accuracy in % on test classes, which training did not see: {EPISODES:,} episodes, 10 queries a class,",
            "95% intervals, inductive.",
            "",
            *_table(["episodes", *tests], scores),
            "",
            "Not for photographs: for those, install `handful[images]` or bring a network.",
            "",
        ]
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def main(arguments: list[str]) -> int:
    """`python -m tools.pack_weights RUN`: pack the run's best checkpoint and print its card."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m tools.pack_weights RUN\n")
        return 2
    try:
        sys.stdout.write(pack(Path(arguments[0])))
    except HandfulError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
