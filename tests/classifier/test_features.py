"""Features of pictures: in order, each image embedded once, the cache asked first, and unreadable ones named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from handful.classifier import features
from handful.classifier.embedder import Embedder
from handful.classifier.features import embed
from handful.classifier.inputs import Picture, UnreadableImagesError
from handful.embeddings.preprocessing import Preprocessing
from tests.classifier.drawings import drawing, encoded


class Counting:
    """Mean and spread of the pixels as features, and a count of the images that were seen."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return torch.stack([images.mean((1, 2, 3)), images.std((1, 2, 3))], 1)


def embedder(network: Counting, digest: str = "d0") -> Embedder:
    return Embedder("named", Preprocessing(16, 16, 1, "squash"), network, digest)


PICTURES = [Picture(f"{i}.png", encoded(drawing("bar", i))) for i in range(5)]


def test_features_come_in_the_order_of_the_pictures_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = embed(PICTURES, embedder(Counting()), None)
    assert [source.name for source in whole.sources] == [picture.name for picture in PICTURES]
    assert len({source.digest for source in whole.sources}) == 5
    monkeypatch.setattr(features, "BATCH", 2)
    parts = embed(PICTURES[::-1], embedder(Counting()), None)
    np.testing.assert_allclose(parts.features[::-1], whole.features, rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(whole.features, axis=1), 1)


def test_an_image_that_comes_twice_is_embedded_once() -> None:
    network = Counting()
    found = embed([PICTURES[0], PICTURES[1], PICTURES[0]], embedder(network), None)
    assert network.seen == 2
    np.testing.assert_array_equal(found.features[0], found.features[2])


def test_what_the_cache_knows_is_not_embedded_again(tmp_path: Path) -> None:
    first, second, other = Counting(), Counting(), Counting()
    found = embed(PICTURES[:3], embedder(first), tmp_path)
    again = embed(PICTURES, embedder(second), tmp_path)
    embed(PICTURES[:3], embedder(other, "e0"), tmp_path)  # another embedding has features of its own
    assert (first.seen, second.seen, other.seen) == (3, 2, 3)
    np.testing.assert_allclose(again.features[:3], found.features, rtol=1e-6)  # the cache keeps single precision
    assert again.sources[:3] == found.sources


def test_an_embedding_that_cannot_be_identified_is_not_cached(tmp_path: Path) -> None:
    network = Counting()
    for _ in range(2):
        embed(PICTURES[:2], embedder(network, ""), tmp_path)
    assert network.seen == 4


def test_thumbnails_are_made_only_where_they_are_wanted() -> None:
    assert all(source.thumbnail for source in embed(PICTURES[:1], embedder(Counting()), None).sources)
    bare = embed(PICTURES[:1], embedder(Counting()), None, thumbnails=False)
    assert [source.thumbnail for source in bare.sources] == [b""]


def test_all_pictures_are_tried_before_those_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "BATCH", 2)
    bad = Picture("bad.png", b"no image")
    with pytest.raises(UnreadableImagesError) as caught:
        embed([PICTURES[0], bad, PICTURES[1], PICTURES[2], bad], embedder(Counting()), None)
    assert list(caught.value.reasons) == [1, 4]
    assert all("bad.png" in reason for reason in caught.value.reasons.values())
