"""The classifiers of a service: requests use the current version, and updates run one at a time and go to disk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request

from handful._io import locked
from handful.classifier import FewShotClassifier
from handful.classifier.answers import Answer, Estimate
from handful.classifier.embedder import Embedder, unit_rows
from handful.classifier.inputs import Matrix, Picture
from handful.classifier.labels import label_from
from handful.errors import InvalidOptionError, NotFiniteError, ShapeError
from handful.serve.decode import pixels_for
from handful.serve.guard import Limits
from handful.serve.worker import Worker

EXAMPLES = 20_000
"""The most examples that a served classifier may learn, because the ridge factor has one row per example."""
LARGEST = 1e100
"""Features must be smaller than this; the squares of much larger ones overflow."""
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")


class Model:
    """One classifier and its file.

    An update is written to disk first and then replaces `now` with one assignment, so a reader sees the state before
    or after it, never a mix. An update that fails changes nothing.
    """

    def __init__(self, path: Path, worker: Worker, learns: bool = False) -> None:
        self.name = _STRANGE.sub("-", path.stem).strip("-.") or "model"
        self.path, self.worker, self.learns = path.resolve(), worker, learns
        self._stamp = _stamp(self.path)
        self.now = FewShotClassifier.load(self.path, cache=False)
        self._updates = ThreadPoolExecutor(1, thread_name_prefix=f"handful-update-{self.name}")
        self._estimates = ThreadPoolExecutor(1, thread_name_prefix=f"handful-estimate-{self.name}")
        self._estimate: Estimate | None = None

    async def answer(self, queries: Sequence[Picture] | Matrix, **options: Any) -> list[Answer]:
        """Answers for pictures or features from one version; see FewShotClassifier.answer for the options."""
        with self.worker.admit(len(queries)):
            clf = self.now.snapshot()
            if isinstance(queries, np.ndarray):
                _require_features(queries, int(clf.n_features_in_))
                return await self.worker.run(lambda: clf.answer(queries, **options))
            features = await self._embedded(clf, queries)
            answers = await self.worker.run(lambda: clf.answer(features, **options))
        return [replace(each, image=picture.name) for each, picture in zip(answers, queries, strict=True)]

    async def _embedded(self, clf: FewShotClassifier, queries: Sequence[Picture]) -> Matrix:
        embedder = clf.embedder_
        if embedder is None:
            raise InvalidOptionError("This classifier was fitted to features, so send features, not images.")
        found = []
        for part in embedder.parts:
            pixels = await self.worker.run(_pixels, queries, part)
            found.append(await self.worker.embed(part, pixels))
        return found[0] if len(found) == 1 else unit_rows(np.concatenate(found, axis=1))

    async def estimate(self) -> Estimate:
        """The leave-one-out estimate of the current version, computed once per version.

        It can take minutes, so it runs in a thread of its own and never keeps the worker from decoding and scoring.
        """
        return await asyncio.get_running_loop().run_in_executor(self._estimates, self._estimated)

    def _estimated(self) -> Estimate:
        clf = self.now.snapshot()
        if self._estimate is None or self._estimate.version != clf.version_:
            self._estimate = clf.estimate()
        return self._estimate

    async def add(self, pictures: Sequence[Picture], label: Any) -> FewShotClassifier:
        """Learn examples of one class; returns the updated classifier."""

        def change(clf: FewShotClassifier) -> None:
            if len(clf.labels_) + len(pictures) > EXAMPLES:
                raise InvalidOptionError(f"A served classifier learns at most {EXAMPLES} examples.")
            clf.partial_fit(list(pictures), [label_from(label, clf.classes_)] * len(pictures))

        return await self._update(change, len(pictures))

    async def relabel(self, digest: str, label: Any) -> FewShotClassifier:
        """Correct the label of an example; returns the updated classifier."""
        return await self._update(lambda clf: clf.relabel(label_from(label, clf.classes_), digest=digest))

    async def forget(self, **which: Any) -> FewShotClassifier:
        """Forget an example by its digest, or a class by its label; returns the updated classifier.

        The service does not use the feature cache, but `handful fit` may have stored the example there.
        """
        return await self._update(lambda clf: clf.set_params(cache=True).forget(**which).set_params(cache=False))

    async def _update(self, change: Callable[[FewShotClassifier], object], images: int = 1) -> FewShotClassifier:
        with self.worker.admit(images):
            return await asyncio.get_running_loop().run_in_executor(self._updates, self._updated, change)

    def _updated(self, change: Callable[[FewShotClassifier], object]) -> FewShotClassifier:
        """Change a copy, write it to disk, then replace the old version with it."""
        with locked(self.path):
            if _stamp(self.path) != self._stamp:  # changed by another process, whose update must not be lost
                self.now, self._stamp = FewShotClassifier.load(self.path, cache=False), _stamp(self.path)
            new = self.now.snapshot()
            change(new)
            new.save(self.path, thumbnails=new.has_thumbnails_)
            self.now, self._stamp = new, _stamp(self.path)
        return new

    def close(self) -> None:
        """Finish the updates that were accepted, and the estimates."""
        self._updates.shutdown()
        self._estimates.shutdown()


@dataclass(frozen=True)
class Service:
    """The models, the worker that they share, and the limits of requests."""

    models: Mapping[str, Model]
    worker: Worker
    limits: Limits

    def model(self, request: Request) -> Model:
        """The model with this name; raises a 404 if there is none."""
        name = request.path_params["model"]
        if name not in self.models:
            raise HTTPException(404, f"There is no model {name[:50]!r}. GET /models lists them.")
        return self.models[name]

    def learning_model(self, request: Request) -> Model:
        """The model with this name, if it may be changed; raises a 403 otherwise."""
        model = self.model(request)
        if not model.learns:
            raise HTTPException(403, "This service does not learn. Start it with --learn to allow updates.")
        return model

    async def stop(self) -> None:
        """Finish what was accepted."""
        await self.worker.stop()
        for model in self.models.values():
            model.close()


def load_models(paths: Sequence[Path], worker: Worker, learns: bool = False) -> dict[str, Model]:
    """The classifiers of these files, by name."""
    models: dict[str, Model] = {}
    for path in paths:
        model = Model(path, worker, learns)
        if model.name in models:
            raise InvalidOptionError(
                f"{models[model.name].path} and {model.path} would both be served as '{model.name}'. Rename one."
            )
        models[model.name] = model
    return models


def _pixels(queries: Sequence[Picture], embedder: Embedder) -> NDArray[np.uint8]:
    return np.stack([pixels_for(each, embedder.preprocessing) for each in queries])


def _require_features(features: Matrix, size: int) -> None:
    if features.shape[1] != size:
        raise ShapeError(f"This classifier takes {size} features per query, but got {features.shape[1]}.")
    if not (np.abs(features) < LARGEST).all():  # also for NaN
        raise NotFiniteError(f"Features must be finite numbers smaller than {LARGEST:g}.")


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns
