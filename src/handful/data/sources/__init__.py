"""Where data sets come from: one module for each, and those that handful knows by name."""

from handful.data.sources import cifar_fs, mini_imagenet, omniglot
from handful.data.sources.source import Source

SOURCES: dict[str, Source] = {
    source.name: source for source in (omniglot.SOURCE, omniglot.NEAREST_SOURCE, cifar_fs.SOURCE, mini_imagenet.SOURCE)
}

DRAWN = "glyphs"
"""Characters that handful draws itself: nothing to add, always there."""
