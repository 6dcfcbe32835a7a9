"""What is forgotten is gone: no byte of it in the file, in what killed commands left, behind links or in the cache."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from handful import FewShotClassifier
from handful._io import digest
from handful.cli.main import main
from handful.meta.lock import held
from tests.hostile.runs import tiny_benchmark

SMALL = ["--images-per-class", "4", "--max-shot", "2"]


def _drawings(folder: Path) -> None:
    for number, name in enumerate(("keep", "stay", "secret")):
        for index in range(2):
            path = folder / name / f"{name}-{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image = Image.new("L", (40, 40), 255)
            ImageDraw.Draw(image).line((4, 4 + 9 * number, 36, 36 - 7 * number - index), fill=0, width=3)
            image.save(path)


@pytest.mark.slow
def test_forgetting_through_a_link_leaves_nothing_of_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path / "data"))
    _drawings(tmp_path / "images")
    real, link = tmp_path / "real" / "a.handful", tmp_path / "link.handful"
    real.parent.mkdir()
    assert main(["fit", str(tmp_path / "images"), "-o", str(real), "--embedding", "characters"]) == 0
    os.chmod(real, 0o600)
    link.symlink_to(real)
    images = sorted((tmp_path / "images" / "secret").iterdir())
    digests = [digest(image.read_bytes()) for image in images]
    traces = [b"secret", *(each.encode() for each in digests), *(bytes.fromhex(each) for each in digests)]
    traces += [np.asarray(row, dtype="<f8").tobytes() for row in FewShotClassifier.load(real).transform(images)]
    (real.parent / ".a.handful.1-dead.tmp").write_bytes(real.read_bytes())  # of a killed command
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and images[0].parent.parent not in path.parents]
    assert any(trace in path.read_bytes() for path in kept for trace in traces)
    assert main(["forget", str(link), "--label", "secret"]) == 0
    for path in tmp_path.rglob("*"):
        if path.is_file() and images[0].parent.parent not in path.parents:
            content = path.read_bytes()
            assert not [trace[:20] for trace in traces if trace and trace in content], path
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_run_that_another_process_trains_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("handful.meta.run.benchmark_of", lambda *_, **__: tiny_benchmark())
    with held(tmp_path / "run"):
        before = sorted(tmp_path.rglob("*"))
        assert main(["train", "--out", str(tmp_path / "run"), "--width", "32C", "--way", "4", *SMALL]) == 2
        assert sorted(tmp_path.rglob("*")) == before
    assert "in use by process" in capsys.readouterr().err
