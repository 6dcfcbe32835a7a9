"""Imports point upstream only, and the trainer and the evaluator know no learner by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or not path.name.startswith("__"))


def imported(path: Path) -> set[str]:
    """The dotted names of all modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def room_of(path: Path) -> str:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert room in LAYERS, f"{path} belongs to no layer; name its place in LAYERS"
    return room


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upstream_only(path: Path) -> None:
    own = room_of(path)
    for name in imported(path):
        room = name.split(".")[1] if name.startswith("handful.") else ""
        if room in LAYERS:
            assert LAYERS.index(room) <= LAYERS.index(own), f"{path.name} imports {name}, which is above it"
            assert (own, room) not in STRANGERS, f"{path.name} imports {name}, which it must not know"


@pytest.mark.parametrize("name", ["train.py", "state.py", "evaluate.py", "features.py", "model.py"])
def test_trainer_and_evaluator_name_no_learner(name: str) -> None:
    interface = {"BaseLearner", "KernelLearner", "Limits", "Predictor", "base"}
    for wanted in imported(ROOT / "meta" / name):
        if wanted.startswith("handful.learners."):
            assert wanted.rsplit(".", 1)[1] in interface


def test_solvers_import_nothing_but_errors() -> None:
    for path in (ROOT / "solvers").glob("*.py"):
        ours = {name for name in imported(path) if name.startswith("handful.")}
        assert all(name.startswith(("handful.solvers", "handful.errors")) for name in ours), path


def test_only_the_command_line_knows_its_parser() -> None:
    knowing = {room_of(path) for path in FILES if any(name.startswith("tyro") for name in imported(path))}
    assert knowing == {"cli"}


def test_every_public_name_is_there() -> None:
    for name in handful.__all__:
        assert getattr(handful, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = handful.nothing
