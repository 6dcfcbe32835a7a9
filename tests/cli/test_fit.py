"""Two commands that change one classifier at the same time: both changes are in the file afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from handful._io import write_atomically
from handful.classifier import FewShotClassifier
from handful.cli.fit import updating
from handful.errors import HandfulError
from tests.classifier.drawings import SHAPES, drawing, write_folder


def test_who_waited_for_a_file_that_was_replaced_takes_the_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.handful"
    path.write_text("old")
    link = tmp_path / "link.handful"
    link.symlink_to(path)
    seen: list[str] = []

    def wait() -> None:
        with updating(link):
            seen.append(link.read_text())

    with updating(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        said = ""
        while "another command is changing" not in said:
            said += capsys.readouterr().err
            time.sleep(0.01)
        assert not seen
        write_atomically(path, b"new")
        assert not seen
    waiting.join(timeout=60)
    assert seen == ["new"]


def test_a_loop_of_links_is_one_clear_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with updating(loop), pytest.raises(HandfulError, match="There is no classifier"):
        FewShotClassifier.load(loop)


def test_a_command_that_failed_lets_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.handful"
    path.write_text("old")
    with pytest.raises(ValueError, match="on purpose"), updating(path):
        raise ValueError("on purpose")
    with updating(path):
        pass
    with updating(tmp_path / "missing"):
        pass
    assert capsys.readouterr().err == ""


def test_a_folder_without_locks_keeps_nobody_from_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no lock here")

    monkeypatch.setattr("handful.cli.fit.locked", refuse)
    path = tmp_path / "a.handful"
    path.write_text("old")
    with updating(path):
        assert path.read_text() == "old"


@pytest.mark.slow
def test_simultaneous_commands_lose_no_update(tmp_path: Path) -> None:
    file = tmp_path / "shapes.handful"
    names = list(SHAPES)[:3]
    FewShotClassifier(cache=False).fit(write_folder(tmp_path / "shapes", dict.fromkeys(names, 2))).save(file)
    images = []
    for number in range(3):
        images.append(tmp_path / f"{number}.png")
        drawing(names[0], 50 + number).save(images[-1])
    environment = os.environ | {"HANDFUL_DATA": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "handful", "add", file, image, "--label", f"new{number}"], env=environment
        )
        for number, image in enumerate(images)
    ]
    assert [each.wait(timeout=300) for each in running] == [0] * 3
    clf = FewShotClassifier.load(file, cache=False)
    assert set(clf.classes_) == {*names, "new0", "new1", "new2"}
    everything = [tmp_path / "shapes" / name / f"{seed}.png" for name in names for seed in range(2)]
    labels = [name for name in names for _ in range(2)] + [f"new{number}" for number in range(3)]
    fresh = FewShotClassifier(cache=False).fit([*everything, *images], labels)
    # exact to rounding, whatever the order in which the three came
    np.testing.assert_allclose(clf.predict_proba(images), fresh.predict_proba(images), atol=1e-6)
