"""Imports point upstream only, and the trainer and the evaluator know no learner by name."""

from __future__ import annotations

from pathlib import Path

import handful

ROOT = Path(handful.__file__).parent
LAYERS = [
    "errors",
    "_io",
    "solvers",
    "data",
    "episodes",
    "embeddings",
    "learners",
    "meta",
    "report",
    "classifier",
    "paper",
    "serve",
    "cli",
]
"""Lowest first: a room imports from those before it, and from itself."""
STRANGERS = {("classifier", "paper"), ("paper", "classifier"), ("meta", "paper")}
"""Rooms that do not know each other, though one stands above the other."""
