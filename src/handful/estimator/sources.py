"""Where an example came from: enough to name it, to find it again, and to show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One example's origin; an example that was given as features has an empty one."""

    name: str = ""
    """The path or the number under which it was given."""
    digest: str = ""
    """SHA-256 of its pixels, as embedded."""
    thumbnail: bytes = b""
    """A small JPEG."""
