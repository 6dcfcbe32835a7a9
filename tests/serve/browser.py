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

import pytest
from PIL import Image, ImageDraw

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
