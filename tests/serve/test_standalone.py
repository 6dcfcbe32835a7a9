"""The page to take away: names cannot leave the data that it holds, and it rejects the images that Python rejects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from handful import FewShotClassifier
from handful.classifier.embedder import choose_embedder, unit_rows
from handful.classifier.examples import Options, Source, State, fit_state
from handful.classifier.inputs import Matrix
from handful.serve import standalone
from handful.serve.standalone import PAGE, standalone_page
from handful.serve.studio_model import REJECTIONS
from tests.serve.browser import KINDS, chromium, drawing, drop

HOSTILE = "</script><script>alert(1)</script>"
WAIT = 60_000
"""Milliseconds that anything may take on a busy machine."""
FEATURES, WAY = 24, 3


def held_by(page: str) -> Any:
    before, after = PAGE.read_text(encoding="utf-8").split("MODEL_AS_JSON")
    found = re.fullmatch(re.escape(before) + r"(\{.*\})" + re.escape(after), page, re.DOTALL)
    assert found
    return json.loads(found[1])


def signs(shots: int) -> FewShotClassifier:
    images = [drawing(kind, number) for kind in KINDS for number in range(shots)]
    return FewShotClassifier("characters", cache=False).fit(images, [kind for kind in KINDS for _ in range(shots)])


def taken(learnt: FewShotClassifier, share: float = 0.05) -> str:
    assert learnt.embedder_ is not None
    return standalone_page("Signs", learnt.state_, learnt.embedder_, share)


@pytest.fixture(scope="module")
def page() -> str:
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)) for _ in range(4)]
    labels = [HOSTILE, HOSTILE, "<!--", "<!--"]
    learnt = FewShotClassifier(embedding="characters").fit(images, labels)
    assert learnt.embedder_ is not None
    return standalone_page(f"my {HOSTILE}", learnt.state_, learnt.embedder_)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Opens a page from the disk, without a network; fails if the page has an error or asks for anything else."""
    context = browser.new_context(offline=True)
    tab = context.new_page()
    tab.set_default_timeout(WAIT)
    file = tmp_path / "page.html"
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    tab.on(
        "request", lambda asked: None if asked.url.startswith(("blob:", file.as_uri())) else problems.append(asked.url)
    )

    def show(page: str) -> Any:
        file.write_text(page, encoding="utf-8")
        tab.goto(file.as_uri())
        return tab

    yield show
    context.close()
    assert problems == []


def answer_for(tab: Any, image: bytes) -> str:
    tab.evaluate("() => { delete window.probabilities; }")
    drop(tab, "#stage", [("image.png", image)])
    tab.wait_for_function("() => window.probabilities")
    return str(tab.inner_text("#answer"))


# --------------------------------------------------------------------------------------------------------------- names


def test_a_name_cannot_end_the_script_that_holds_it(page: str) -> None:
    template = PAGE.read_text(encoding="utf-8")
    assert page.lower().count("<script") == template.lower().count("<script")
    assert page.lower().count("</script") == template.lower().count("</script")
    assert page.count("<!--") == template.count("<!--")


def test_the_page_holds_the_names_as_they_are(page: str) -> None:
    model = held_by(page)
    assert model["name"] == f"my {HOSTILE}"
    assert sorted(model["classes"]) == ["<!--", HOSTILE]


# ------------------------------------------------------------------------------------------------------- none of these


def clusters(n: int, seed: int = 0) -> tuple[Matrix, Matrix]:
    """Features of length 1 around a centre per class, far from 0, and class numbers of unequal frequency."""
    rng = np.random.default_rng(seed)
    codes = np.concatenate([[0, 1, 2, 0, 1, 2], rng.choice(WAY, n - 6, p=[0.6, 0.3, 0.1])])
    centres = 2 + np.random.default_rng(9).normal(size=(WAY, FEATURES))
    return unit_rows(centres[codes] + 0.7 * rng.normal(size=(n, FEATURES))), codes


def learnt(n: int, **options: Any) -> State:
    return fit_state(Options(**options), *clusters(n), [Source()] * n)


