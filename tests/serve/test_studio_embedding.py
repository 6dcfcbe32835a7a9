"""The embeddings of a project: which there are, which is in use, and what each has embedded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from handful.errors import InvalidOptionError
from handful.serve import studio_embedding
from handful.serve.studio_embedding import Embeddings
from handful.serve.studio_session import Session
from handful.serve.studio_shelf import Shelf
from tests.serve.sessions import settled, taught, until


def test_another_embedding_is_compared_and_then_used(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studio_embedding.Embeddings, "names", lambda self: ["characters", "other"])
    real = studio_embedding.choose_embedder

    def chosen(name: str, pictures: Any) -> Any:
        found = real("characters", pictures)
        return found if name == "characters" else _Turned(found)

    monkeypatch.setattr(studio_embedding, "choose_embedder", chosen)
    monkeypatch.setattr(studio_embedding, "embed", _embed_turned(studio_embedding.embed))
    before = taught(session)
    session.compare("other")
    until(lambda: session.state()["embedding"]["options"][1]["estimate"] is not None)
    assert session.state()["embedding"]["active"] == "characters"
    session.choose_embedding("other")
    until(lambda: session.state()["embedding"]["active"] == "other")
    session.undo()
    state = settled(session)
    assert state["embedding"]["active"] == "characters"
    assert state["estimate"]["accuracy"] == before["estimate"]["accuracy"]


class _Turned:
    """An embedding that differs from another only in its digest."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.digest = "turned"


def _embed_turned(real: Any) -> Any:
    def embed(pictures: Any, embedder: Any, cache: Any, **options: Any) -> Any:
        return real(pictures, embedder.inner if isinstance(embedder, _Turned) else embedder, cache, **options)

    return embed


def test_only_known_embeddings_can_be_chosen(shelf: Shelf) -> None:
    embeddings = Embeddings(shelf.open(shelf.create("Signs")))
    assert "characters" in embeddings.names()
    assert "file" not in embeddings.names()  # the project was not made from one
    assert (embeddings.chosen, embeddings.active) == ("auto", "")
    embeddings.require("characters")
    with pytest.raises(InvalidOptionError, match=r"characters.*'oil paint'"):
        embeddings.require("oil paint")


def test_images_that_only_exist_as_features_keep_their_embedding(shelf: Shelf) -> None:
    project = shelf.open(shelf.create("Signs"))
    project.change("Add", {"item/" + "a" * 64: {"n": 1, "label": None, "name": "a.png"}})
    with pytest.raises(InvalidOptionError, match=r"1 image.*\.handful"):
        Embeddings(project).require("characters")


def test_an_embedding_is_used_once_it_has_embedded_every_image(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    project = shelf.open(shelf.create("Signs"))
    first, second = "a" * 64, "b" * 64
    for number, item in enumerate((first, second)):
        project.change("Add", {f"item/{item}": {"n": number, "label": None, "name": "x.png"}})
    embeddings = Embeddings(project)
    monkeypatch.setattr(embeddings, "embedder", lambda name: _Turned(None))
    embeddings.active, embeddings.features = "characters", {first: np.zeros(2), second: np.zeros(2)}
    project.settle({"embedding": "other"})
    project.keep_features("turned", {first: np.ones(2)})
    assert embeddings.missing("other") == [second]
    assert not embeddings.activate()
    assert embeddings.active == "characters"
    project.keep_features("turned", {second: np.ones(2)})
    assert embeddings.activate()
    assert embeddings.active == "other"
    assert embeddings.features[first].tolist() == [1.0, 1.0]
