"""The miniImageNet recipes run from end to end, from images in both of its layouts to a report, on tiny pictures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from handful.cli import main
from handful.data.sources import mini_imagenet
from handful.data.splits import entries

PER_CLASS = 48
"""As many as a 5-way episode of the paper takes of a class."""


def picture(seed: int, number: int) -> Image.Image:
    """A class is a tint; an image is that tint with noise."""
    tint = np.random.default_rng(seed).integers(0, 256, 3)
    noise = np.random.default_rng([seed, number]).normal(0, 60, (6, 6, 3))
    return Image.fromarray((tint + noise).clip(0, 255).astype(np.uint8))


def class_folders(root: Path) -> None:
    for seed, entry in enumerate(entries(mini_imagenet.LIST)):
        folder = root / entry.part / entry.name
        folder.mkdir(parents=True)
        for number in range(PER_CLASS):
            picture(seed, number).save(folder / f"{entry.name}_{number}.png")


def csv_lists(root: Path) -> None:
    (root / "images").mkdir(parents=True)
    listed: dict[str, list[str]] = {"train": [], "val": [], "test": []}
    for seed, entry in enumerate(entries(mini_imagenet.LIST)):
        for number in range(PER_CLASS):
            name = f"{entry.name}{number:08d}.png"
            picture(seed, number).save(root / "images" / name)
            listed[entry.part].append(f"{name},{entry.name}")
    for part, lines in listed.items():
        (root / f"{part}.csv").write_text("\n".join(["filename,label", *lines]) + "\n")


@pytest.mark.slow
@pytest.mark.parametrize("layout", [class_folders, csv_lists])
def test_from_pictures_to_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], layout: object
) -> None:
    assert callable(layout)
    monkeypatch.setattr(mini_imagenet, "PER_CLASS", PER_CLASS)
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path / "data"))
    layout(tmp_path / "pictures")
    assert main(["data", "add", "mini-imagenet", "--from", str(tmp_path / "pictures")]) == 0
    words = ["table1", "--only", "mini-imagenet/r2d2-64C", "--episodes", "1", "--width", "32C"]
    assert main(["reproduce", *words, "--test-episodes", "30", "--out", str(tmp_path)]) == 0
    facts = json.loads((tmp_path / "table1.json").read_text())
    assert [cell["column"] for cell in facts["cells"]] == ["miniImageNet 5-way 1-shot", "miniImageNet 5-way 5-shot"]
    assert [cell["published"] for cell in facts["cells"]] == [None, None]  # 32C is not the row's network
    assert all("32C" in cell["label"] for cell in facts["cells"])
    for cell in facts["cells"]:
        assert cell["ours"]["closed"]["mean"] - cell["ours"]["closed"]["half"] > 0.2  # tints can be told apart
        assert cell["manifests"][0]["recipe"]["way"] == 16
    assert facts["missing"] == []
    assert "IN PART: 32C in place of 64C; 1 of 120,000 episodes" in (tmp_path / "table1.html").read_text()
