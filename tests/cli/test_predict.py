"""`handful predict`: labels for people and for scripts, from paths, pipes and folders that are watched."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro
from tqdm import tqdm

from handful.classifier import FewShotClassifier
from handful.cli import predict as predicting
from handful.cli.predict import Predict, percent
from handful.errors import DataError, InvalidOptionError
from tests.cli.cases import Handful


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


def test_the_progress_bar_knows_how_many_images_there_are(
    file: Path, new: Path, handful: Handful, monkeypatch: pytest.MonkeyPatch
) -> None:
    totals = []

    class Bar(tqdm):  # type: ignore[type-arg]
        def __init__(self, *words: Any, **options: Any) -> None:
            totals.append(options["total"])
            super().__init__(*words, **options)

    monkeypatch.setattr("tqdm.tqdm", Bar)
    handful("predict", file, new)
    assert totals == [3]


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


def test_sorting_again_moves_only_what_has_another_label(
    handful: Handful, file: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = new / "sorted"
    handful("predict", file, new, new / "circle", "--move-to", target)  # some images are named twice
    first = sorted(path for path in new.rglob("*") if path.is_file())
    assert [path.parent for path in first] == [target / "circle", target / "circle", target / "cross"]
    handful("predict", file, new, "--move-to", target)
    assert sorted(path for path in new.rglob("*") if path.is_file()) == first
    handful("predict", file, target / "cross", "--move-to", target, "--min-confidence", "1")
    assert [path.name for path in (target / "unsure").iterdir()] == ["60.png"]


@pytest.mark.parametrize("option", ["--move-to", "--copy-to"])
def test_an_image_that_cannot_be_copied_stays_and_leaves_nothing_behind(
    handful: Handful, file: Path, new: Path, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    def another_disk(path: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    before = {path: path.read_bytes() for path in new.rglob("*.png")}
    monkeypatch.setattr(predicting.shutil, "copy2", full)
    monkeypatch.setattr(Path, "replace", another_disk)
    with pytest.raises(DataError, match="No space left"):
        handful("predict", file, new, option, tmp_path / "sorted")
    assert {path: path.read_bytes() for path in new.rglob("*.png")} == before
    assert not [path for path in (tmp_path / "sorted").rglob("*") if path.is_file()]


def test_a_moved_image_keeps_its_content_and_mode_on_another_disk(
    handful: Handful, file: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (image,) = (new / "cross").iterdir()
    image.chmod(0o640)
    content = image.read_bytes()
    monkeypatch.setattr(predicting, "_renamed", lambda path, target: False)
    handful("predict", file, image, "--move-to", tmp_path / "sorted")
    (moved,) = (path for path in (tmp_path / "sorted").rglob("*") if path.is_file())
    assert (moved.read_bytes(), moved.stat().st_mode & 0o777) == (content, 0o640)
    assert not image.exists()


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
    assert f"Watching {drop} " in said
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


@pytest.mark.parametrize("inside", ["", "inbox"])
@pytest.mark.parametrize("option", ["--move-to", "--copy-to"])
def test_a_watched_folder_among_the_sorted_images_is_refused(option: str, inside: str, tmp_path: Path) -> None:
    (tmp_path / "inbox").mkdir()
    given = tyro.cli(Predict, args=["a.handful", "--watch", str(tmp_path / inside), option, str(tmp_path)])
    with pytest.raises(InvalidOptionError, match="sorted already"):
        given._check()
