"""Where data sets come from: one module per data set, and the registry of those known by name."""

from handful.data.sources import cifar_fs, mini_imagenet, omniglot
from handful.data.sources.source import Source

SOURCES: dict[str, Source] = {
    source.name: source for source in (omniglot.SOURCE, omniglot.NEAREST_SOURCE, cifar_fs.SOURCE, mini_imagenet.SOURCE)
}

DRAWN = "glyphs"
"""Characters that handful draws itself, so they never have to be added."""