def grown(n: int) -> State:
    """Examples added after the fit, so that the state's origin is no longer their mean."""
    features, codes = clusters(n // 5, seed=1)
    return learnt(n, tune_limit=0).add(features + 0.1, codes, [Source()] * (n // 5))


STATES: dict[str, Callable[[], State]] = {
    "fewer examples than features": lambda: learnt(9),
    "as many examples as features": lambda: learnt(FEATURES),
    "more examples than features": lambda: learnt(90),
    "hardly any lambda": lambda: learnt(12, lam=1e-6),
    "hardly any lambda, many examples": lambda: learnt(90, lam=1e-6),
    "added later": lambda: grown(60),
    "logistic regression": lambda: learnt(12, learner="logistic"),
    "prototypes, many examples": lambda: learnt(90, learner="prototypes"),
    "frequent classes preferred": lambda: learnt(40, balance=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", STATES)
def test_the_page_computes_the_unknown_score_of_python(case: str, opened: Callable[[str], Any]) -> None:
    state = STATES[case]()
    tab = opened(standalone_page(case, state, choose_embedder("characters", ())))
    foreign = unit_rows(np.random.default_rng(5).normal(size=(4, FEATURES)))
    queries = np.vstack([state.features[:4] + state.origin, clusters(10, seed=3)[0], foreign])
    found = tab.evaluate("(rows) => rows.map((row) => unknownScore(row, model.rejection))", queries.tolist())
    expected = state.unknown_scores(queries)
    assert np.ptp(expected) > 1
    # weights and matrix are rounded to float32, 6e-8 of values below 10; the sums are in float64
    assert found == pytest.approx(expected.tolist(), abs=1e-6)


@pytest.mark.slow
def test_the_page_rejects_the_images_that_python_rejects(opened: Callable[[str], Any]) -> None:
    clf = signs(shots=6)
    tab = opened(taken(clf))
    images = [drawing(kind, number) for kind in (*KINDS, "grid") for number in (70, 71, 72)]
    answers = clf.answer(images, false_rejection=0.05)
    assert {each.rejected for each in answers} == {True, False}
    for image, expected in zip(images, answers, strict=True):
        found = answer_for(tab, image)
        # float32 in the network and one grey level in resizing
        assert tab.evaluate("window.unknown") == pytest.approx(expected.unknown_score, abs=2e-3)
        nearest = expected.top[0].label
        if expected.rejected:
            assert found == f"None of these nearest is {nearest}"
        else:
            assert found.startswith(f"{nearest} ")


@pytest.mark.slow
def test_the_slider_changes_which_images_are_rejected(opened: Callable[[str], Any]) -> None:
    clf = signs(shots=6)
    tab = opened(taken(clf))
    slider = tab.get_by_label("None of these")
    assert slider.get_attribute("aria-valuetext") == "calls about 5% of known images unknown"
    assert answer_for(tab, drawing("grid", 70)).startswith("None of these")
    assert tab.locator("#answers.faded li").count() == WAY
    slider.focus()
    tab.keyboard.press("Home")
    assert tab.inner_text("#caption") == slider.get_attribute("aria-valuetext") == "off: every image gets a class"
    assert not tab.inner_text("#answer").startswith("None of these")
    assert tab.locator("#answers:not(.faded) li").count() == WAY
    tab.keyboard.press("End")
    assert tab.inner_text("#caption") == "calls about 30% of known images unknown"
    image = next(
        each
        for each in (drawing(kind, number) for kind in KINDS for number in range(60, 90))
        if clf.unknown_threshold(0.3) + 0.01 < clf.unknown_score([each])[0] < clf.unknown_threshold(0.01) - 0.01
    )
    assert answer_for(tab, image).startswith("None of these")
    for _ in REJECTIONS[2:]:
        tab.keyboard.press("ArrowLeft")
    assert tab.inner_text("#caption") == "calls about 1% of known images unknown"
    assert not tab.inner_text("#answer").startswith("None of these")


@pytest.mark.slow
def test_one_image_per_class_has_no_slider(opened: Callable[[str], Any]) -> None:
    clf = signs(shots=1)
    tab = opened(taken(clf))
    assert answer_for(tab, drawing("grid", 70)).startswith(clf.predict([drawing("grid", 70)])[0])
    assert tab.locator("#strict").is_hidden()
    assert "It always picks one of them." in tab.inner_text("#about")


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_rejected_image_fits_the_screen(opened: Callable[[str], Any], width: int, scheme: str) -> None:
    names = {kind: kind * 12 for kind in KINDS}
    images = [drawing(kind, number) for kind in KINDS for number in range(3)]
    clf = FewShotClassifier("characters", cache=False).fit(images, [names[kind] for kind in KINDS for _ in range(3)])
    tab = opened(taken(clf))
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=scheme)
    assert answer_for(tab, drawing("grid", 70)).startswith("None of these")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    colours = tab.evaluate(
        "['#label', '#answers li', 'section'].map((each, i) => getComputedStyle(document.querySelector(each))[i < 2 ? "
        "'color' : 'backgroundColor'])"
    )
    verdict, faded, ground = (brightness(each) for each in colours)
    for text in (verdict, faded):  # the contrast that WCAG asks of text
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5


def brightness(colour: str) -> float:
    """The relative luminance of rgb(r, g, b), as WCAG 2 defines it."""
    shares = np.array([int(part) for part in colour[4:-1].split(",")]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_the_slider_has_the_thresholds_of_python_and_starts_where_the_studio_does() -> None:
    clf = signs(shots=3)
    rejection = held_by(taken(clf))["rejection"]
    assert rejection["shares"] == list(REJECTIONS)
    assert rejection["thresholds"] == [None, *(clf.unknown_threshold(share) for share in REJECTIONS[1:])]
    assert rejection["share"] == 0.05
    assert held_by(taken(clf, 0.2))["rejection"]["share"] == 0.2


@pytest.mark.parametrize(("n", "floats"), [(9, 9 * 24 - 36), (24, 300), (90, 300)])
def test_the_matrix_has_at_most_half_the_square_of_the_features(
    n: int, floats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder, state = choose_embedder("characters", ()), learnt(n)
    packed = held_by(standalone_page("Signs", state, embedder))["rejection"]["explained"]
    assert len(packed) == 4 * -(-4 * floats // 3)  # base64 of four bytes each
    monkeypatch.setattr(standalone, "LARGEST_MATRIX", floats)
    assert held_by(standalone_page("Signs", state, embedder))["rejection"]
    monkeypatch.setattr(standalone, "LARGEST_MATRIX", floats - 1)
    assert held_by(standalone_page("Signs", state, embedder))["rejection"] is None
