"""A served classifier: answers of one version, updates that are on disk first, and failures that change nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handful.classifier import FewShotClassifier
from handful.classifier.cache import usage
from handful.classifier.inputs import Picture
from handful.errors import HandfulError, InvalidOptionError, NotFiniteError, ShapeError
from handful.serve import models
from handful.serve.models import Model
from handful.serve.worker import Worker
from tests.classifier.drawings import write_folder
from tests.serve.server import png


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A classifier of features: three classes of four examples."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(12, 5)) + 3 * np.repeat(np.eye(3, 5), 4, 0)
    FewShotClassifier().fit(rows, np.repeat(list("abc"), 4)).save(tmp_path / "my birds!.handful")
    return tmp_path / "my birds!.handful"


def run(file: Path, scene: Callable[[Model], Awaitable[Any]]) -> Any:
    async def with_model() -> Any:
        worker = Worker(queue=8, batch=4)
        model = Model(file, worker, learns=True)
        try:
            return await asyncio.wait_for(scene(model), 60)
        finally:
            model.close()
            await worker.stop()

    return asyncio.run(with_model())


def test_a_name_is_safe_in_an_address(file: Path) -> None:
    async def name(model: Model) -> str:
        return model.name

    assert run(file, name) == "my-birds"


def test_answers_are_those_of_the_classifier(file: Path) -> None:
    rows = 3 * np.eye(3, 5)
    answers = run(file, lambda model: model.answer(rows, top=1, nearest_examples=0))
    assert answers == FewShotClassifier.load(file).answer(rows, top=1, nearest_examples=0)


@pytest.mark.parametrize(
    ("queries", "error"),
    [
        (np.zeros((1, 4)), ShapeError),
        (np.full((1, 5), np.nan), NotFiniteError),
        (np.full((1, 5), 1e200), NotFiniteError),  # its square is infinite
        ([Picture("a.png", png())], HandfulError),
    ],
)
def test_queries_that_do_not_fit_are_refused(file: Path, queries: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        run(file, lambda model: model.answer(queries, top=1))


def test_an_update_is_on_disk_and_counts_as_a_version(file: Path) -> None:
    async def scene(model: Model) -> Any:
        before = model.now
        new = await model.forget(label="c")
        assert model.now is new
        assert len(before.labels_) == 12  # who has the old version keeps it
        return new.version_ - before.version_

    assert run(file, scene) == 1
    assert list(FewShotClassifier.load(file).classes_) == ["a", "b"]


def test_an_update_that_fails_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = file.read_bytes()

    async def scene(model: Model) -> None:
        before = model.now
        with pytest.raises(HandfulError):
            await model.forget(label="d")
        monkeypatch.setattr(FewShotClassifier, "save", _full)
        with pytest.raises(OSError, match="full"):
            await model.forget(label="c")
        assert model.now is before

    run(file, scene)
    assert file.read_bytes() == content


def _full(self: Any, *_: Any, **__: Any) -> None:
    raise OSError("the disk is full")


def test_what_another_process_did_to_the_file_is_kept(file: Path) -> None:
    async def scene(model: Model) -> None:
        FewShotClassifier.load(file).forget(label="a").save(file)
        await model.forget(index=0)

    run(file, scene)
    assert FewShotClassifier.load(file).labels_.tolist() == ["b"] * 3 + ["c"] * 4


def test_an_estimate_is_computed_once_for_each_version(file: Path) -> None:
    async def scene(model: Model) -> None:
        first = await model.estimate()
        assert await model.estimate() is first
        await model.forget(index=0)
        second = await model.estimate()
        assert second.version == first.version + 1

    run(file, scene)


def test_a_served_classifier_learns_a_bounded_number_of_examples(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "EXAMPLES", 12)
    with pytest.raises(HandfulError, match=r"\b12 examples"):
        run(file, lambda model: model.add([Picture("a.png", png())], "a"))


def test_a_request_may_learn_as_many_images_as_the_queue_holds(file: Path) -> None:
    async def scene(model: Model) -> None:
        with pytest.raises(InvalidOptionError, match="features"):  # so the queue let them in
            await model.add([Picture(f"{number}.png", png()) for number in range(model.worker.queue)], "a")

    run(file, scene)


def test_estimates_do_not_keep_the_worker_from_other_work(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, estimate = threading.Event(), FewShotClassifier.estimate

    def slow(self: FewShotClassifier) -> Any:
        assert go_on.wait(30)
        return estimate(self)

    monkeypatch.setattr(FewShotClassifier, "estimate", slow)

    async def scene(model: Model) -> None:
        asked = [asyncio.ensure_future(model.estimate()) for _ in range(3)]
        await asyncio.sleep(0)  # they start
        try:
            assert len(await asyncio.wait_for(model.answer(np.eye(3, 5)), 20)) == 3
        finally:
            go_on.set()
        first, *others = await asyncio.gather(*asked)
        assert all(each is first for each in others)

    run(file, scene)


def test_what_a_served_classifier_forgets_is_erased_from_the_feature_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANDFUL_DATA", str(tmp_path / "data"))
    folder = write_folder(tmp_path / "shapes", {"bar": 3, "circle": 2, "hook": 2})
    FewShotClassifier().fit(folder).save(tmp_path / "shapes.handful")
    assert usage(tmp_path / "data").images == 7

    async def scene(model: Model) -> Any:
        await model.forget(digest=model.now.examples_[0].digest)
        await model.forget(label="circle")
        return model.now.cache

    assert run(tmp_path / "shapes.handful", scene) is False
    left = usage(tmp_path / "data")
    assert (left.images, left.features, left.thumbnails) == (4, 4, 4)
