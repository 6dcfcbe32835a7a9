"""handful fit, predict, add, forget and inspect: the same classifier from the shell, for people and for scripts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tyro

from handful.classifier import FewShotClassifier
from handful.cli.add import Add
from handful.cli.fit import Fit
from handful.cli.forget import Forget
from handful.cli.inspect import Inspect
from handful.cli.predict import Predict
from handful.errors import HandfulError, InvalidOptionError
from tests.classifier.drawings import SHAPES, drawing, write_folder

COMMANDS: dict[str, Any] = {"fit": Fit, "predict": Predict, "add": Add, "forget": Forget, "inspect": Inspect}
Handful = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path / "cache"))


@pytest.fixture
def handful(capsys: pytest.CaptureFixture[str]) -> Handful:
    """Run a command from its words; gives the exit code and what it printed."""

    def run(command: str, *words: object) -> tuple[int, str]:
        code = tyro.cli(COMMANDS[command], args=[str(word) for word in words]).run()
        return code, capsys.readouterr().out

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 4))


@pytest.fixture
def file(tmp_path: Path, folder: Path) -> Path:
    path = tmp_path / "shapes.handful"
    FewShotClassifier().fit(folder).save(path)
    return path


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "new", {"circle": 2, "cross": 1}, first=60)


def test_fit_writes_a_classifier_and_says_how_good_it_is(handful: Handful, folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.handful"
    code, out = handful("fit", folder, "-o", target)
    assert code == 0
    assert "4 classes, 16 images, embedding characters" in out
    assert "by leave-one-out of 16 images" in out
    assert FewShotClassifier.load(target).score(folder) == 1.0
    with pytest.raises(InvalidOptionError, match="--force"):
        handful("fit", folder, "-o", target)
    assert handful("fit", folder, "-o", target, "--force", "--no-thumbnails", "--lam", "0.5")[0] == 0
    assert not FewShotClassifier.load(target).has_thumbnails_
    assert FewShotClassifier.load(target).lam_ == 0.5


def test_predict_prints_a_line_an_image(handful: Handful, file: Path, new: Path) -> None:
    code, out = handful("predict", file, new / "circle", new / "cross" / "60.png")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert [row[1] for row in rows] == ["circle", "circle", "cross"]
    assert all(row[2].endswith("%") for row in rows)


def test_predict_writes_json_lines_and_tables(handful: Handful, file: Path, new: Path) -> None:
    rows = [json.loads(line) for line in handful("predict", file, new, "--json")[1].splitlines()]
    assert [row["label"] for row in rows] == ["circle", "circle", "cross"]
    assert all(abs(sum(row["probabilities"].values()) - 1) < 1e-5 for row in rows)
    table = list(csv.DictReader(io.StringIO(handful("predict", file, new, "--csv")[1])))
    assert [row["label"] for row in table] == ["circle", "circle", "cross"]
    assert [float(row["probability"]) for row in table] == [row["probability"] for row in rows]
    with pytest.raises(InvalidOptionError, match="one of --json and --csv"):
        handful("predict", file, new, "--json", "--csv")


def test_predict_reads_paths_from_a_pipe(
    handful: Handful, file: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(path) for path in sorted(new.rglob("*.png"))]
    for words in ((), ("-",)):
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(paths) + "\n\n"))
        rows = [json.loads(line) for line in handful("predict", file, *words, "--json")[1].splitlines()]
        assert [row["image"] for row in rows] == paths


def test_predict_rejects_strangers(handful: Handful, tmp_path: Path, folder: Path) -> None:
    known = tmp_path / "known.handful"
    FewShotClassifier().fit(folder).forget(label="cross").save(known)
    rows = [
        json.loads(line)
        for line in handful("predict", known, folder, "--json", "--reject", "--false-rejection", "0.1")[1].splitlines()
    ]
    labels = {Path(row["image"]).parent.name: [] for row in rows}
    for row in rows:
        labels[Path(row["image"]).parent.name].append(row["label"])
    assert labels["cross"].count(None) >= 3
    assert labels["bar"] == ["bar"] * 4
    assert "unknown" in handful("predict", known, folder / "cross", "--reject", "--csv")[1]


def test_predict_stops_at_a_bad_image_or_goes_on(handful: Handful, file: Path, new: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("not an image")
    with pytest.raises(HandfulError, match=r"bad\.png"):
        handful("predict", file, bad, new)
    code, out = handful("predict", file, bad, new, "--json", "--keep-going")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert "bad.png" in rows[0]["error"]
    assert [row["label"] for row in rows[1:]] == ["circle", "circle", "cross"]
    assert "error: " in handful("predict", file, bad, "--keep-going")[1]
    assert "bad.png" in handful("predict", file, bad, "--keep-going", "--csv")[1]


def test_add_and_forget_update_the_file_exactly(handful: Handful, file: Path, folder: Path, tmp_path: Path) -> None:
    stars = tmp_path / "stars"
    stars.mkdir()
    for seed in range(2):
        drawing("cross", seed).rotate(45, fillcolor=255).save(stars / f"{seed}.png")
    before = FewShotClassifier.load(file)
    code, out = handful("add", file, stars, "--label", "star")
    assert code == 0
    assert "2 images added, 18 in all" in out
    assert "New classes: star" in out
    code, out = handful("forget", file, "--images", stars / "0.png")
    assert "1 image forgotten, 17 left" in out
    handful("forget", file, "--label", "star")
    after = FewShotClassifier.load(file)
    queries = [drawing(shape, 33) for shape in SHAPES]
    # exact to rounding, through three updates and four files
    assert abs(after.decision_function(queries) - before.decision_function(queries)).max() < 1e-8
    more = write_folder(tmp_path / "more", {"bar": 2, "hook": 1}, first=80)
    assert "3 images added, 19 in all" in handful("add", file, more)[1]


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


def test_inspect_writes_a_page_that_shows_what_to_do(
    handful: Handful, file: Path, folder: Path, tmp_path: Path
) -> None:
    wrong = drawing("cross", 44)
    wrong.save(folder / "bar" / "wrong <b>.png")
    handful("add", file, folder / "bar" / "wrong <b>.png", "--label", "bar")
    code, out = handful("inspect", file)
    assert code == 0
    assert "wrong <b>.png is labelled bar, but looks like cross" in out
    page = (tmp_path / "shapes.html").read_text()
    assert "wrong &lt;b&gt;.png" in page
    assert "wrong <b>" not in page
    assert page.count("<img") == 17 + 1  # every example, and the suspect once more
    assert "More images of these classes would help most" in page
    handful("inspect", file, "-o", tmp_path / "b.html", "--unlabelled", folder, "--suggest", "3")
    assert "Of 17 unlabelled images" in (tmp_path / "b.html").read_text()
