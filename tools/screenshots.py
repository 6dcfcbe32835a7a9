"""Take the pictures of the studio for README and docs, from drawn signs: python -m tools.screenshots."""

from __future__ import annotations

import io
import math
import random
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from tests.serve.browser import chromium, drop, serving

PLACE = Path("docs/images")
SIDE = 256
SIGNS = ("cross", "ladder", "ring", "spiral", "zigzag")
SHOTS = 9
PATIENCE = 120_000
"""Milliseconds that anything may take on a busy machine."""
Points = list[tuple[float, float]]


def strokes(kind: str, hand: random.Random) -> list[Points]:
    """The lines of a sign in the square from -1 to 1, each time by another hand."""

    def near(x: float, y: float) -> tuple[float, float]:
        return x + hand.uniform(-0.08, 0.08), y + hand.uniform(-0.08, 0.08)

    if kind == "cross":
        return [[near(-0.7, -0.7), near(0.7, 0.7)], [near(0.7, -0.7), near(-0.7, 0.7)]]
    if kind == "ladder":
        rungs = [[near(-0.35, y), near(0.35, y)] for y in (-0.5, 0.0, 0.5)]
        return [[near(-0.35, -0.9), near(-0.35, 0.9)], [near(0.35, -0.9), near(0.35, 0.9)], *rungs]
    if kind == "zigzag":
        return [[near(-0.9, -0.4), near(-0.4, 0.5), near(0.0, -0.4), near(0.4, 0.5), near(0.9, -0.4)]]
    wide, high = hand.uniform(0.55, 0.8), hand.uniform(0.55, 0.8)
    turns = 1.0 if kind == "ring" else hand.uniform(2.4, 3.0)
    steps = [k / 90 for k in range(91)]
    size = [1.0 if kind == "ring" else 0.1 + 0.9 * t for t in steps]
    angles = [2 * math.pi * turns * t for t in steps]
    return [[(wide * r * math.cos(a), high * r * math.sin(a)) for r, a in zip(size, angles, strict=True)]]


def sign(kind: str, number: int) -> bytes:
    """A drawn sign as a PNG file."""
    hand = random.Random(f"{kind} {number}")
    image = Image.new("L", (SIDE, SIDE), 250)
    pen, width = ImageDraw.Draw(image), hand.randint(6, 13)
    size, turn = SIDE * hand.uniform(0.32, 0.42), hand.uniform(-0.25, 0.25)
    for line in strokes(kind, hand):
        turned = [(x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn)) for x, y in line]
        pen.line([(SIDE / 2 + size * x, SIDE / 2 + size * y) for x, y in turned], fill=15, width=width, joint="curve")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def teach(page: Any) -> None:
    """A project of five classes, one label of which is wrong, and some images without a label."""
    page.fill("#new-name", "Hand-drawn signs")
    page.click("text=Create")
    page.wait_for_selector(".studio")
    for kind in SIGNS:
        page.fill("#new-class", kind)
        page.press("#new-class", "Enter")
        page.wait_for_selector(f'.column[data-class="{kind}"]')
        signs = [(kind, number) for number in range(SHOTS)]
        if kind == "cross":
            signs[-1] = "ring", 70
        drop(page, f'.column[data-class="{kind}"]', [(f"{each} {i}.png", sign(each, i)) for each, i in signs])
        ready = f'.column[data-class="{kind}"] .thumb:not(.waiting)'
        page.wait_for_function("([all, n]) => document.querySelectorAll(all).length === n", arg=[ready, SHOTS])
    drop(page, ".pile", [(f"{kind} {i}.png", sign(kind, i)) for kind in SIGNS for i in (60, 61)])
    page.wait_for_function("() => document.querySelectorAll('.pile .thumb:not(.waiting)').length === 10")


def attempt(page: Any, name: str, image: bytes) -> None:
    """Try an image in the tray."""
    drop(page, ".tray", [(name, image)])
    page.wait_for_selector("#answer")
    page.wait_for_function("(name) => document.querySelector('.stage img').alt.endsWith(name)", arg=name)
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(600)  # bars move to their place


def scribble() -> bytes:
    """A drawing that is none of the signs."""
    hand = random.Random(3)
    image = Image.new("L", (SIDE, SIDE), 250)
    pen = ImageDraw.Draw(image)
    for _ in range(14):
        pen.line([(hand.uniform(20, 236), hand.uniform(20, 236)) for _ in range(3)], fill=15, width=11)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def main() -> None:
    """Write studio-light.png, studio-dark.png and studio-phone.png."""
    with tempfile.TemporaryDirectory() as projects, chromium() as browser, serving(Path(projects)) as server:
        page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
        page.set_default_timeout(PATIENCE)
        page.goto(server.address)
        teach(page)
        attempt(page, "zigzag 40.png", sign("zigzag", 40))
        page.screenshot(path=PLACE / "studio-light.png")
        page.emulate_media(color_scheme="dark")
        attempt(page, "scribble.png", scribble())
        page.locator(".pile").scroll_into_view_if_needed()
        page.screenshot(path=PLACE / "studio-dark.png")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 400, "height": 820})
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(600)
        page.screenshot(path=PLACE / "studio-phone.png")


if __name__ == "__main__":
    main()
