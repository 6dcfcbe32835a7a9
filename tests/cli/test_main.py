"""One entry for all commands: help, the version, and mistakes as one line with the nearest right word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from handful.cli.main import main
from handful.errors import InvalidOptionError
from tests.cli.cases import Handful, run_handful


def test_help_needs_no_torch_and_names_the_commands() -> None:
    script = "import sys; sys.argv = ['handful', '--help']; from handful.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script], capture_output=True, text=True, check=False
    )
    assert not [line for line in done.stderr.splitlines() if line.rsplit("|")[-1].strip() == "torch"]
    for command in ("demo", "train", "evaluate", "data"):
        assert command in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["train", "--out", "x", "--way", "many"], "--way takes a whole number, but got 'many'"),
        (["train", "--out", "x", "--width", "65C"], "one of ('32C', '64C', 'wide'"),
        (["train", "--out", "x", "--dropout", "2"], "dropout is a probability in [0, 1), but got 2"),
        (["train", "--out", "x", "--rate", "-1"], "learning rate must be a positive number"),
        (["train", "--out", "x", "--learner", "r3d3"], "no learner 'r3d3'"),
        (["train", "--out", "x", "--set", "lamb=3"], "no option 'lamb'"),
        (["train", "--out", "x", "--set", "lam=much"], "float like 50.0, but got 'much'"),
        (["train", "--out", "x", "--set", "lam"], "name=value"),
        (["train", "--out", "x", "--way", "100000"], "needs 100000 classes"),
        (["train"], "--out"),
        (["trian"], "train"),
        (["evaluate", "nowhere"], "no checkpoint nowhere"),
        (["evaluate", "."], "no checkpoint"),
    ],
)
def test_a_wrong_value_gets_one_line_and_exit_code_2(tmp_path: Path, words: list[str], part: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "handful", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert part in lines[0]
    assert lines[0].startswith("handful: ")
    assert not list(tmp_path.iterdir())


def test_what_does_not_fit_into_memory_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(error: Exception) -> int:
        raise error

    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9")):
        monkeypatch.setattr(sys.modules["handful.cli.main"], "_run_command", lambda _, error=error: fail(error))
        assert main(["data", "list"]) == 2
        assert capsys.readouterr().err.startswith("handful: not enough memory.")
    monkeypatch.setattr(sys.modules["handful.cli.main"], "_run_command", lambda _: fail(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main(["data", "list"])


def test_version_is_told() -> None:
    assert run_handful("--version").stdout.startswith("handful 0.")


def test_what_is_mistyped_is_guessed(handful: Handful, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidOptionError, match="Did you mean 'circle'"):
        handful("forget", file, "--label", "circel")
    assert main(["pedict", "a"]) == 2
    assert "Did you mean predict?" in capsys.readouterr().err
    assert main(["add", str(file)]) == 2
    assert "nothing to add" in capsys.readouterr().err


@pytest.mark.parametrize("terminal", [True, False])
def test_complaints_are_one_plain_line_also_on_a_terminal(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    with pytest.raises(SystemExit):
        main(["predict", "a", "--jsn"])
    assert capsys.readouterr().err == (
        "handful: Unrecognized options: --jsn. Did you mean --json? See handful predict --help\n"
    )
    assert os.environ["TERM"] == "xterm-256color"


def test_help_names_the_version_and_honours_no_color(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for setting, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", setting)
        with pytest.raises(SystemExit):
            main(["--help"])
        said = capsys.readouterr().out
        assert ("\x1b[" in said) == coloured
        assert "version" in said
