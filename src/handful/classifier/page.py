"""The page of `handful inspect`: a classifier at a glance, and what would improve it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from handful.classifier.answers import Estimate
from handful.classifier.classifier import FewShotClassifier
from handful.classifier.examples import State
from handful.classifier.inputs import Picture, count_of, thumbnail
from handful.report.page import Group, Thumb, code, groups, heading, page, paragraph, shades, thumbs, tiles

SHOWN = 14
"""The least number of examples to show per class; all that are mistaken for another class are shown."""
DOUBTFUL = 12
LARGEST_TABLE = 40


def inspection_page(clf: FewShotClassifier, name: str, unlabelled: Sequence[Picture] = (), k: int = 12) -> str:
    """The HTML page of a classifier; with unlabelled pictures, also which of them to label next."""
    state, estimate = clf.state_, clf.estimate()
    score = estimate.score
    facts = [
        (f"{100 * score.accuracy:.1f}%" if score.examples else "unknown", "accuracy to expect on new images"),
        (
            f"{100 * score.low:.0f} to {100 * score.high:.0f}%",
            f"95% interval{'' if score.examples else ', from similar tasks'}",
        ),
        (str(len(state.classes)), "classes"),
        (str(len(state.codes)), "examples"),
    ]
    taken = _taken_for(state)
    parts = [tiles(facts), paragraph(_meaning(estimate))]
    parts += _doubtful_part(state, estimate) + _advice_part(clf, estimate, unlabelled, k)
    parts += _class_part(state, estimate, taken) + _confusion_part(estimate, taken)
    parts += [heading("What to type"), code(_commands(name))]
    lead = f"{count_of(len(state.classes), 'class')}, {clf.learner} on {clf.embedding_}, lambda {clf.lam_:.3g}."
    return page(name, lead, parts, viewer=True)


def _taken_for(state: State) -> Mapping[tuple[int, int], list[str]]:
    """The held-out examples by class and predicted class."""
    cells: dict[tuple[int, int], list[str]] = {}
    for index in state.held_out:
        guess = int(state.held_out_scores[index].argmax())
        cells.setdefault((int(state.codes[index]), guess), []).append(str(index))
    return cells


def _meaning(estimate: Estimate) -> str:
    score = estimate.score
    if not score.examples:
        return "Every class has one example only, so none can be held out to test the rest. Add a second to some class."
    how = "exactly" if score.exact else "to first order"
    alone = sum(not each.tested for each in estimate.classes)
    note = f" {count_of(alone, 'class')} could not be tested, with one image only." if alone else ""
    return (
        f"Each of {count_of(score.examples, 'example')} was predicted by all others, which equals fitting without it, "
        f"{how}. The accuracy counts all classes the same, and adds what one more image usually gains. "
        f"Click a picture to see it large with its path.{note}"
    )


def _thumb(state: State, index: int, text: str = "", marked: bool = False, small: bool = False) -> Thumb:
    source = state.sources[index]
    path = source.name or f"example {index}"
    return Thumb(source.thumbnail, text, path, marked, small, str(index), path)


def _doubtful_part(state: State, estimate: Estimate) -> list[Markup]:
    found = estimate.doubtful[:DOUBTFUL]
    if not found:
        none = "None: no label looks wrong." if estimate.score.examples else "Unknown: no label could be tested."
        return [heading("Doubtful labels"), paragraph(none)]
    pictures = [
        _thumb(
            state,
            each.index,
            f"{each.label}? Looks like {each.looks_like}, {100 * each.probability:.0f}% sure",
            marked=True,
        )
        for each in found
    ]
    more = f" The first {DOUBTFUL} of {len(estimate.doubtful)}." if len(estimate.doubtful) > DOUBTFUL else ""
    text = f"All other examples contradict these labels. Each is wrong, or shows what its class still lacks.{more}"
    return [heading("Doubtful labels"), paragraph(text), thumbs(pictures)]


def _advice_part(clf: FewShotClassifier, estimate: Estimate, unlabelled: Sequence[Picture], k: int) -> list[Markup]:
    parts = [heading("What to label next")]
    if unlabelled:
        chosen: list[Picture] = clf.suggest(list(unlabelled), k)
        pictures = [
            Thumb(thumbnail(each, each.read()), f"{guess}?", each.name, key=f"new{number}", path=each.name)
            for number, (each, guess) in enumerate(zip(chosen, clf.predict(chosen), strict=True))
        ]
        text = f"Of {count_of(len(unlabelled), 'unlabelled image')}, label these first:"
        return [*parts, paragraph(text), thumbs(pictures)]
    if not estimate.needs:
        return [*parts, paragraph("Every class was recognised whenever it was tested. Add harder images of each.")]
    told = "; ".join(f"{each.label} ({count_of(each.images, 'image')}: {each.reason})" for each in estimate.needs)
    text = f"More images of these classes would help most: {told}. With --unlabelled FOLDER this page names images."
    return [*parts, paragraph(text)]


def _class_part(state: State, estimate: Estimate, taken: Mapping[tuple[int, int], list[str]]) -> list[Markup]:
    doubtful = {each.index for each in estimate.doubtful}
    wrong = {int(key) for (row, column), keys in taken.items() if row != column for key in keys}
    rows = []
    for number, each in enumerate(estimate.classes):
        members = [int(i) for i in np.flatnonzero(state.codes == number)]
        first = sorted(members, key=lambda index: index not in wrong)
        shown = first[: max(SHOWN, sum(index in wrong for index in members))]
        pictures = [_thumb(state, index, marked=index in doubtful, small=True) for index in shown]
        tested = f", {each.right:g} of {each.tested} right when held out" if each.tested else ""
        more = f", {len(members) - len(shown)} not shown" if len(members) > len(shown) else ""
        rows.append(Group(str(each.label), f"{count_of(each.images, 'image')}{tested}{more}", pictures))
    return [heading("Classes"), groups(rows)]


def _confusion_part(estimate: Estimate, taken: Mapping[tuple[int, int], list[str]]) -> list[Markup]:
    if not estimate.confusions:
        return []
    pairs = "; ".join(f"{each.label} for {each.taken_for} ({each.count})" for each in estimate.confusions[:5])
    parts = [heading("Confusion"), paragraph(f"Most often taken for each other: {pairs}.")]
    if len(estimate.classes) > LARGEST_TABLE:
        return parts
    text = "Rows are labels, columns what the held-out examples were taken for. Click a number to see them."
    names = [str(each.label) for each in estimate.classes]
    wrong = {cell: keys for cell, keys in taken.items() if cell[0] != cell[1]}
    return [*parts, paragraph(text), shades(names, estimate.confusion, wrong)]


def _commands(name: str) -> list[str]:
    file = Path(name).name
    return [
        f"handful predict {file} IMAGES...            # labels; --top 3, --reject, --move-to",
        f"handful test {file} FOLDER                  # accuracy on labelled images",
        f"handful add {file} IMAGES... --label NAME   # learn more, also new classes",
        f"handful forget {file} --images IMAGES...    # unlearn, exactly; or --label NAME",
    ]
