"""Episodes: few-shot problems drawn from a split, each a pure function of a seed and its number."""

from handful.episodes.episode import Episode, LabelledSet
from handful.episodes.shape import EpisodeShape, FixedShots, RandomShots

__all__ = ["Episode", "EpisodeShape", "FixedShots", "LabelledSet", "RandomShots"]
