"""The page of handful inspect as a person sees it: in a browser, wide and narrow, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from handful.classifier import FewShotClassifier
from handful.classifier.page import inspection_page
from handful.report.page import Picture, figure, page
from tests.classifier.drawings import drawing
from tests.serve.browser import chromium

pytestmark = pytest.mark.slow
NAMES = ["Black_footed_Albatross_of_the_northern_Pacific", *(f"class-{number}" for number in range(11))]
SHAPES = ("bar", "hook", "circle", "cross")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    images = [drawing(SHAPES[number % 4], 2 * number + seed) for number, _ in enumerate(NAMES) for seed in range(2)]
    clf = FewShotClassifier("characters", cache=False).fit(images, [name for name in NAMES for _ in range(2)])
    (folder / "page.html").write_text(inspection_page(clf, "shapes.handful"))
    return (folder / "page.html").as_uri()


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_and_its_matrix_is_square(browser: Any, address: str, width: int) -> None:
    shown = browser.new_page(viewport={"width": width, "height": 900})
    shown.goto(address)
    assert shown.evaluate("document.documentElement.scrollWidth") == width
    cells = shown.evaluate("""[...document.querySelectorAll("table.shades td")].map((cell) => {
        const { width, height } = cell.getBoundingClientRect();
        return [width, height];
    })""")
    assert len(cells) == len(NAMES) ** 2
    # a border is shared by two cells
    assert all(abs(wide - high) <= 1.5 and wide >= 24 for wide, high in cells), cells
    name, thumbs = (shown.locator(f".group > div:nth-child({n})").first.bounding_box() for n in (1, 2))
    assert (thumbs["y"] >= name["y"] + name["height"]) == (width == 400)  # below the name where there is no room beside


def test_cells_open_images_which_open_large_with_a_path_to_copy(browser: Any, address: str) -> None:
    shown = browser.new_page(viewport={"width": 400, "height": 900})
    shown.goto(address)
    shown.click("table.shades button >> nth=0")
    opened = shown.locator("dialog.viewer .thumb")
    assert opened.count() == int(shown.locator("table.shades button >> nth=0").inner_text())
    assert opened.first.locator("code").is_visible()
    shown.keyboard.press("Escape")
    shown.click(".group .thumb >> nth=0")
    assert shown.locator("dialog.viewer .thumb").bounding_box()["width"] > 200
    shown.click("dialog.viewer .thumb code")
    path = shown.locator("dialog.viewer .thumb code").inner_text()
    assert shown.evaluate("getSelection().toString()") == path == "number 0"


def test_plots_follow_the_dark_mode(browser: Any, tmp_path: Path) -> None:
    plot = Picture(b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"/>', "svg+xml", "a white plot")
    (tmp_path / "plot.html").write_text(page("t", "l", [figure(plot, "A plot")]))
    colours = {}
    for mode in ("light", "dark"):
        shown = browser.new_page(color_scheme=mode)
        shown.goto((tmp_path / "plot.html").as_uri())
        style = "getComputedStyle(document.querySelector('figure img')).filter"
        colours[mode] = shown.evaluate(f"[getComputedStyle(document.body).backgroundColor, {style}]")
    assert colours["light"] == ["rgb(255, 255, 255)", "none"]
    assert colours["dark"][0] != colours["light"][0]
    assert "invert" in colours["dark"][1]
