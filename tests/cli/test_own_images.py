"""handful fit, predict, add, forget and inspect: the same classifier from the shell, for people and for scripts."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tyro
from PIL import Image

from handful.classifier import FewShotClassifier
from handful.cli import predict as predicting
from handful.cli import test as testing
from handful.cli.data import Cache, bytes_of
from handful.cli.fit import Add, Fit, Forget
from handful.cli.main import main
from handful.cli.predict import Predict, percent
from handful.cli.test import Inspect
from handful.errors import DataError, HandfulError, InvalidOptionError
from tests.classifier.drawings import SHAPES, drawing, write_folder

COMMANDS: dict[str, Any] = {
    "fit": Fit,
    "predict": Predict,
    "test": testing.Test,
    "add": Add,
    "forget": Forget,
    "inspect": Inspect,
    "cache": Cache,
}
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


def test_predict_prints_a_line_an_image(handful: Handful, file: Path, new: Path) -> None:
    code, out = handful("predict", file, new / "circle", new / "cross" / "60.png")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert [row[1] for row in rows] == ["circle", "circle", "cross"]
    assert all(row[2].endswith("%") for row in rows)


def test_predict_writes_json_lines_and_tables(handful: Handful, file: Path, new: Path) -> None:
    rows = [json.loads(line) for line in handful("predict", file, new, "--json")[1].splitlines()]
    assert [row["label"] for row in rows] == ["circle", "circle", "cross"]
    assert all(abs(sum(each["probability"] for each in row["top"]) - 1) < 1e-5 for row in rows)
    table = list(csv.DictReader(io.StringIO(handful("predict", file, new, "--csv")[1])))
    assert [row["label"] for row in table] == ["circle", "circle", "cross"]
    assert [float(row["probability"]) for row in table] == [row["probability"] for row in rows]
    with pytest.raises(InvalidOptionError, match="one of --json and --csv"):
        handful("predict", file, new, "--json", "--csv")


def piped(text: str) -> io.TextIOWrapper:
    """Standard input that holds this text."""
    return io.TextIOWrapper(io.BufferedReader(io.BytesIO(text.encode())))


def test_predict_reads_paths_from_a_pipe(
    handful: Handful, file: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(path) for path in sorted(new.rglob("*.png"))]
    for words in ((), ("-",)):
        monkeypatch.setattr("sys.stdin", piped("\r\n".join(paths) + "\n\n"))
        rows = [json.loads(line) for line in handful("predict", file, *words, "--json")[1].splitlines()]
        assert [row["image"] for row in rows] == paths


def test_paths_that_are_needed_at_once_are_bounded() -> None:
    read = predicting._piped(io.BufferedReader(io.BytesIO(b"a.png\n" * 200_000)), 1 << 20)
    with pytest.raises(DataError, match="more than 1 MB of paths"):
        list(read)
    assert len(list(predicting._piped(io.BufferedReader(io.BytesIO(b"a.png\n" * 100_000)), 1 << 20))) == 100_000


@pytest.mark.parametrize("byte", [b"\n", b"\0", b"\r\n"])
def test_standard_input_without_paths_is_not_read_to_its_end(byte: bytes) -> None:
    with pytest.raises(DataError, match="in which no path ends"):
        next(predicting._piped(io.BufferedReader(io.BytesIO(byte * 1_000_000)), 1 << 30))


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
    assert "\tunknown\t-\n" in handful("predict", known, folder / "cross", "--reject")[1]


def test_a_bad_image_costs_one_line(
    handful: Handful, file: Path, new: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("not an image")
    code, out = handful("predict", file, bad, new, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert "bad.png" in rows[0]["error"]
    assert [row["label"] for row in rows[1:]] == ["circle", "circle", "cross"]
    assert handful("predict", file, bad)[1].startswith(f"{bad}\terror: The image {bad} cannot be read")
    table = list(csv.DictReader(io.StringIO(handful("predict", file, bad, new, "--csv")[1])))
    assert [bool(row["error"]) for row in table] == [True, False, False, False]


def test_no_probability_below_one_is_printed_as_certain() -> None:
    assert [percent(value) for value in (0.99996, 0.9994, 0.5, 0.0006, 0.0004)] == [
        ">99.9%",
        "99.9%",
        "50.0%",
        "0.1%",
        "<0.1%",
    ]


def test_predict_prints_the_next_best_and_a_summary(
    handful: Handful, file: Path, new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = tyro.cli(Predict, args=[str(file), str(new), "--top", "3"]).run()
    said = capsys.readouterr()
    assert code == 0
    assert all(len(line.split("\t")) == 1 + 3 * 2 for line in said.out.splitlines())
    assert said.err.startswith("3 images in ")
    assert "circle (2), cross (1)" in said.err
    out = handful("predict", file, new, "--min-confidence", "1")[1]
    assert [line.split("\t")[1] for line in out.splitlines()] == ["unsure"] * 3
    header = handful("predict", file, new, "--csv", "--top", "2")[1].splitlines()[0]
    assert header.endswith("error,label2,probability2")
    for words in (["--min-confidence", "7"], ["--top", "-1"], ["--move-to", "a", "--copy-to", "b"], ["--watch", "a"]):
        with pytest.raises(InvalidOptionError):
            handful("predict", file, new, *words)


def test_images_are_sorted_into_folders(handful: Handful, file: Path, new: Path, tmp_path: Path) -> None:
    target = tmp_path / "sorted"
    handful("predict", file, new, "--copy-to", target)
    handful("predict", file, new / "circle", "--copy-to", target)
    assert sorted(path.name for path in (target / "circle").iterdir()) == [
        "60 (2).png",
        "60.png",
        "61 (2).png",
        "61.png",
    ]
    handful("predict", file, new, "--move-to", tmp_path / "moved")
    assert not list(new.rglob("*.png"))
    assert len(list((tmp_path / "moved").rglob("*.png"))) == 3


@pytest.mark.parametrize("label", ["../../outside", "/etc", "..", "a\0b", "\u4e2d" * 200, "\udcff" * 300])
def test_a_label_never_leads_out_of_the_folder(label: str, tmp_path: Path) -> None:
    target = (tmp_path / predicting._folder_name(label)).resolve()
    assert target.parent == tmp_path.resolve()
    target.mkdir()


def test_a_folder_is_watched(
    handful: Handful,
    file: Path,
    new: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    drop, late = tmp_path / "drop", new / "cross" / "60.png"
    (new / "circle").rename(drop)
    polls: list[float] = []
    said = ""

    def sleep(seconds: float) -> None:
        nonlocal said
        polls.append(seconds)
        if len(polls) == 1:
            said = capsys.readouterr().err
        if len(polls) == 3:
            late.rename(drop / "late.png")
        if len(polls) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(predicting.time, "sleep", sleep)
    code, out = handful("predict", file, "--watch", drop, "--copy-to", drop / "done")
    assert code == 0
    assert said == f"Watching {drop} for images; Ctrl-C ends it\n"
    assert [Path(line.split("\t")[0]).name for line in out.splitlines()] == ["60.png", "61.png", "late.png"]


def test_paths_separated_by_nul_are_read(
    handful: Handful, file: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = min(new.rglob("*.png"))
    first.rename(first.with_name("0\nnext line.png"))
    paths = [str(path) for path in sorted(new.rglob("*.png"))]
    monkeypatch.setattr("sys.stdin", piped("\0".join(paths) + "\0"))
    rows = [json.loads(line) for line in handful("predict", file, "--json")[1].splitlines()]
    assert [row["image"] for row in rows] == paths
    assert not any("error" in row for row in rows)
    names = [line.split("\t")[0] for line in handful("predict", file, *paths)[1].splitlines()]
    assert names == [path.replace("\n", "\\n") for path in paths]
    code, out = handful("predict", file, "a\0b.png")
    assert code == 1
    assert "error: " in out


@pytest.mark.slow
def test_a_name_that_is_no_utf8_is_labelled(handful: Handful, file: Path, new: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff.png"))
    (new / "cross" / "60.png").rename(odd)
    paths = os.fsencode(odd) + b"\n" + os.fsencode(odd)
    command = [sys.executable, "-m", "handful", "predict", str(file), "--json"]
    done = subprocess.run(command, input=paths, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["label"] for line in done.stdout.splitlines()] == ["cross", "cross"]


def test_names_that_are_no_utf8_are_inspected(folder: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"odd\xff")
    image = min(folder.rglob("*.png"))
    image.rename(image.with_name(f"{odd}.png"))
    target = tmp_path / f"{odd}.handful"
    assert main(["fit", str(folder), "-o", str(target)]) == 0
    assert main(["inspect", str(target)]) == 0
    assert "odd&#56575;.png" in target.with_suffix(".html").read_text()


def test_a_test_set_is_measured(handful: Handful, file: Path, tmp_path: Path) -> None:
    fresh = write_folder(tmp_path / "data" / "test", {"bar": 3, "circle": 2}, first=200)
    write_folder(tmp_path / "data" / "train", {"bar": 1})
    (fresh / "spiral").mkdir()
    drawing("hook", 300).save(fresh / "spiral" / "a.png")
    code, out = handful("test", file, tmp_path / "data", "--csv", tmp_path / "rows.csv")
    clf = FewShotClassifier.load(file)
    assert code == 0
    assert f"{fresh}: 100.0% of 5 images right" in out
    assert re.search(r"Not counted.*: spiral \(1\)", out)
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert [row["label"] for row in rows] == ["bar"] * 3 + ["circle"] * 2 + ["spiral"]
    results = json.loads(handful("test", file, tmp_path / "data", "--json")[1])
    assert results["expected"] == list(clf.score_estimate_.interval(5))
    assert results["as_expected"] is (results["expected"][0] <= 1 <= results["expected"][1])
    wrong = write_folder(tmp_path / "wrong", {"bar": 2, "circle": 2}, first=400)
    for path in (wrong / "bar").iterdir():
        path.rename(wrong / "circle" / f"bar{path.name}")
    (wrong / "bar").rmdir()
    out = handful("test", file, wrong)[1]
    assert "50.0% of 4 images right" in out
    assert "circle mistaken for bar: 2" in out
    with pytest.raises(HandfulError, match="None of the labels"):
        handful("test", file, write_folder(tmp_path / "other" / "x", {"hook": 1}).parent)


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
    assert "1 file skipped: .txt is no image format" in out
    assert "Classes: bar (4), circle (4), cross (4), hook (4)" in out
    more = write_folder(tmp_path / "more", {"hook": 2}, first=90)
    (more / "hook" / "bad.png").write_text("not an image")
    with pytest.raises(HandfulError, match="--keep-going"):
        handful("add", target, more / "hook", "--label", "hook")
    code, out = handful("add", target, more / "hook", "--label", "hook", "--keep-going")
    assert code == 1
    assert "2 images added, 18 in total" in out


def test_the_cache_is_shown_bounded_and_cleared(handful: Handful, folder: Path, tmp_path: Path) -> None:
    handful("fit", folder, "-o", tmp_path / "a.handful")
    assert "16 images: 16 features, 16 thumbnails" in handful("cache")[1]
    assert "at most 2,000 MB" in handful("cache", "--limit", "2GB")[1]
    handful("forget", tmp_path / "a.handful", "--label", "bar")
    assert "12 images: 12 features, 12 thumbnails" in handful("cache")[1]
    assert "0 images: 0 features" in handful("cache", "--clear")[1]
    assert bytes_of("1.5 kb") == 1500
    with pytest.raises(InvalidOptionError, match="500MB or 2GB"):
        bytes_of("much")
    for size in ("9" * 400, "9" * 20 + "TB"):
        with pytest.raises(InvalidOptionError, match=r"9999.* disk"):
            bytes_of(size)


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


def test_inspect_calls_no_label_right_that_it_could_not_test(handful: Handful, tmp_path: Path) -> None:
    file = tmp_path / "single.handful"
    FewShotClassifier().fit(write_folder(tmp_path / "single", dict.fromkeys(SHAPES, 1))).save(file)
    out, score = handful("inspect", file)[1], FewShotClassifier.load(file).score_estimate_
    assert "Accuracy: untested" in out
    assert "No example looks mislabelled" not in out
    page = (tmp_path / "single.html").read_text()
    assert "no label looks wrong" not in page
    assert "no label could be tested" in page
    assert f"{100 * score.low:.0f} to {100 * score.high:.0f}%" in page


def test_inspect_writes_a_page_that_shows_what_to_do(
    handful: Handful, file: Path, folder: Path, tmp_path: Path
) -> None:
    wrong = drawing("cross", 44)
    wrong.save(folder / "bar" / "wrong <b>.png")
    handful("add", file, folder / "bar" / "wrong <b>.png", "--label", "bar")
    code, out = handful("inspect", file)
    assert code == 0
    assert "bar is taken for cross in 1 of its images" in out
    page = (tmp_path / "shapes.html").read_text()
    assert "wrong &lt;b&gt;.png" in page
    assert "wrong <b>" not in page
    doubtful = len(FewShotClassifier.load(file).estimate().doubtful)
    assert page.count("<img") == 17 + doubtful  # every example, and those in doubt once more
    assert "More images of these classes would help most" in page
    assert 'data-example="16"' in page
    assert '<button data-examples="16">1</button>' in page  # the cell of bars taken for crosses
    assert "wrong &lt;b&gt;.<wbr>png</code>" in page  # its path, to be copied
    assert "<dialog" in page
    handful("inspect", file, "-o", tmp_path / "b.html", "--unlabelled", folder, "--suggest", "3")
    assert "Of 17 unlabelled images" in (tmp_path / "b.html").read_text()
