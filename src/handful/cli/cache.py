"""`handful cache`: what the cache of features holds, its limit, and an end of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from handful.errors import InvalidOptionError

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Cache:
    """Show, bound or clear the cache of image features; everything in it can be computed again."""

    limit: str = ""
    """Most that it may take on disk from now on, for example 500MB or 2GB; what was not used for longest goes."""
    clear: bool = False
    """Delete it."""

    def run(self) -> int:
        """Change what is asked for, and print what the cache holds."""
        from handful._io import data_root
        from handful.classifier import cache
        from handful.classifier.inputs import count_of

        folder = data_root()
        if self.clear:
            cache.clear(folder)
        if self.limit:
            cache.set_limit(folder, bytes_of(self.limit))
        held = cache.usage(folder)
        print(f"{held.path}: {held.size / 1e6:.1f} MB of at most {held.limit / 1e6:,.0f} MB")
        features, thumbnails = f"{held.features:,} features", count_of(held.thumbnails, "thumbnail")
        print(f"{count_of(held.images, 'image')}: {features}, {thumbnails}")
        return 0


def bytes_of(text: str) -> int:
    """A size as people write it, in bytes."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if not found:
        raise InvalidOptionError(f"A size is a number and a unit, such as 500MB or 2GB, but got '{text}'.")
    return int(float(found[1]) * UNITS[found[2]])
