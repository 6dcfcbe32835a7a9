"""`python -m benchmarks --only studio`: how soon the studio's page shows, and how long a change takes, in chromium.

One `handful studio` process on 127.0.0.1 with one thread. Writes benchmarks/STUDIO.md.
"""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from handful._io import write_atomically
from handful.serve.studio_shelf import Shelf
from tests.serve.browser import chromium, large_project, serving

CLASSES, SHOTS = 50, 20
LOADS, CHANGES = 7, 15
PATIENCE = 60_000
"""Milliseconds that anything may take on a busy machine."""
PAINTED = """async () => {
    const found = () => performance.getEntriesByName("first-contentful-paint")[0];
    while (!found()) await new Promise(requestAnimationFrame);
    return found().startTime;
}"""
LAST_CHANGE = """async (count) => {
    const found = () => performance.getEntriesByType("measure")
        .filter((each) => each.name.startsWith("handful ") && !each.name.endsWith("drawn"));
    while (found().length < count) await new Promise(requestAnimationFrame);
    return found().at(-1).duration;
}"""


def measure(out: Path) -> str:
    """Load and change projects, write the page, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        projects = Path(folder)
        large, empty = large_project(projects, CLASSES, SHOTS), Shelf(projects).create("Empty")
        with chromium() as browser, serving(projects) as server:
            root = server.address.rstrip("/")
            pages = {
                "the list of projects": (root, "#new-name"),
                "an empty project": (f"{root}/p/{empty}", "#new-class"),
                f"a project of {CLASSES} x {SHOTS} images": (f"{root}/p/{large}", "#accuracy"),
            }
            painted = {name: [_loaded(browser, *page) for _ in range(LOADS)] for name, page in pages.items()}
            changed = _changed(browser, f"{root}/p/{large}")
    page = _page(browser.version, painted, changed)
    write_atomically(out, page.encode())
    return page


def _loaded(browser: Any, address: str, selector: str) -> tuple[float, float]:
    """Milliseconds to the first paint, and until an element is there, in a browser that has cached nothing."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address, wait_until="commit")
    page.wait_for_selector(selector)
    ready = page.evaluate("performance.now()")
    first = page.evaluate(PAINTED)
    context.close()
    return first, ready


def _changed(browser: Any, address: str) -> dict[str, list[tuple[float, ...]]]:
    """Milliseconds in the server, of its processor, and until the page shows it, for each kind of change."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.wait_for_function("(n) => document.querySelectorAll('.columns .thumb').length === n", arg=CLASSES * SHOTS)
    kinds: dict[str, Callable[[], None]] = {
        "relabel an image": lambda: page.keyboard.press("9"),
        "undo that": lambda: page.keyboard.press("Control+z"),
        "delete an image": lambda: page.keyboard.press("Delete"),
        "undo the deletion": lambda: page.keyboard.press("Control+z"),
    }
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in kinds}
    for number in range(CHANGES):
        for name, press in kinds.items():
            page.focus(f'.column[data-class="class {number % 8:02d}"] .thumb >> nth={number % 5}')
            count = sum(map(len, found.values())) + 1
            with page.expect_response("**/do") as waiting:
                press()
            times = waiting.value.headers["server-timing"].split(",")
            shown = page.evaluate(LAST_CHANGE, count)
            found[name].append((*(float(each.rpartition("=")[2]) for each in times), shown))
    return found


def _page(version: str, painted: dict[str, list[Any]], changed: dict[str, list[Any]]) -> str:
    def row(name: str, values: list[tuple[float, ...]]) -> str:
        cells = (f"{statistics.median(each):.0f} ({max(each):.0f})" for each in zip(*values, strict=True))
        return f"| {name} | {' | '.join(cells)} |"

    busy = os.getloadavg()[0]
    lines = [
        "# The studio's page",
        "",
        "Written by `python -m benchmarks --only studio`: one `handful studio` process with one thread, and a headless "
        "Chromium on the same machine. Milliseconds: the median, and the longest in brackets.",
        "",
        f"- {platform.machine()}, {os.cpu_count()} cores; the load average at the end was {busy:.1f}.",
        f"- Chromium {version}, Python {platform.python_version()}, torch {torch.__version__}, embedding characters.",
        f"- Each page is opened {LOADS} times with an empty cache; each change is made {CHANGES} times.",
        "",
        "| open | first paint | ready to use |",
        "| --- | --- | --- |",
        *(row(name, values) for name, values in painted.items()),
        "",
        f"Changes to the project of {CLASSES} x {SHOTS} images. Each one is saved to disk, learnt exactly, and "
        "followed by new estimates of all accuracies and new doubtful labels.",
        "",
        "| change | in the server | of that, processor | until the page shows it |",
        "| --- | --- | --- | --- |",
        *(row(name, values) for name, values in changed.items()),
    ]
    return "\n".join(lines) + "\n"
