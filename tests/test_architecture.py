"""Imports point upstream only, private names stay private, modules have their tests, and training names no learner."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import handful

ROOT = Path(handful.__file__).parent
ORDER = "errors _io solvers data episodes embeddings learners meta report classifier paper serve cli"
LAYERS = ORDER.split()
"""Lowest first: a room imports from those before it, and from itself."""
STRANGERS = {("classifier", "paper"), ("paper", "classifier"), ("meta", "paper")}
"""Rooms that do not know each other, though one stands above the other."""
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or not path.name.startswith("__"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def imported(path: Path) -> set[str]:
    """The dotted names of all modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relative to itself; write the whole name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


def ours(path: Path) -> set[str]:
    return {name for name in imported(path) if name.startswith("handful.")}


def room_of(path: Path) -> str:
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert room in LAYERS, f"{path} belongs to no room; name its place in LAYERS"
    return room


@each_file
def test_imports_point_upstream_only(path: Path) -> None:
    own = room_of(path)
    for name in ours(path):
        room = name.split(".")[1]
        if room in LAYERS:
            assert LAYERS.index(room) <= LAYERS.index(own), f"{path.name} imports {name}, which stands downstream of it"
            assert (own, room) not in STRANGERS, f"{path.name} imports {name}, which {own} must not know"


@each_file
def test_private_modules_and_names_are_imported_within_their_room_only(path: Path) -> None:
    for name in ours(path):
        room, *rest = name.split(".")[1:]
        if any(part.startswith("_") for part in rest):
            assert room == room_of(path), f"{path.name} imports {name}, which is private to {room}"


@each_file
def test_private_attributes_are_read_in_their_own_module_only(path: Path) -> None:
    tree = ast.parse(path.read_text())
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        match node:
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                own.add(name)
            case ast.Call(func=ast.Attribute(attr="register_buffer"), args=[ast.Constant(value=str(name)), *_]):
                own.add(name)
    foreign = {
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own
        and not ast.unparse(node).startswith(("torch._C", "forward_ad."))  # the only way to ask PyTorch
    }
    assert not foreign, f"{path.name} reads what is private to another module: {sorted(foreign)}"


TESTS = Path(__file__).parent
WITHOUT_TESTS = {
    "__init__": "names of a package, which the tests of its modules import; what it does itself is in test_PACKAGE.py",
    "__main__": "starts the command line, as the tests of the commands do in processes of their own",
    "errors": "classes without any behaviour",
}
"""Modules that have no test file of their own name, and why."""


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem not in WITHOUT_TESTS], ids=lambda path: str(path.relative_to(ROOT))
)
def test_the_tests_of_a_module_are_in_the_file_of_its_name(path: Path) -> None:
    mirror = TESTS / path.relative_to(ROOT).with_name(f"test_{path.stem.lstrip('_')}.py")
    assert mirror.is_file(), f"{path.relative_to(ROOT)} has no tests in {mirror.relative_to(TESTS.parent)}"
    names = [node.name for node in ast.walk(ast.parse(mirror.read_text())) if isinstance(node, ast.FunctionDef)]
    assert any(name.startswith("test_") for name in names), f"{mirror.name} tests nothing"


@pytest.mark.parametrize("name", ["train.py", "state.py", "evaluate.py", "features.py", "model.py"])
def test_trainer_and_evaluator_name_no_learner(name: str) -> None:
    interface = {"BaseLearner", "KernelLearner", "Limits", "Predictor"}
    for wanted in ours(ROOT / "meta" / name):
        if wanted.startswith("handful.learners."):
            assert wanted.rsplit(".", 1)[1] in interface | {"base"}, f"{name} imports {wanted}"


def test_solvers_import_nothing_but_errors() -> None:
    for path in (ROOT / "solvers").glob("*.py"):
        assert all(name.startswith(("handful.solvers", "handful.errors")) for name in ours(path)), path


def test_only_the_command_line_knows_its_parser() -> None:
    knowing = {room_of(path) for path in FILES if any(name.startswith("tyro") for name in imported(path))}
    assert knowing == {"cli"}


def test_the_page_on_architecture_names_files_and_rooms_that_exist() -> None:
    text = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text()
    files = [name for name in re.findall(r"`([\w/]+\.(?:py|html))`", text) if "NAME" not in name]
    assert len(files) > 20
    for name in files:
        assert (ROOT / name).is_file() or (ROOT.parent.parent / name).is_file(), f"{name} is not there"
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == LAYERS


def test_every_public_name_is_there() -> None:
    for name in handful.__all__:
        assert getattr(handful, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = handful.nothing  # type: ignore[attr-defined]
