"""`handful test` and `handful inspect`: accuracy on new images, and a page that shows what to do."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest

from handful.classifier import FewShotClassifier
from handful.cli.main import main
from handful.errors import HandfulError
from tests.classifier.drawings import SHAPES, drawing, write_folder
from tests.cli.cases import Handful


def test_a_test_set_is_measured(handful: Handful, file: Path, tmp_path: Path) -> None:
    fresh = write_folder(tmp_path / "data" / "test", {"bar": 3, "circle": 2}, first=200)
    write_folder(tmp_path / "data" / "train", {"bar": 1})
    (fresh / "spiral").mkdir()
    drawing("hook", 300).save(fresh / "spiral" / "a.png")
    code, out = handful("test", file, tmp_path / "data", "--csv", tmp_path / "rows.csv")
    clf = FewShotClassifier.load(file)
    assert code == 0
    assert f"{fresh}: 100.0% of 5 images right" in out
    assert "  bar        3 of 3     100.0%\n" in out
    low, high = clf.score_estimate_.interval(5)
    assert f"or {100 * low:.1f} to {100 * high:.1f}% on 5 images: as expected\n" in out
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


def test_names_that_are_no_utf8_are_inspected(own_cache: None, folder: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"odd\xff")
    image = min(folder.rglob("*.png"))
    image.rename(image.with_name(f"{odd}.png"))
    target = tmp_path / f"{odd}.handful"
    assert main(["fit", str(folder), "-o", str(target)]) == 0
    assert main(["inspect", str(target)]) == 0
    assert "odd&#56575;.png" in target.with_suffix(".html").read_text()


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
