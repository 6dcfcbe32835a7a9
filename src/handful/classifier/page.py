"""The page of `handful inspect`: a classifier at a glance, and what would make it better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from markupsafe import Markup

from handful.classifier.classifier import FewShotClassifier
from handful.classifier.examples import State
from handful.classifier.explain import confusion_matrix, confusions, suspects
from handful.classifier.inputs import Picture, thumbnail
from handful.report.page import Group, Thumb, code, groups, heading, page, paragraph, shades, thumbs, tiles

SHOWN = 14
"""Examples of a class to show."""
SUSPECTS = 12
LARGEST_TABLE = 40


def inspection_page(clf: FewShotClassifier, name: str, unlabelled: Sequence[Picture] = (), k: int = 12) -> str:
    """The HTML page of a classifier; with unlabelled pictures, also which of them to label next."""
    state, estimate = clf.state_, clf.score_estimate_
    facts = [
        (f"{100 * estimate.accuracy:.1f}%" if estimate.examples else "unknown", "accuracy by leave-one-out"),
        (_interval(estimate.low, estimate.high) if estimate.examples else "-", "95% interval"),
        (str(len(state.classes)), "classes"),
        (str(len(state.codes)), "examples"),
        (clf.embedding_.partition(" ")[0], "embedding"),
    ]
    parts = [tiles(facts), paragraph(_meaning(state, estimate.examples, estimate.exact))]
    parts += (
        _suspect_part(state) + _advice_part(clf, state, unlabelled, k) + _class_part(state) + _confusion_part(state)
    )
    parts += [heading("What to type"), code(_commands(name))]
    lead = f"A {clf.learner} classifier of {len(state.classes)} classes, lambda {clf.lam_:.3g}, scale {clf.scale_:.3g}."
    return page(name, lead, parts)


def _meaning(state: State, held: int, exact: bool) -> str:
    if not held:
        return "Every class has one example only, so none can be held out to test the rest. Add a second to some class."
    alone = len(state.codes) - held
    how = "refitting without it, exactly" if exact else "refitting without it, to first order"
    note = f" {alone} examples are the only ones of their class and could not be held out." if alone else ""
    return (
        f"Each of {held} examples was predicted by all others, which equals {how}. A class loses one of its few "
        f"examples in that test, so the true accuracy tends to be a little higher.{note}"
    )


def _suspect_part(state: State) -> list[Markup]:
    found = suspects(state)[:SUSPECTS]
    if not found:
        return [heading("Suspicious labels"), paragraph("None: all held-out examples agree with their labels.")]
    pictures = [
        Thumb(
            state.sources[each.index].thumbnail,
            f"{each.label}? looks like {each.looks_like}",
            f"{each.name or f'example {each.index}'}: its label has {100 * each.probability:.1f}%",
            marked=True,
        )
        for each in found
    ]
    text = "All other examples contradict these labels. Each is wrong, or shows what its class still lacks."
    return [heading("Suspicious labels"), paragraph(text), thumbs(pictures)]


def _advice_part(clf: FewShotClassifier, state: State, unlabelled: Sequence[Picture], k: int) -> list[Markup]:
    parts = [heading("What to label next")]
    if unlabelled:
        images = [each.name if each.content is None else each.content for each in unlabelled]
        chosen = clf.suggest(images, k)
        guesses = clf.predict([images[i] for i in chosen])
        pictures = [
            Thumb(thumbnail(unlabelled[i], unlabelled[i].read()), f"{guess}?", unlabelled[i].name)
            for i, guess in zip(chosen, guesses, strict=True)
        ]
        text = f"Of {len(unlabelled)} unlabelled images, the labels of these would take most doubt from all others:"
        return [*parts, paragraph(text), thumbs(pictures)]
    counts, right = state.counts, np.diagonal(confusion_matrix(state))
    recall = np.where(counts > 1, right / counts, 0.5)
    needy = sorted(range(len(counts)), key=lambda c: (counts[c] > 1, recall[c], counts[c]))[:5]
    told = ", ".join(f"{state.classes[c]} ({_recall(state, c)})" for c in needy)
    text = (
        f"More images of these classes would help most: {told}. With --unlabelled FOLDER this page names the very "
        f"images."
    )
    return [*parts, paragraph(text)]


def _class_part(state: State) -> list[Markup]:
    doubtful = {each.index for each in suspects(state)}
    rows = []
    for number, label in enumerate(state.classes):
        members = np.flatnonzero(state.codes == number)
        pictures = [
            Thumb(
                state.sources[i].thumbnail,
                title=state.sources[i].name or f"example {i}",
                marked=int(i) in doubtful,
                small=True,
            )
            for i in members[:SHOWN]
        ]
        more = f", {len(members) - SHOWN} not shown" if len(members) > SHOWN else ""
        rows.append(Group(str(label), f"{_recall(state, number)}{more}", pictures))
    return [heading("Classes"), groups(rows)]


def _confusion_part(state: State) -> list[Markup]:
    found = confusions(state)
    if not found:
        return []
    pairs = "; ".join(f"{each.label} for {each.taken_for} ({each.count})" for each in found[:5])
    parts = [heading("Confusion"), paragraph(f"Most often taken for each other: {pairs}.")]
    if len(state.classes) > LARGEST_TABLE:
        return parts
    counts = [[int(count) for count in row] for row in confusion_matrix(state)]
    text = "Rows are labels, columns what the held-out examples were taken for."
    return [*parts, paragraph(text), shades([str(label) for label in state.classes], counts)]


def _recall(state: State, number: int) -> str:
    n = int(state.counts[number])
    if n == 1:
        return "1 image"
    right = int(confusion_matrix(state)[number, number])
    return f"{n} images, {right} right when held out"


def _interval(low: float, high: float) -> str:
    return f"{100 * low:.0f} to {100 * high:.0f}%"


def _commands(name: str) -> list[str]:
    file = Path(name).name
    return [
        f"handful predict {file} IMAGES...                # labels; --json, --csv, --reject",
        f"handful add {file} IMAGES... --label NAME       # learn more, also new classes",
        f"handful forget {file} --images IMAGES...        # unlearn, exactly; or --label NAME",
    ]
