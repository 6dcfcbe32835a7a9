"""A learner of one's own in ten lines: the nearest support example, trained and evaluated like all others.

python examples/a_learner_of_your_own.py --episodes 40
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import handful
from handful.embeddings import conv4
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.learners import BaseLearner, Predictor


class NearestExample(BaseLearner):
    """A class is as near as its nearest example, smoothly."""

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Remember the support set; all work is in the prediction."""

        def predict(query: Tensor) -> Tensor:
            closeness = -torch.cdist(query, support)  # (..., q, n)
            masked = closeness.unsqueeze(-1) + (targets.unsqueeze(-3) - 1) * 1e4  # other classes' examples are far
            return masked.logsumexp(-2)  # (..., q, way)

        return predict


def main(episodes: int) -> None:
    """Nothing in the trainer or the evaluator had to be told about the new learner."""
    data = handful.data.load("glyphs")
    model = handful.FewShotModel(conv4("32C", channels=1), NearestExample())
    training = EpisodeSampler(data.train, RandomShots(way=10, images_per_class=8, max_shot=4), seed=0)
    print("before:", handful.evaluate(model, EpisodeSampler(data.test, FixedShots()), 300))
    for _ in handful.train(model, training, handful.Plan(episodes=episodes, rate=2e-3, validate_every=0)):
        pass
    print("after: ", handful.evaluate(model, EpisodeSampler(data.test, FixedShots()), 300))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100)
    main(parser.parse_args().episodes)
