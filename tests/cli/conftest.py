"""A folder of drawings, a classifier of them, and a cache that belongs to the test."""

from __future__ import annotations

from pathlib import Path

import pytest
import tyro

from handful.classifier import FewShotClassifier
from tests.classifier.drawings import SHAPES, write_folder
from tests.cli.cases import COMMANDS, Handful


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path / "cache"))


@pytest.fixture
def handful(own_cache: None, capsys: pytest.CaptureFixture[str]) -> Handful:
    """Run a command from its words; gives the exit code and what it printed."""

    def run(command: str, *words: object) -> tuple[int, str]:
        code = tyro.cli(COMMANDS[command], args=[str(word) for word in words]).run()
        return code, capsys.readouterr().out

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 4))


@pytest.fixture
def file(own_cache: None, tmp_path: Path, folder: Path) -> Path:
    path = tmp_path / "shapes.handful"
    FewShotClassifier().fit(folder).save(path)
    return path


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "new", {"circle": 2, "cross": 1}, first=60)
