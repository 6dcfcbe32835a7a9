"""Learn five characters from one drawing each, with an embedding that was meta-trained for a minute.

python examples/learn_a_task.py --episodes 100
"""

from __future__ import annotations

import argparse

import torch

import handful
from handful.embeddings import conv4
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.learners import R2D2


def main(episodes: int) -> None:
    """Meta-train on some alphabets, then adapt to five characters of an alphabet never seen."""
    data = handful.data.load("glyphs")
    model = handful.FewShotModel(conv4("32C", channels=1), R2D2())
    training = EpisodeSampler(data.train, RandomShots(way=20, images_per_class=10, max_shot=5), seed=0)
    for progress in handful.train(
        model, training, handful.Plan(episodes=episodes, schedule="cosine", validate_every=0)
    ):
        if progress.episode % 20 == 0:
            print(f"episode {progress.episode:4d}  loss {progress.loss:.2f}  accuracy {progress.accuracy:.0%}")

    task = EpisodeSampler(data.test, FixedShots(way=5, shot=1, query=10), seed=1)[0]
    model.eval()
    with torch.no_grad():
        predict = model.adapt(task.support)  # ridge regression in closed form: this is all the learning there is
        answers = predict(task.query.inputs).argmax(-1)
    right = int((answers == task.query.targets.argmax(-1)).sum())
    names = ", ".join(data.test.classes[i] for i in task.classes.tolist())
    print(f"{names}: {right} of {len(answers)} drawings named after one example of each")
    print(handful.evaluate(model, EpisodeSampler(data.test, FixedShots(way=5, shot=1)), 1_000))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100)
    main(parser.parse_args().episodes)
