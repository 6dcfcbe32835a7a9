"""Imports point upstream only, and the trainer and the evaluator know no learner by name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import handful

ROOT = Path(handful.__file__).parent
ORDER = """errors _io solvers data episodes embeddings learners meta recipes report reproduce demo classifier cli"""
LAYERS = ORDER.split()
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or not path.name.startswith("__"))


def imported(path: Path) -> set[str]:
    """The dotted names of handful's modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in names if name.startswith("handful.")}


def layer_of(path: Path) -> int:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert first in LAYERS, f"{path} belongs to no layer; name its place in LAYERS"
    return LAYERS.index(first)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upstream_only(path: Path) -> None:
    own = layer_of(path)
    for name in imported(path):
        first = name.split(".")[1]
        if first in LAYERS:
            assert LAYERS.index(first) <= own, f"{path.name} imports {name}, which stands downstream of it"


@pytest.mark.parametrize("name", ["train.py", "state.py", "evaluate.py", "features.py", "model.py"])
def test_trainer_and_evaluator_name_no_learner(name: str) -> None:
    interface = {"BaseLearner", "KernelLearner", "Limits", "Predictor"}
    for wanted in imported(ROOT / "meta" / name):
        if wanted.startswith("handful.learners."):
            assert wanted.rsplit(".", 1)[1] in interface


def test_solvers_import_nothing_but_errors() -> None:
    for path in (ROOT / "solvers").glob("*.py"):
        assert all(name.startswith(("handful.solvers", "handful.errors")) for name in imported(path)), path


def test_every_public_name_is_there() -> None:
    for name in handful.__all__:
        assert getattr(handful, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = handful.nothing  # type: ignore[attr-defined]
