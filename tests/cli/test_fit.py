"""`handful fit`, `add` and `forget`: what the file holds afterwards, also when two commands change it at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from handful._io import write_atomically
from handful.classifier import FewShotClassifier, classifier
from handful.cli import fit as fitting
from handful.cli import predict as predicting
from handful.cli import test as testing
from handful.cli.fit import updating
from handful.errors import HandfulError, InvalidOptionError
from tests.classifier.drawings import SHAPES, drawing, write_folder
from tests.cli.cases import Handful


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


def test_fit_writes_a_classifier_and_says_how_good_it_is(handful: Handful, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.handful"
    code, out = handful("fit", folder, "-o", target)
    assert code == 0
    assert "4 classes, 16 images, embedding characters" in out
    assert f"Accuracy: {FewShotClassifier.load(target).score_estimate_}" in out
    assert FewShotClassifier.load(target).score(folder) == 1.0
    with pytest.raises(InvalidOptionError, match="--force"):
        handful("fit", folder, "-o", target)
    assert handful("fit", folder, "-o", target, "--force", "--no-thumbnails", "--lam", "0.5")[0] == 0
    assert not FewShotClassifier.load(target).has_thumbnails_
    assert FewShotClassifier.load(target).lam_ == 0.5
    code, out = handful("fit", folder, "-o", target, "--force", "--embedding", "auto:characters,characters+characters")
    chosen = FewShotClassifier.load(target).embedding_
    assert f"embedding {chosen}, chosen from characters,characters+characters\n" in out


def test_fit_says_which_images_it_counts_once(handful: Handful, folder: Path, tmp_path: Path) -> None:
    first = next(iter(sorted((folder / "circle").iterdir())))
    copy, brighter = folder / "circle" / "zz-copy.png", folder / "circle" / "zz-brighter.png"
    copy.write_bytes(first.read_bytes())
    Image.open(first).convert("L").point(lambda grey: min(255, grey + 2)).save(brighter)
    code, out = handful("fit", folder, "-o", tmp_path / "out.handful")
    assert code == 0
    assert f"left out: 1, for example {copy}" in out
    assert f"for example {first} and {brighter}" in out


def test_the_device_reaches_the_embedding(
    handful: Handful, folder: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReachedError(Exception):
        pass

    def asked(*words: Any, device: str = "") -> Any:
        raise ReachedError(device or words[-1])

    for module in (fitting, predicting, testing):
        monkeypatch.setattr(module, "prepare", lambda device, threads: SimpleNamespace(device=f"the {device}"))
    monkeypatch.setattr(classifier, "choose_embedder", asked)
    monkeypatch.setattr(FewShotClassifier, "load", asked)
    for words in (("fit", folder, "-o", tmp_path / "a.handful"), ("predict", file, folder), ("test", file, folder)):
        with pytest.raises(ReachedError, match="the cuda"):
            handful(*words, "--device", "cuda")


def test_fit_and_add_go_on_without_bad_images(
    handful: Handful, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bar" / "bad.png").write_text("not an image")
    (folder / "bar" / "notes.txt").write_text("a note")
    target = tmp_path / "out.handful"
    with pytest.raises(HandfulError, match="--keep-going"):
        handful("fit", folder, "-o", target)
    assert not target.exists()
    code, out = handful("fit", folder, "-o", target, "--keep-going")
    assert code == 1
    assert "1 file skipped: .txt is not an image format" in out
    assert "Classes: bar (4), circle (4), cross (4), hook (4)" in out
    more = write_folder(tmp_path / "more", {"hook": 2}, first=90)
    (more / "hook" / "bad.png").write_text("not an image")
    with pytest.raises(HandfulError, match="--keep-going"):
        handful("add", target, more / "hook", "--label", "hook")
    code, out = handful("add", target, more / "hook", "--label", "hook", "--keep-going")
    assert code == 1
    assert "2 images added, 18 in total" in out


def test_add_and_forget_update_the_file_exactly(handful: Handful, file: Path, folder: Path, tmp_path: Path) -> None:
    stars = tmp_path / "stars"
    stars.mkdir()
    for seed in range(2):
        drawing("cross", seed).rotate(45, fillcolor=255).save(stars / f"{seed}.png")
    before = FewShotClassifier.load(file)
    code, out = handful("add", file, stars, "--label", "star")
    assert code == 0
    assert "2 images added, 18 in total" in out
    assert "New class: star" in out
    code, out = handful("forget", file, "--images", stars / "0.png")
    assert "1 image forgotten, 17 left" in out
    handful("forget", file, "--label", "star")
    after = FewShotClassifier.load(file)
    queries = [drawing(shape, 33) for shape in SHAPES]
    # exact to rounding, through three updates and four files
    assert abs(after.decision_function(queries) - before.decision_function(queries)).max() < 1e-8
    more = write_folder(tmp_path / "more", {"bar": 2, "hook": 1}, first=80)
    assert "3 images added, 19 in total" in handful("add", file, more)[1]
    with pytest.raises(InvalidOptionError, match="empty"):
        handful("add", file, "", "--label", "star")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("add", ["FILE", "missing.png"]),
        ("add", ["FILE", "missing.png", "--label", "bar"]),
        ("forget", ["FILE"]),
        ("forget", ["FILE", "--label", "star"]),
        ("forget", ["FILE", "--images", "never-seen.png"]),
        ("inspect", ["missing.handful"]),
        ("predict", ["missing.handful", "a.png"]),
    ],
)
def test_a_command_that_fails_leaves_the_file_alone(
    handful: Handful, file: Path, command: str, words: list[str]
) -> None:
    content = file.read_bytes()
    with pytest.raises(HandfulError):
        handful(command, *(str(file) if word == "FILE" else word for word in words))
    assert file.read_bytes() == content
