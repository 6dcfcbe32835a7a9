"""What the studio learns and shows, as pure functions of one immutable state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from handful.classifier.answers import DIGITS, ScoreEstimate
from handful.classifier.estimate import class_estimates, doubtful, duplicates, nearest, needs, score_estimate, suggest
from handful.classifier.examples import Options, Source, State, fit_state
from handful.classifier.inputs import Matrix
from handful.classifier.selection import probabilities, rejection_threshold
from handful.errors import NotEnoughClassesError

SORTED = 60
"""Images of the pile whose order is computed exactly; the others follow by uncertainty."""
REJECTIONS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""Shares of known images that the slider of the tray offers to reject; 0 rejects nothing."""
USUAL_REJECTION = 0.05
"""The share at which the slider starts."""
NEAREST = 5
Json = dict[str, Any]
Labels = Mapping[str, str]
"""The label of each image, by its digest."""


def learnt(
    state: State | None, labels: Labels, features: Mapping[str, Matrix], name_of: Callable[[str], str]
) -> State | None:
    """The state for these labels: differences are forgotten, relabelled or added exactly; None below two classes."""
    if len(set(labels.values())) < 2:
        return None

    def examples(items: Iterable[str]) -> tuple[Matrix, NDArray[Any], list[Source]]:
        rows = np.stack([features[item] for item in items])
        return rows, np.array([labels[item] for item in items]), [Source(name_of(item), item) for item in items]

    if state is None:
        return fit_state(Options(), *examples(labels))
    known = dict(zip((source.digest for source in state.sources), state.labels.tolist(), strict=True))
    changed = [item for item, label in labels.items() if known.get(item) != label]
    gone = [item for item in known if item not in labels]
    if not changed and not gone:
        return state
    if len(changed) + len(gone) > len(labels) // 2:
        return fit_state(Options(), *examples(labels))
    try:
        return _updated(state, labels, [*known], changed, gone, examples)
    except NotEnoughClassesError:  # temporarily, not in the result
        return fit_state(Options(), *examples(labels))


def _updated(
    state: State, labels: Labels, known: list[str], changed: list[str], gone: list[str], examples: Callable[..., Any]
) -> State:
    place = {item: row for row, item in enumerate(known)}
    moved: dict[str, list[int]] = {}
    for item in changed:
        if item in place:
            moved.setdefault(labels[item], []).append(place[item])
    for label, rows in moved.items():
        state = state.relabel(rows, label)
    new = [item for item in changed if item not in place]
    if new:
        state = state.add(*examples(new))
    return state.remove([place[item] for item in gone]) if gone else state


# ----------------------------------------------------------------------------------------------------- what it shows


def shown(state: State) -> Json:
    """Accuracy, classes, guesses, doubtful labels, near duplicates and thresholds, with images given by digest."""
    classes = class_estimates(state)
    digests = [source.digest for source in state.sources]
    return {
        "score": score_json(score_estimate(state)),
        "classes": {str(each.label): {"tested": each.tested, "right": round(each.right, DIGITS)} for each in classes},
        "guesses": _guesses(state),
        "doubtful": {each.digest: (str(each.looks_like), round(each.probability, DIGITS)) for each in doubtful(state)},
        "duplicates": sorted(sorted(digests[row] for row in group.indices) for group in duplicates(state)),
        "needs": {str(each.label): each.reason for each in needs(classes)},
        "thresholds": thresholds(state),
    }


def _guesses(state: State) -> dict[str, str]:
    """The class that all others predict for each example that can be held out."""
    held, names = state.held_out.tolist(), [str(label) for label in state.classes]
    best = state.held_out_scores[held].argmax(1).tolist() if held else []
    return {state.sources[row].digest: names[code] for row, code in zip(held, best, strict=True)}


def thresholds(state: State) -> list[float | None]:
    """Unknown scores above which an image is none of the classes, one per share of `REJECTIONS`.

    There are none if no example can be held out.
    """
    scores = state.held_out_unknown_scores
    if not len(scores):
        return []
    return [_finite(rejection_threshold(scores, share)) if share else None for share in REJECTIONS]


def score_json(score: ScoreEstimate) -> Json:
    """An estimated accuracy as plain values, or None without an estimate."""
    return {
        "accuracy": _finite(score.accuracy),
        "low": _finite(score.low),
        "high": _finite(score.high),
        "examples": score.examples,
        "exact": score.exact,
        "untested": score.untested,
    }


def sorted_pile(state: State | None, pile: Mapping[str, Matrix]) -> list[Json]:
    """Unlabelled images with a guess for each, sorted by how much their label would teach."""
    ids = [*pile]
    if state is None or not ids:
        return [{"id": item} for item in ids]
    rows = np.stack([*pile.values()])
    probabilities = _probabilities(state, rows)
    best = probabilities.max(1)
    first = suggest(state, rows, min(SORTED, len(ids)))
    chosen = set(first)
    order = first + [int(i) for i in np.argsort(best, kind="stable") if int(i) not in chosen]
    return [
        {"id": ids[i], "guess": str(state.classes[probabilities[i].argmax()]), "probability": float(best[i])}
        for i in order
    ]


def answered(state: State, row: Matrix) -> Json:
    """The answer for one image: probabilities, unknown score and nearest examples."""
    probabilities = _probabilities(state, row[None])[0]
    return {
        "answers": [
            {"label": str(state.classes[i]), "probability": float(probabilities[i])}
            for i in np.argsort(-probabilities, kind="stable")
        ],
        "unknown": float(state.unknown_scores(row[None])[0]),
        "nearest": [
            {"id": state.sources[each.index].digest, "label": str(each.label), "similarity": each.similarity}
            for each in nearest(state, row, NEAREST)
        ],
        "version": state.version,
    }


def _probabilities(state: State, rows: Matrix) -> Matrix:
    return probabilities(state.scores(rows), state.scale)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def needs_of(state_needs: Mapping[str, str], name: str, count: int, enough: int) -> str:
    """Why a class needs more images; empty if it does not."""
    if count < 2:
        return "needs a second image to be tested" if count else "needs images"
    if name in state_needs:
        return state_needs[name]
    return f"{enough - count} more would help" if count < enough else ""


class Page:
    """The images as shown on the page, each with the revision of its last change."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[int, Json]] = {}
        self._gone: dict[str, int] = {}

    def turn(self, revision: int, items: Mapping[str, Json]) -> None:
        """Update to the images of a new revision."""
        before = self._items
        self._gone |= dict.fromkeys(before.keys() - items.keys(), revision)
        for item in self._gone.keys() & items.keys():
            del self._gone[item]
        self._items = {
            item: before[item] if item in before and before[item][1] == value else (revision, value)
            for item, value in items.items()
        }

    def since(self, revision: int | None) -> Json:
        """All images, or those that changed after a revision and those that were removed."""
        if revision is None:
            return {"items": [value for _, value in self._items.values()]}
        changed = [value for when, value in self._items.values() if when > revision]
        return {
            "since": revision,
            "items": changed,
            "gone": [item for item, when in self._gone.items() if when > revision],
        }
