"""Weights that come with the package, and how they are made: `python -m handful.estimator.weights RUN`."""

from __future__ import annotations

import sys
from pathlib import Path

from handful.checkpoint import write_checkpoint
from handful.errors import HandfulError
from handful.evaluation import Evaluation, evaluate
from handful.files import write_atomically
from handful.pool import embed_pool
from handful.runs import TrainedModel, benchmark_of, read_run

FOLDER = Path(__file__).parent.parent / "weights"
CHARACTERS = FOLDER / "characters.safetensors"
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
    card = model_card(target.stem, trained, measure(trained))
    write_checkpoint(target, tensors, facts)
    write_atomically(target.with_suffix(".md"), card.encode())
    return card


def measure(trained: TrainedModel) -> tuple[Evaluation, ...]:
    """Accuracy on the test classes of the run's own data."""
    test = benchmark_of(trained.recipe).test
    pool = embed_pool(trained.model.embedding, test)
    return tuple(evaluate(trained.model, test, way, shot, 10, EPISODES, seed=1, pool=pool) for way, shot in KINDS)


def model_card(name: str, trained: TrainedModel, results: tuple[Evaluation, ...]) -> str:
    """What a user must know of the weights: data, recipe, accuracy, what they are not for."""
    recipe, plan = trained.recipe, trained.recipe.plan
    parameters = sum(parameter.numel() for parameter in trained.model.embedding.parameters())
    channels, height, width = trained.image_shape
    rows = "\n".join(
        f"| {way}-way {shot}-shot | {100 * result.mean:.2f} ± {100 * result.ci95:.2f} |"
        for (way, shot), result in zip(KINDS, results, strict=True)
    )
    return f"""# Weights `{name}`

Features of drawn characters: the default embedding of `FewShotClassifier` for line drawings.

| | |
| --- | --- |
| network | convolutional, {recipe.width}, {parameters:,} parameters, input {height}x{width}x{channels}, ink bright on black |
| trained on | `{recipe.data}`, meta-training classes, by this project; no other data |
| recipe | {recipe.learner}, {recipe.way}-way, {recipe.min_shot} to {recipe.max_shot} shots, {trained.episodes:,} of {plan.episodes:,} episodes, Adam at {plan.rate:g}, seed {recipe.seed} |
| licence | that of handful |

Accuracy (%) on the test classes of `{recipe.data}`, which training did not see, over {EPISODES:,} episodes of 10 queries a
class, with 95% intervals:

| episodes | accuracy |
| --- | --- |
{rows}

Not for photographs: for those, install `handful[images]` or bring a network.
"""  # noqa: E501


def main(arguments: list[str]) -> int:
    """`python -m handful.estimator.weights RUN`: pack the run's best checkpoint and print its card."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m handful.estimator.weights RUN\n")
        return 2
    try:
        sys.stdout.write(pack(Path(arguments[0])))
    except HandfulError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
