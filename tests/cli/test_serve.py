"""handful serve: what it refuses before it starts; the service itself is tested in tests/serve."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handful.classifier import FewShotClassifier
from handful.cli.serve import Serve, Studio
from handful.errors import CheckpointError, InvalidOptionError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    FewShotClassifier().fit(np.eye(4), [0, 0, 1, 1]).save(tmp_path / "a.handful")
    return tmp_path / "a.handful"


def test_a_missing_extra_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == "uvicorn" else find(name, *more)

    monkeypatch.setattr("handful.serve.find_spec", without)
    with pytest.raises(InvalidOptionError, match=r"\(uvicorn\).*pip install 'handful\[serve\]'") as refused:
        Serve((Path("a.handful"),)).run()
    assert "\n" not in str(refused.value)


def test_the_command_line_does_not_load_the_web_server() -> None:
    code = "import handful.cli, sys; print([m for m in ('starlette', 'uvicorn', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_pipe_is_nothing_that_the_studio_opens(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.handful")
    with pytest.raises(InvalidOptionError, match="There is no folder or file"):
        Studio(tmp_path / "a.handful", projects=tmp_path / "projects").run()
    assert not list((tmp_path / "projects").rglob("*.sqlite"))


def test_two_files_of_one_name_a_missing_file_and_a_taken_port_are_refused(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / file.name
    twin.write_bytes(file.read_bytes())
    with pytest.raises(InvalidOptionError, match="both be served as 'a'"):
        Serve((file, twin)).run()
    with pytest.raises(CheckpointError, match="There is no classifier"):
        Serve((tmp_path / "none.handful",)).run()
    with pytest.raises(InvalidOptionError, match="no classifier to serve"):
        Serve(()).run()
    with pytest.raises(InvalidOptionError, match="--queue"):
        Serve((file,), queue=0).run()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidOptionError, match=f"port {port}.*Choose another --port"):
            Serve((file,), port=port).run()
    with pytest.raises(InvalidOptionError, match="from 0 to 65535"):
        Serve((file,), port=70000).run()
