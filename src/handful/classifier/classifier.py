"""`FewShotClassifier`: a scikit-learn classifier that learns from a handful of examples in closed form."""

from __future__ import annotations

import copy
import hashlib
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from handful.classifier.answers import Answer, Choice, Estimate, Example, Learnt, ScoreEstimate, plain
from handful.classifier.cache import cache_folder, purge
from handful.classifier.duplicates import new_rows
from handful.classifier.embedder import AnyEmbedder, candidates, choose_embedder
from handful.classifier.estimate import Explanation, estimate, explain, nearest, score_estimate, suggest
from handful.classifier.estimator import Estimator, require_fitted
from handful.classifier.examples import (
    Lam,
    Options,
    Source,
    State,
    fit_state,
    rows_checked,
    rows_of_digest,
    rows_of_image,
    rows_of_label,
)
from handful.classifier.features import Embedded, embed
from handful.classifier.file import read_file, write_file
from handful.classifier.inputs import (
    Matrix,
    Picture,
    are_pictures,
    as_list,
    image_items,
    is_nothing,
    labelled_pictures,
    pictures,
)
from handful.classifier.labels import uniform_labels
from handful.classifier.onnx import export
from handful.classifier.prior import prior_from
from handful.classifier.selection import probabilities, rejection_threshold
from handful.errors import InvalidOptionError, NotEnoughImagesError

_GUARD = threading.Lock()
_LOCKS: WeakKeyDictionary[FewShotClassifier, threading.RLock] = WeakKeyDictionary()


def _changing(clf: FewShotClassifier) -> threading.RLock:
    """The lock for changing a classifier, stored outside of it so that the classifier can be copied and pickled."""
    with _GUARD:
        return _LOCKS.setdefault(clf, threading.RLock())


