"""What held-out examples reveal: accuracy, confusions, doubtful labels, and which images to label next."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from handful.classifier.answers import (
    PRIOR,
    TAIL,
    ClassEstimate,
    Confusion,
    Doubtful,
    DuplicateGroup,
    Estimate,
    Need,
    Neighbour,
    ScoreEstimate,
    plain,
)
from handful.classifier.examples import State
from handful.classifier.inputs import Matrix
from handful.classifier.selection import probabilities, surprise

LOGITS = np.linspace(-6, 9, 301)
"""The grid of logits of the accuracy at one shot."""
USUAL_LOGIT, LOGIT_SPREAD = 1.2, 0.9
"""Mean and standard deviation of that logit at 10 classes before any evidence. These and the next three were chosen on
development classes, as MISLABELLED below was (`results/own-images.md`)."""
PER_CLASSES, PER_SHOTS = 0.4, 0.6
"""How much the logit falls for e times as many classes, and rises for e times as many shots."""
PER_SHOTS_SPREAD = 0.3
"""The standard deviation of PER_SHOTS over tasks; the fewer the shots, the more it matters."""
DIVERSITY = 0.08
"""How much the rates of classes differ: the share of the variance p (1 - p) of a rate that is between classes."""

MISLABELLED = np.array([0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])
"""The grid of shares of wrong labels, with prior odds of exp(-share / USUAL_SHARE)."""
USUAL_SHARE = 0.1
STEPS = np.linspace(-2.5, 2.5, 41)
"""The grid of logarithms of the scale, relative to the usual one, for finding doubtful labels."""
STEP_SPREAD = 0.2
TOGETHER = 400_000
"""Entries of margins times steps of the grid that are computed at once; more would not fit into a cache."""
DOUBT_SCALE = 1.5
"""The scale there, relative to the one for queries, because wrong labels make scores look less informative."""
NEGLIGIBLE = 20.0
"""Scales under which the labels are this many nats less probable than under the best scale are ignored."""
CERTAIN = 20.0
"""Examples whose own class leads all others by this many nats have probability 1 up to rounding in float32."""
SMALLEST = -80.0
"""Logarithms of odds are clamped here: exp of smaller ones is denormal in float32, which is slow."""
DOUBTFUL = 0.5
"""A label is called doubtful if it is wrong with at least this probability."""
NEEDY = 5
"""Number of classes to list as most in need of images."""


def estimate(state: State) -> Estimate:
    """The complete estimate of a state."""
    classes = class_estimates(state)
    counts = tuple(tuple(int(count) for count in row) for row in confusion_matrix(state))
    return Estimate(
        score_estimate(state), classes, counts, tuple(confusions(state)), doubtful(state), duplicates(state),
        needs(classes), state.version,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ accuracy


def credit(state: State) -> Matrix:
    """The credit for each held-out prediction: 1, 0, or 1 / k if its class ties with k - 1 others."""
    held = state.held_out
    scores = state.held_out_scores[held]
    best = scores >= scores.max(1, keepdims=True) - 1e-9 * np.abs(scores).max(initial=0.0, where=np.isfinite(scores))
    own = best[np.arange(len(held)), state.codes[held]]
    found: Matrix = np.where(own, 1 / best.sum(1), 0.0)
    return found


def score_estimate(state: State) -> ScoreEstimate:
    """The accuracy on new images, all classes equally frequent. Near duplicates count as one image."""
    right, tested, shots = rates(state)
    if state.alike:
        way = len(shots)
        return ScoreEstimate(1 / way, 1 / way, 1 / way, 0, state.head.exact, way, 1e9)
    mean, weight = inferred_accuracy(right, tested, shots)
    low, high = (float(scipy.special.betaincinv(mean * weight, (1 - mean) * weight, t)) for t in (TAIL, 1 - TAIL))
    untested = int((tested == 0).sum())
    return ScoreEstimate(mean, low, high, len(state.held_out), state.head.exact, untested, weight)


def inferred_accuracy(right: Matrix, tested: Matrix, shots: Matrix) -> tuple[float, float]:
    """The mean accuracy over classes, and the equivalent number of independent tests.

    The accuracy of a class with k images is modelled as expit(a + PER_SHOTS ln k), with one unknown a for the task.
    Holding out an example leaves its class with k - 1 images, so the result applies to k - 1, and results of classes
    with many images tell what to expect from those with one.
    """
    way, seen = len(shots), tested > 0
    log_weights = -0.5 * np.square((LOGITS - USUAL_LOGIT + PER_CLASSES * np.log(way / 10)) / LOGIT_SPREAD)
    p = scipy.special.expit(LOGITS[:, None] + PER_SHOTS * np.log(np.maximum(shots[seen] - 1, 1)))
    log_weights += (right[seen] * np.log(p) + (tested[seen] - right[seen]) * np.log1p(-p)).sum(1)
    weights = scipy.special.softmax(log_weights)
    expected = scipy.special.expit(LOGITS[:, None] + PER_SHOTS * np.log(shots))  # (logits, way)
    mean, by_class = float(weights @ expected.mean(1)), weights @ expected
    between = DIVERSITY * by_class * (1 - by_class) / (1 + tested * DIVERSITY / (1 - DIVERSITY))
    step = np.log(shots / np.maximum(shots - 1, 1))  # from the tested numbers of images to the actual ones
    slope = PER_SHOTS_SPREAD * float((by_class * (1 - by_class) * step).mean())
    variance = float(weights @ np.square(expected.mean(1) - mean) + between.sum() / way**2) + slope**2
    return mean, mean * (1 - mean) / variance - 1


def rates(state: State) -> tuple[Matrix, Matrix, Matrix]:
    """For each class, the numbers predicted correctly, tested, and of images, where near duplicates count as one."""
    held, way, weights = state.held_out, len(state.classes), 1 / state.group_sizes
    right: Matrix = np.bincount(state.codes[held], credit(state) * weights[held], way).astype(np.float64)
    tested: Matrix = np.bincount(state.codes[held], weights[held], way).astype(np.float64)
    images: Matrix = np.bincount(state.codes, weights, way).astype(np.float64)
    return right, tested, images


def class_estimates(state: State) -> tuple[ClassEstimate, ...]:
    """How well each class is recognised."""
    right, tested, _ = rates(state)
    low, high = (scipy.special.betaincinv(right + PRIOR, tested - right + PRIOR, tail) for tail in (TAIL, 1 - TAIL))
    low, high = np.where(right > 0, low, 0.0), np.where(tested > right, high, 1.0)
    columns = (state.counts, tested, right, low, high)
    return tuple(
        ClassEstimate(plain(label), int(images), round(n), k, start, end)
        for label, (images, n, k, start, end) in zip(state.classes, np.stack(columns, 1).tolist(), strict=True)
    )


def needs(classes: tuple[ClassEstimate, ...]) -> tuple[Need, ...]:
    """The classes that more images would help most: untested ones first, then the worst recognised."""

    def reason(each: ClassEstimate) -> str:
        if not each.tested:
            return "only one picture, so it cannot be tested"
        return f"{each.tested - each.right:.3g} of {each.tested} not recognised when held out"

    poor = [each for each in classes if not each.tested or each.right < each.tested]
    poor.sort(key=lambda each: (each.tested > 0, each.right / max(each.tested, 1), each.images))
    return tuple(Need(each.label, each.images, reason(each)) for each in poor[:NEEDY])


# ---------------------------------------------------------------------------------------------------------- confusions


def confusion_matrix(state: State) -> Matrix:
    """Numbers of held-out examples by label (rows) and predicted class (columns)."""
    held, way = state.held_out, len(state.classes)
    counts = np.zeros((way, way))
    np.add.at(counts, (state.codes[held], state.held_out_scores[held].argmax(1)), 1)
    return counts


def confusions(state: State) -> list[Confusion]:
    """Pairs of a label and the class that it is mistaken for, most frequent first."""
    counts = confusion_matrix(state)
    totals = counts.sum(1)
    np.fill_diagonal(counts, 0)
    pairs = sorted(zip(*np.nonzero(counts), strict=True), key=lambda pair: (-counts[pair], pair))
    return [
        Confusion(
            plain(state.classes[row]),
            plain(state.classes[column]),
            int(counts[row, column]),
            float(counts[row, column] / totals[row]),
        )
        for row, column in pairs
    ]


# ------------------------------------------------------------------------------------------------ labels and pictures


def label_doubts(state: State) -> Matrix:
    """The probability that the label of each held-out example is wrong.

    A label is wrong with an unknown probability s, and is then any other class. So the label y of an image x has the
    probability (1 - s) p(y|x) + s (1 - p(y|x)) / (way - 1), where p comes from all other examples. All pairs of s and
    of the scale of p are weighted by how probable they make all labels: in a hard task p is never certain, so an
    example that contradicts its label means little.
    """
    held, way = state.held_out, len(state.classes)
    margins, closest, order = _margins(state)
    other = _single(MISLABELLED / (way - 1))[:, None, None]  # the share of each other class among wrong labels
    right = _single(1 - MISLABELLED)[:, None, None] - other
    found, total, best = torch.zeros(len(held), dtype=torch.float64), 0.0, -np.inf
    middle, together = len(STEPS) // 2, max(1, TOGETHER // max(1, margins.numel()))
    for direction in (STEPS[middle:], STEPS[middle - 1 :: -1]):
        for start in range(0, len(direction), together):
            steps = direction[start : start + together]
            scales = DOUBT_SCALE * state.usual_scale * np.exp(steps)
            near = int(np.searchsorted(-closest, CERTAIN / scales.min()))  # all later ones are certain of their label
            odds = _single(scales)[:, None, None] * margins[:near]
            own = odds.clamp_min_(SMALLEST).exp_().sum(2).reciprocal_()  # (steps, near)
            labels = (right * own).add_(other)  # (shares, steps, near)
            log_weights = labels.log().sum(2, dtype=torch.float64).numpy() - surprise(steps / STEP_SPREAD)
            log_weights += ((len(held) - near) * np.log1p(-MISLABELLED) - MISLABELLED / USUAL_SHARE)[:, None]
            previous, best = best, max(best, float(log_weights.max()))
            weights, shrunk = np.exp(log_weights - best), math.exp(previous - best)
            wrong = (_single(weights).unsqueeze(2) * (other / labels)).sum(0).mul_(1 - own)
            found *= shrunk
            found[:near] += wrong.sum(0)
            total = shrunk * total + float(weights.sum())
            if log_weights[:, -1].max() < best - NEGLIGIBLE:
                break  # and so are all scales beyond it
    doubts: Matrix = np.empty(len(held))
    doubts[order] = (found / total).clamp_max_(1).numpy()  # the sums are rounded to float32
    return doubts


def _margins(state: State) -> tuple[Tensor, Matrix, NDArray[np.intp]]:
    """How far the classes of each held-out example are above its own (n, way), its closest other class, and the
    order of the examples: those with a close rival first.
    """
    held = state.held_out
    scores, own = state.held_out_scores[held], (np.arange(len(held)), state.codes[held])
    margins = scores - scores[own][:, None]
    others = margins.copy()
    others[own] = -np.inf
    closest = others.max(1)
    order = np.argsort(-closest, kind="stable")
    return _single(margins[order]), closest[order], order


def _single(values: Matrix) -> Tensor:
    """Values as a float32 tensor: PyTorch's exp and log are faster there than NumPy's in float64."""
    return torch.from_numpy(values.astype(np.float32))


def doubtful(state: State) -> tuple[Doubtful, ...]:
    """The labels that are more probably wrong than right, the most probable first."""
    held = state.held_out
    if not len(held) or state.alike:
        return ()
    doubts = label_doubts(state)
    found = []
    for position in np.flatnonzero(doubts >= DOUBTFUL):
        row, doubt = int(held[position]), float(doubts[position])
        own, others = state.held_out_scores[row][state.codes[row]], state.held_out_scores[row].copy()
        others[state.codes[row]] = -np.inf
        source, label, other = state.sources[row], state.classes[state.codes[row]], state.classes[others.argmax()]
        each = Doubtful(row, source.digest, source.name, plain(label), plain(other), doubt)
        found.append((doubt, others.max() - own, each))
    found.sort(key=lambda each: each[:2], reverse=True)  # of labels that are certainly wrong, the clearest first
    return tuple(each for _, _, each in found)


def duplicates(state: State) -> tuple[DuplicateGroup, ...]:
    """Groups of near duplicates."""
    found = []
    for number in np.unique(state.groups[state.group_sizes > 1]):
        rows: NDArray[np.intp] = np.flatnonzero(state.groups == number)
        label = plain(state.classes[state.codes[rows[0]]])
        found.append(DuplicateGroup(tuple(rows.tolist()), tuple(state.sources[row].name for row in rows), label))
    return tuple(found)


# --------------------------------------------------------------------------------------------------------- explanations

MOST_CANDIDATES = 3000
"""Of a larger pool, only this many of the most uncertain images are compared, because the covariance of all
pairs has to fit into memory."""


@dataclass(frozen=True)
class Explanation:
    """What `FewShotClassifier.explain` found."""

    suspects: tuple[Doubtful, ...]
    """Labels that are probably wrong, most probable first."""
    confusions: tuple[Confusion, ...]
    """Pairs of confused classes, most frequent first."""
    neighbours: tuple[tuple[Neighbour, ...], ...]
    """For each query, the nearest examples, nearest first."""

    def __str__(self) -> str:
        lines = [
            f"{each.name or f'example {each.index}'} is labelled {each.label}, but looks like {each.looks_like} "
            f"(the label is wrong with a probability of {100 * each.probability:.0f}%)"
            for each in self.suspects
        ]
        lines += [
            f"{each.label} is taken for {each.taken_for} in {each.count} of its images ({100 * each.share:.0f}%)"
            for each in self.confusions
        ]
        return "\n".join(lines) or "No example looks mislabelled, and no classes are confused."


def explain(state: State, queries: Matrix | None, k: int) -> Explanation:
    """At most k suspects and confusions, and the k nearest examples of each query."""
    near = () if queries is None else tuple(nearest(state, query, k) for query in queries)
    return Explanation(doubtful(state)[:k], tuple(confusions(state)[:k]), near)


def nearest(state: State, query: Matrix, k: int) -> tuple[Neighbour, ...]:
    """The k examples that are most similar to a query."""
    examples = state.features - state.features.mean(0)
    centred = query - state.origin - state.features.mean(0)
    lengths = np.linalg.norm(examples, axis=1) * np.linalg.norm(centred)
    similarities = examples @ centred / np.where(lengths > 0, lengths, 1)
    return tuple(
        Neighbour(int(i), state.sources[i].name, plain(state.classes[state.codes[i]]), float(similarities[i]))
        for i in np.argsort(-similarities, kind="stable")[:k]
    )


def suggest(state: State, pool: Matrix, k: int) -> list[int]:
    """The k queries of a pool whose labels would teach most, best first.

    Labelling a query reduces the predictive variance of every other one by their squared covariance divided by its own
    variance, exactly and whatever the label is. Queries are chosen one after another; each is the one that removes the
    most variance from the uncertain queries, so choices are not redundant.
    """
    doubt = 1 - probabilities(state.scores(pool), state.scale).max(1)
    looked_at = np.argsort(-doubt, kind="stable")[:MOST_CANDIDATES]
    covariance = state.factor.covariance(torch.from_numpy(pool[looked_at] - state.origin)).numpy()
    chosen: list[int] = []
    for _ in range(min(k, len(looked_at))):
        noisy = np.diagonal(covariance) + float(state.factor.lam)
        gain = doubt[looked_at] @ np.square(covariance) / noisy
        gain[chosen] = -np.inf
        best = int(gain.argmax())
        chosen.append(best)
        covariance = covariance - np.outer(covariance[:, best], covariance[:, best]) / noisy[best]
    return [int(looked_at[each]) for each in chosen]
