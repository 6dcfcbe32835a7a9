"""A studio in a process of its own and a real browser to use it with; skipped where there is no browser."""

from __future__ import annotations

import base64
import io
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from handful.classifier.embedder import choose_embedder
from handful.serve.studio_shelf import Shelf

CHROMIUM = Path(os.environ.get("HANDFUL_CHROMIUM", "/usr/bin/chromium"))
FLAGS = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
NPM = Path(os.environ.get("HANDFUL_NPM", Path(__file__).parents[2] / ".venv" / "npm" / "node_modules"))
KINDS = ("ring", "cross", "zigzag")


@dataclass(frozen=True)
class Server:
    """A running studio."""

    process: subprocess.Popen[str]
    address: str


@contextmanager
def serving(projects: Path, *arguments: str) -> Iterator[Server]:
    """`handful studio` on a free port; killed, not stopped, at the end."""
    command = [sys.executable, "-m", "handful", "studio", *arguments, "--projects", str(projects)]
    command += ["--no-browser", "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("handful studio: http://127.0.0.1:"), line + process.stdout.read()
        yield Server(process, line.split()[2])
    finally:
        process.kill()
        process.wait()


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser with a fake webcam."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"needs a browser: there is no {CHROMIUM} (apt-get install chromium, or HANDFUL_CHROMIUM)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


def drawing(kind: str, number: int) -> bytes:
    """A drawn sign as a PNG file, each number by another hand."""
    hand = random.Random(f"{kind} {number}")
    image = Image.new("L", (96, 96), 250)
    pen = ImageDraw.Draw(image)

    def at(value: float) -> float:
        return value + hand.uniform(-9, 9)

    def line(*points: tuple[float, float]) -> None:
        pen.line([(at(x), at(y)) for x, y in points], fill=20, width=hand.randint(4, 6))

    if kind == "ring":
        pen.ellipse([at(18), at(18), at(76), at(76)], outline=20, width=hand.randint(4, 6))
    elif kind == "cross":
        line((18, 18), (78, 78))
        line((78, 18), (18, 78))
    elif kind == "zigzag":
        line((10, 30), (32, 66), (48, 30), (66, 66), (86, 30))
    else:
        pen.rectangle([0, 0, 95, 95], fill=20)
        for x in range(0, 96, 12):
            pen.line([x, 0, 95 - x, 95], fill=240, width=3)
    image = image.rotate(hand.uniform(-30, 30), fillcolor=250)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def drop(page: Any, selector: str, files: Sequence[tuple[str, bytes]]) -> None:
    """Drop files on an element as a file manager does."""
    given = [{"name": name, "data": base64.b64encode(data).decode()} for name, data in files]
    transfer = page.evaluate_handle(
        """(files) => {
            const transfer = new DataTransfer();
            for (const { name, data } of files) {
                const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
                transfer.items.add(new File([bytes], name, { type: "image/png" }));
            }
            return transfer;
        }""",
        given,
    )
    for event in ("dragenter", "dragover", "drop"):
        page.dispatch_event(selector, event, {"dataTransfer": transfer})


def drop_paths(page: Any, selector: str, paths: Sequence[Path]) -> None:
    """Drop files or folders of the disk on an element, through the browser's own drag and drop."""
    box = page.locator(selector).bounding_box()
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 20}
        session.send("Input.dispatchDragEvent", {"type": kind, **place, "data": data})


def paste(page: Any, image: bytes) -> None:
    """Put a PNG file on the clipboard and press Ctrl-V."""
    page.evaluate(
        """async (data) => {
            const type = "image/png", bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
            await navigator.clipboard.write([new ClipboardItem({ [type]: new Blob([bytes], { type }) })]);
        }""",
        base64.b64encode(image).decode(),
    )
    page.keyboard.press("Control+v")


def large_project(projects: Path, classes: int = 50, shots: int = 20) -> str:
    """A project of many classes whose images have been looked at already; its features are clusters with some noise."""
    embedding, generator = choose_embedder("characters", ()), np.random.default_rng(0)
    (features,) = embedding(np.zeros((1, 28, 28, 1), dtype=np.uint8))
    shelf = Shelf(projects)
    identity = shelf.create("Fifty classes")
    project = shelf.open(identity)
    facts: dict[str, Any] = {"embedding": "characters"}
    rows = {}
    for label in range(classes):
        facts[f"class/class {label:02d}"] = {"n": label}
        centre = generator.normal(size=len(features))
        for shot in range(shots):
            item = f"{label:032x}{shot:032x}"
            row = centre + generator.normal(size=len(features))
            rows[item] = row / np.linalg.norm(row)
            facts[f"item/{item}"] = {"name": f"{shot}.png", "label": f"class {label:02d}", "n": label * shots + shot}
            picture = drawing(KINDS[label % 3], label)
            project.keep(item, picture, picture)
    project.keep_features(embedding.digest, rows)
    project.settle(facts)
    project.close()
    return identity