class FewShotClassifier(Estimator):
    """Ridge regression (or another learner) on images or features, with exact updates and exact leave-one-out.

    `embedding` turns images into features: "auto" (chosen by looking at the images), "characters" (drawings; comes with
    handful), "photographs" or "photographs-large" (`pip install 'handful[images]'`), the path of a run of `handful
    train`, a network by name ("timm:NAME", "hf:NAME", "open_clip:NAME/WEIGHTS", "onnx:FILE"), several of these joined
    with "+", a network, or an `ImageEmbedding`. "auto:A,B" fits with each and keeps the one that leave-one-out finds
    most likely. Networks run on `device`. `cache` says where features are cached: True (the user's cache folder), a
    folder, or False. Without `thumbnails`, no thumbnails of the examples are stored in the file or the cache.

    `learner` is "ridge", "logistic", "softmax" or "prototypes". `lam="auto"` chooses lambda by leave-one-out. `balance`
    treats all classes as equally likely, however many examples each one has; without it the ridge learner follows their
    shares. Up to `tune_limit` examples, `partial_fit` and `forget` choose lambda and the scale again, so that they
    equal a fit from scratch in every respect. Beyond that they keep both until the number of examples has changed by a
    quarter, and equal a fit from scratch with the same lambda.

    `prior` maps labels to vectors in feature space, for example text embeddings of the class names by a model that
    also embeds images. Ridge regression is then shrunk towards them, as strongly as leave-one-out recommends.

    Threads may share a classifier: what it has learnt is one immutable value, which a change replaces with a single
    assignment. So every answer comes from one version, and a change that fails has no effect.
    """

    _embedder: AnyEmbedder | None
    _state: State
    learnt_: Learnt
    """What the last `fit` or `partial_fit` learnt, and which images were already known."""

    def __init__(
        self,
        embedding: Any = "auto",
        learner: str = "ridge",
        lam: Lam = "auto",
        *,
        balance: bool = True,
        tune_limit: int = 300,
        prior: Mapping[Any, Any] | None = None,
        cache: bool | str | Path = True,
        device: str = "cpu",
        thumbnails: bool = True,
    ) -> None:
        self.embedding = embedding
        self.learner = learner
        self.lam = lam
        self.balance = balance
        self.tune_limit = tune_limit
        self.prior = prior
        self.cache = cache
        self.device = device
        self.thumbnails = thumbnails

    def fit(self, X: Any, y: Any = None) -> FewShotClassifier:
        """Learn from examples, and forget what was learnt before.

        X is a folder of class folders, or one with such folders in train/ and test/, where only train/ is used; a CSV
        file of paths and labels; or, with labels y, a list of paths, Pillow images or arrays, an array or
        tensor of images with pixels in uint8 or [0, 1], or features (n, e).
        """
        new = copy.copy(self)
        new._embedder = None
        examples = new._examples(X, y, first=True)
        options = self._options(*examples[:2])
        once, new.learnt_ = _once(*examples, None)
        with _changing(self):
            before = self._state.version if self.__sklearn_is_fitted__() else 0
            new._state = fit_state(options, *once, version=before + 1)
            self.__dict__.update(new.__dict__)
            if "feature_names_in_" not in new.__dict__:  # those of an earlier fit
                self.__dict__.pop("feature_names_in_", None)
        self._warn_if_alike()
        return self

    def partial_fit(self, X: Any, y: Any = None, classes: Any = None) -> FewShotClassifier:
        """Learn from more examples of known or new classes; images that are already known change nothing.

        `classes` is accepted for compatibility with scikit-learn and ignored: a class is added with its first example.
        """
        if not self.__sklearn_is_fitted__():
            return self.fit(X, y)
        examples = self.snapshot()._examples(X, y, first=False)
        with _changing(self):
            once, learnt = _once(*examples, self._state)
            if learnt.added:
                self._state = self._state.add(*once)
            self.learnt_ = learnt
        self._warn_if_alike()
        return self

    def forget(
        self,
        *,
        index: int | Sequence[int] | None = None,
        label: Any = None,
        image: Any = None,
        digest: str | None = None,
    ) -> FewShotClassifier:
        """Remove examples exactly, as if they had never been learnt: by position, class, image or digest.

        Positions count from 0 in the order of learning. An image is found by its content, under any name, or
        otherwise by the name under which it was learnt. Digests are those of `examples_`. The cache forgets the images
        too.
        """
        require_fitted(self)
        with _changing(self):
            rows = _rows(self._state, "forget", index, label, image, digest)
            state = self._state.remove(rows)
            if self._embedder is not None:
                purge(cache_folder(self.cache), [self._state.sources[row].digest for row in rows])
            self._state = state
        return self

    def relabel(
        self,
        label: Any,
        *,
        index: int | Sequence[int] | None = None,
        image: Any = None,
        digest: str | None = None,
    ) -> FewShotClassifier:
        """Correct the label of examples, as if they had been learnt with it; examples are chosen as in `forget`."""
        require_fitted(self)
        with _changing(self):
            self._state = self._state.relabel(_rows(self._state, "relabel", index, None, image, digest), label)
        return self

    def retune(self) -> FewShotClassifier:
        """Choose lambda and the scale again, as a fit from scratch to the same examples would."""
        require_fitted(self)
        with _changing(self):
            self._state = self._state.retuned()
        return self

    def snapshot(self) -> FewShotClassifier:
        """A copy of this classifier, which later changes to either do not affect. It is as cheap as a reference.

        Use it to get several answers from the same version.
        """
        require_fitted(self)
        return copy.copy(self)

    def answer(
        self, X: Any, *, top: int = 3, nearest_examples: int = 3, false_rejection: float | None = None
    ) -> list[Answer]:
        """Detailed answers for all queries, from one version of the classifier.

        With `false_rejection`, queries that look like none of the classes are rejected, as in `predict`.
        """
        now = self.snapshot()
        found = pictures(X) if are_pictures(X) else None
        features = now._features(X)
        state = now._state
        unknown = state.unknown_scores(features)
        threshold = np.inf if false_rejection is None else now.unknown_threshold(false_rejection)
        answers = []
        for row, each in enumerate(probabilities(state.scores(features), state.scale)):
            order = np.argsort(-each, kind="stable")[: max(top, 1)]
            choices = tuple(Choice(plain(state.classes[c]), float(each[c])) for c in order)
            rejected = bool(unknown[row] > threshold)
            answers.append(
                Answer(
                    found[row].name if found is not None else "",
                    None if rejected else choices[0].label,
                    choices[0].probability,
                    choices[:top],
                    float(unknown[row]),
                    rejected,
                    nearest(state, features[row], nearest_examples),
                    state.version,
                )
            )
        return answers

    def transform(self, X: Any) -> Matrix:
        """The features (n, e) of images, with rows of length 1; features are returned unchanged."""
        return self._features(X)

    def decision_function(self, X: Any) -> Matrix:
        """Scores (q, way); for two classes, the score of the second minus that of the first, (q,)."""
        now = self.snapshot()
        scores = now._state.scores(now._features(X))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Matrix:
        """Probabilities (q, way), in the order of `classes_`, with the scale that leave-one-out finds most likely."""
        now = self.snapshot()
        return probabilities(now._state.scores(now._features(X)), now._state.scale)

    def predict(
        self, X: Any, *, unknown: Literal["reject"] | None = None, false_rejection: float = 0.05
    ) -> NDArray[Any]:
        """The most probable class of each query.

        With `unknown="reject"`, queries that look like none of the classes get None. The threshold comes from held-out
        examples, so that about `false_rejection` of the queries of known classes are rejected.
        """
        now = self.snapshot()
        features = now._features(X)
        labels: NDArray[Any] = now.classes_[now._state.scores(features).argmax(1)]
        if unknown is None:
            return labels
        if unknown != "reject":
            raise InvalidOptionError(f"unknown must be None or 'reject', but got {unknown!r}.")
        rejected = now._state.unknown_scores(features) > now.unknown_threshold(false_rejection)
        answers = labels.astype(object)
        answers[rejected] = None
        return answers

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy on labelled examples, for example a folder of class folders or one with such folders in test/."""
        if are_pictures(X):
            require_fitted(self)
            found = labelled_pictures(X, y, "test")
            X, y = self._embedded(found.pictures).features, found.labels
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    @property
    def score_estimate_(self) -> ScoreEstimate:
        """Accuracy by leave-one-out, with its 95% interval."""
        require_fitted(self)
        return score_estimate(self._state)

    def estimate(self) -> Estimate:
        """Accuracy, rates of classes, confusions, doubtful labels, near duplicates, and classes that need images."""
        require_fitted(self)
        return estimate(self._state)

    def unknown_score(self, X: Any) -> Matrix:
        """How much each query looks like none of the classes; compare with `unknown_threshold`."""
        now = self.snapshot()
        return now._state.unknown_scores(now._features(X))

    def unknown_threshold(self, false_rejection: float = 0.05) -> float:
        """The unknown score that this share of new images of known classes exceeds, according to held-out examples."""
        require_fitted(self)
        if not 0 <= false_rejection < 1:
            raise InvalidOptionError(f"false_rejection must be in [0, 1), but got {false_rejection}.")
        scores = self._state.held_out_unknown_scores
        if not len(scores):
            raise NotEnoughImagesError(
                "A threshold for unknown queries is set by holding out examples, but every class has only one. "
                "Give at least one class a second example, or compare unknown_score with a threshold of your own."
            )
        return rejection_threshold(scores, false_rejection)

    def explain(self, X: Any = None, k: int = 5) -> Explanation:
        """The k examples that most look mislabelled, the k most confused pairs of classes and, for queries X, the k
        nearest examples of each.
        """
        now = self.snapshot()
        _require_count(k)
        return explain(now._state, None if X is None else now._features(X), k)

    def suggest(self, X: Any, k: int = 10) -> list[Any]:
        """The k unlabelled images that are most worth labelling, best first.

        For a folder it returns paths, and for a list its items. For features and images in one array it returns
        positions.
        """
        now = self.snapshot()
        _require_count(k)
        items = image_items(X)
        if items is None:
            return suggest(now._state, now._features(X), k)
        return [items[i] for i in suggest(now._state, now._features(items), k)]

    def save(self, path: str | Path, *, thumbnails: bool = True) -> None:
        """Write everything to one file, usually called NAME.handful, with or without thumbnails of the examples.

        It holds no code and loads anywhere, offline. It includes embeddings that handful trained, and only
        identifies others.
        """
        now = self.snapshot()
        write_file(Path(path), now._state, now._embedder, thumbnails)

    def export_onnx(self, path: str | Path) -> None:
        """Write embedding and head as one ONNX graph, from images (n, channels, height, width) of the embedding's size
        with pixels in [0, 1] (or from features) to probabilities; needs `pip install 'handful[onnx]'`.
        """
        now = self.snapshot()
        export(Path(path), now._state, now._embedder)

    @classmethod
    def load(
        cls, path: str | Path, *, embedding: Any = None, cache: bool | str | Path = True, device: str = "cpu"
    ) -> FewShotClassifier:
        """Load a classifier from a file; `embedding` is only needed if it was made with your own network."""
        state, embedder = read_file(Path(path), embedding, device)
        options, prior = state.options, state.options.prior
        name = "auto" if embedder is None else embedder.name
        loaded = cls(
            name if embedding is None else embedding,
            options.learner,
            options.lam,
            balance=options.balance,
            tune_limit=options.tune_limit,
            prior=None if prior is None else dict(zip(prior.labels.tolist(), prior.vectors, strict=True)),
            cache=cache,
            device=device,
            thumbnails=embedder is None or any(source.thumbnail for source in state.sources),
        )
        loaded._state, loaded._embedder = state, embedder
        loaded.n_features_in_ = state.features.shape[1]
        return loaded

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of all scores and probabilities."""
        require_fitted(self)
        return self._state.classes

    @property
    def state_(self) -> State:
        """Everything that was learnt, as one immutable value."""
        require_fitted(self)
        return self._state

    @property
    def labels_(self) -> NDArray[Any]:
        """The label of each example, in the order of learning."""
        require_fitted(self)
        return self._state.labels

    @property
    def examples_(self) -> tuple[Example, ...]:
        """Position, digest, name and label of each example, in the order of learning."""
        require_fitted(self)
        state = self._state
        named = zip(state.sources, state.labels, strict=True)
        return tuple(Example(i, source.digest, source.name, plain(label)) for i, (source, label) in enumerate(named))

    @property
    def version_(self) -> int:
        """The number of changes so far; every answer includes the version that gave it."""
        require_fitted(self)
        return self._state.version

    @property
    def embedding_(self) -> str:
        """The name of the embedding, or 'features' for a classifier that was fitted to features."""
        require_fitted(self)
        return "features" if self._embedder is None else str(self._embedder)

    @property
    def embedder_(self) -> AnyEmbedder | None:
        """What turns images into features; None for a classifier that was fitted to features."""
        require_fitted(self)
        return self._embedder

    @property
    def has_thumbnails_(self) -> bool:
        """Whether there are thumbnails of the examples."""
        require_fitted(self)
        return any(source.thumbnail for source in self._state.sources)

    @property
    def lam_(self) -> float:
        """The lambda in use."""
        require_fitted(self)
        return self._state.head_lam

    @property
    def prior_weight_(self) -> float:
        """The factor for the vectors of `prior`, minus their mean; 0 if leave-one-out finds that they do not help."""
        require_fitted(self)
        return self._state.prior_weight

    @property
    def scale_(self) -> float:
        """The factor for scores before the softmax."""
        require_fitted(self)
        return self._state.scale

    def __sklearn_is_fitted__(self) -> bool:
        return "_state" in self.__dict__

    def _options(self, features: Matrix, labels: NDArray[Any]) -> Options:
        prior = prior_from(self.prior, self.learner, labels, features.shape[1])
        return Options(self.learner, self.lam, self.balance, self.tune_limit, prior)

    def _features(self, X: Any) -> Matrix:
        require_fitted(self)
        if is_nothing(X) and self._embedder is not None:
            return np.zeros((0, self._state.features.shape[1]))
        if are_pictures(X):
            embedded = X = self._embedded(pictures(X)).features
            if embedded.shape[1] == self._state.features.shape[1]:
                return embedded
        from sklearn.utils.validation import validate_data

        features: Matrix = validate_data(self, X, reset=False, dtype=np.float64)
        return features

    def _examples(self, X: Any, y: Any, first: bool) -> tuple[Matrix, NDArray[Any], tuple[Source, ...]]:
        sources: tuple[Source, ...] | None = None
        if are_pictures(X):
            found = labelled_pictures(X, y)
            y = found.labels
            if first:
                embedded = self._best_embedded(found.pictures, y)
            else:
                embedded = self._embedded(found.pictures, thumbnails=self.thumbnails)
            X, sources = embedded.features, embedded.sources
            if first and isinstance(y, np.ndarray) and y.dtype.kind == "U" and y.shape == X.shape[:1]:
                self.n_features_in_ = X.shape[1]
                return X, y, sources
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data

        features, labels = validate_data(self, X, uniform_labels(y), reset=first, dtype=np.float64)
        check_classification_targets(labels)
        return (
            features,
            labels,
            sources or tuple(Source("", hashlib.sha256(row.tobytes()).hexdigest()) for row in features),
        )

    def _warn_if_alike(self) -> None:
        if self._state.alike:
            warnings.warn(
                "The features of all examples are the same, so nothing distinguishes the classes and predictions are "
                "no better than chance. Look at the images (are they blank?) and at the embedding.",
                stacklevel=3,
            )

    def _best_embedded(self, found: Sequence[Picture], labels: Any) -> Embedded:
        """Fit with the requested embedding or, of several, the one that leave-one-out finds most likely."""
        embedders = [choose_embedder(each, found, self.device) for each in candidates(self.embedding)]
        done = [embed(found, each, cache_folder(self.cache), thumbnails=self.thumbnails) for each in embedders]

        def loss(number: int) -> float:
            features, y = done[number].features, np.asarray(uniform_labels(as_list(labels)))
            # rounded, so that the first one wins where nothing can be held out
            return round(fit_state(self._options(features, y), features, y, done[number].sources).loss, 6)

        best = min(range(len(done)), key=loss) if len(done) > 1 else 0
        self._embedder = embedders[best]
        return done[best]

    def _embedded(self, found: Sequence[Picture], thumbnails: bool = False) -> Embedded:
        if self._embedder is None:
            raise InvalidOptionError(
                "This classifier was fitted to features, so it has no embedding for images. Give features here too."
            )
        return embed(found, self._embedder, cache_folder(self.cache), thumbnails=thumbnails)


