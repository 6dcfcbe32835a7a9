"""Pictures to features: read, look up in the cache, decode and embed what is missing, remember it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from handful.estimator.cholesky import Matrix
from handful.estimator.embedders import Embedder
from handful.estimator.pictures import Picture, pixels_of, thumbnail
from handful.estimator.sources import Source
from handful.estimator.store import Store, Stored, key_of

BATCH = 32


@dataclass(frozen=True)
class Embedded:
    """Features (n, e) of pictures, and where each came from."""

    features: Matrix
    sources: tuple[Source, ...]


def embed(pictures: Sequence[Picture], embedder: Embedder, cache: Path | None) -> Embedded:
    """Embed pictures, in batches; a progress bar appears on a terminal when it takes more than a second."""
    store = Store(cache) if cache is not None and embedder.digest else None
    features: list[Matrix] = []
    sources: list[Source] = []
    with tqdm(total=len(pictures), desc="Embedding", unit="image", delay=1, disable=None, leave=False) as bar:
        for start in range(0, len(pictures), BATCH):
            some = pictures[start : start + BATCH]
            done = _embed_batch(some, embedder, store)
            features.append(done.features)
            sources.extend(done.sources)
            bar.update(len(some))
    return Embedded(np.concatenate(features), tuple(sources))


def _embed_batch(pictures: Sequence[Picture], embedder: Embedder, store: Store | None) -> Embedded:
    contents = [picture.read() for picture in pictures]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    keys = [key_of(embedder.digest, digest) for digest in digests]
    known = store.read(keys) if store is not None else {}
    missing = [i for i, key in enumerate(keys) if key not in known]
    if missing:
        wanted, oriented = embedder.preprocessing.decoding, embedder.preprocessing.oriented
        pixels = np.stack([oriented(pixels_of(pictures[i], contents[i], wanted)) for i in missing])
        new = {
            keys[i]: Stored(row, thumbnail(pictures[i], contents[i]))
            for i, row in zip(missing, embedder(pixels), strict=True)
        }
        if store is not None:
            store.write(new)
        known |= new
    entries = [known[key] for key in keys]
    sources = tuple(
        Source(picture.name, digest, entry.thumbnail)
        for picture, digest, entry in zip(pictures, digests, entries, strict=True)
    )
    return Embedded(np.stack([entry.features for entry in entries]), sources)
