"""Episodes: few-shot problems drawn from a split; each is a pure function of a seed and its number."""

from handful.episodes.episode import Episode, LabelledSet
from handful.episodes.sampler import EpisodeRows, EpisodeSampler
from handful.episodes.shapes import EpisodeShape, FixedShots, RandomShots

__all__ = ["Episode", "EpisodeRows", "EpisodeSampler", "EpisodeShape", "FixedShots", "LabelledSet", "RandomShots"]