def _once(
    features: Matrix, labels: NDArray[Any], sources: tuple[Source, ...], state: State | None
) -> tuple[tuple[Matrix, NDArray[Any], tuple[Source, ...]], Learnt]:
    """The examples without pictures that occur twice or are already known."""
    known, known_sources = (labels[:0], ()) if state is None else (state.labels, state.sources)
    rows = new_rows(labels, sources, known, known_sources)
    kept = set(rows)
    repeated = tuple(source.name for row, source in enumerate(sources) if row not in kept)
    return (features[rows], labels[rows], tuple(sources[row] for row in rows)), Learnt(len(rows), repeated)


def _rows(state: State, verb: str, index: Any, label: Any, image: Any, digest: str | None) -> list[int]:
    if sum(each is not None for each in (index, label, image, digest)) != 1:
        ways = "index=..., image=..., digest=..." + (", label=..." if verb == "forget" else "")
        raise InvalidOptionError(f"{verb} takes one of {ways}.")
    if index is not None:
        return rows_checked(index, len(state.codes))
    if digest is not None:
        return rows_of_digest(state, digest)
    return rows_of_label(state, label) if image is None else rows_of_image(state, image)


def _require_count(k: int) -> None:
    if k < 1:
        raise InvalidOptionError(f"k must be at least 1, but got {k}.")
