"""Where data sets live on disk: one folder, chosen by the caller, by HANDFUL_DATA, or by the platform's custom."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_root(root: str | Path | None = None) -> Path:
    """The folder of packed data sets: `root`, else the environment's HANDFUL_DATA, else the user's cache folder."""
    chosen = root or os.environ.get("HANDFUL_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return user_cache() / "handful"


def user_cache() -> Path:
    """The folder in which this platform wants things that can be made again."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
