"""Features of pictures, computed in batches or taken from the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from handful.classifier.cache import Store
from handful.classifier.embedder import AnyEmbedder, Embedder, unit_rows
from handful.classifier.examples import Source
from handful.classifier.inputs import Matrix, Picture, UnreadableImagesError, pixels_of, thumbnail
from handful.errors import DataError

BATCH = 32


@dataclass(frozen=True)
class Embedded:
    """Features (n, e) of pictures, and where each came from."""

    features: Matrix
    sources: tuple[Source, ...]


@dataclass
class _Batch:
    """What is collected for some pictures: digests, thumbnails, and the pixels that still have to be embedded."""

    digests: list[str]
    thumbnails: list[bytes]
    rows: list[dict[str, Matrix]]
    """For each part of the embedding, the features by the digest of the image."""
    failed: dict[int, str]
    """Pictures that cannot be read, by position, with the reason."""


def embed(
    pictures: Sequence[Picture], embedder: AnyEmbedder, cache: Path | None, *, thumbnails: bool = True
) -> Embedded:
    """Embed pictures in batches; on a terminal, a progress bar appears after three seconds.

    Without `thumbnails`, no thumbnails are made or stored. All pictures are tried before an error names those that
    cannot be read, and only one file is in memory at a time.
    """
    with ExitStack() as stack:
        store = stack.enter_context(Store(cache)) if cache is not None else None
        return _embed(pictures, embedder, store, thumbnails)


def _embed(pictures: Sequence[Picture], embedder: AnyEmbedder, store: Store | None, thumbnails: bool) -> Embedded:
    features: list[Matrix] = []
    sources: list[Source] = []
    failed: dict[int, str] = {}
    with tqdm(total=len(pictures), desc="Embedding", unit="image", delay=3, disable=None, leave=False) as bar:
        for start in range(0, len(pictures), BATCH):
            some = pictures[start : start + BATCH]
            batch = _embed_batch(some, embedder.parts, store, thumbnails)
            failed |= {start + position: reason for position, reason in batch.failed.items()}
            if not failed:
                features.append(_joined(batch))
                sources += [
                    Source(picture.name, digest, small)
                    for picture, digest, small in zip(some, batch.digests, batch.thumbnails, strict=True)
                ]
            if store is not None:
                store.flush()
            bar.update(len(some))
    if failed:
        raise UnreadableImagesError(failed, len(pictures))
    return Embedded(_stacked(features), tuple(sources))


def _embed_batch(
    pictures: Sequence[Picture], parts: Sequence[Embedder], store: Store | None, thumbnails: bool
) -> _Batch:
    batch = _Batch([], [], [{} for _ in parts], {})
    waiting: list[dict[str, NDArray[np.uint8]]] = [{} for _ in parts]
    for position, picture in enumerate(pictures):
        try:
            content = picture.read()
            digest = hashlib.sha256(content).hexdigest()
            for part, rows, pixels in zip(parts, batch.rows, waiting, strict=True):
                if digest in rows or digest in pixels:
                    continue
                known = store.features(part.digest, digest) if store is not None and part.digest else None
                if known is not None:
                    rows[digest] = known
                else:
                    decoded = pixels_of(picture, content, part.preprocessing.decoding)
                    pixels[digest] = part.preprocessing.oriented(decoded)
            small = _thumbnail(picture, content, digest, store) if thumbnails else b""
        except DataError as error:
            batch.failed[position] = str(error)
            continue
        batch.digests.append(digest)
        batch.thumbnails.append(small)
    for part, rows, pixels in zip(parts, batch.rows, waiting, strict=True):
        _compute(part, rows, pixels, store)
    return batch


def _compute(
    part: Embedder, rows: dict[str, Matrix], pixels: dict[str, NDArray[np.uint8]], store: Store | None
) -> None:
    if not pixels:
        return
    new = dict(zip(pixels, part(np.stack(list(pixels.values()))), strict=True))
    if store is not None and part.digest:
        store.add_features(part.digest, new)
    rows.update(new)


def _thumbnail(picture: Picture, content: bytes, digest: str, store: Store | None) -> bytes:
    known = store.thumbnail(digest) if store is not None else None
    if known is not None:
        return known
    small = thumbnail(picture, content)
    if store is not None:
        store.add_thumbnail(digest, small)
    return small


def _joined(batch: _Batch) -> Matrix:
    columns = [_stacked([rows[digest][None] for digest in batch.digests]) for rows in batch.rows]
    return columns[0] if len(columns) == 1 else unit_rows(np.concatenate(columns, axis=1))


def _stacked(rows: list[Matrix]) -> Matrix:
    if len({row.shape[1] for row in rows}) > 1:
        raise DataError(
            "The feature cache holds features of different lengths for one embedding. Clear it: handful cache --clear."
        )
    return np.concatenate(rows)
