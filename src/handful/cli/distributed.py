"""`handful fit` and `handful predict` with --scheduler, which run on the workers of a Dask cluster."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from handful._io import read_json, write_atomically
from handful.errors import InvalidOptionError

KEY = "_inputs.json"
"""The file in a folder of results with a hash of their classifier and images; Parquet readers skip names like this."""


def require_together(command: Any, single: Sequence[str], only: str) -> None:
    """Raise if options were given that --scheduler would ignore, or one that works only with it."""
    if not command.scheduler:
        if getattr(command, only) is not None:
            raise InvalidOptionError(f"--{only} works only with --scheduler.")
        return
    defaults = {each.name: each.default for each in fields(command)}
    given = [f"--{name.replace('_', '-')}" for name in single if getattr(command, name) != defaults[name]]
    if given:
        raise InvalidOptionError(f"{', '.join(given)} cannot be used with --scheduler.")


def fit_by_dask(
    folder: Path,
    out: Path,
    shards: Path | None,
    scheduler: str,
    embedding: str,
    lam: float | Literal["auto"],
    balance: bool,
) -> int:
    """Embed the images into shards that do not exist yet, fit to all shards, and print the accuracy."""
    from handful.classifier.distributed import cluster, embed_shards, fit
    from handful.classifier.inputs import labelled_pictures

    found = labelled_pictures(folder, None)
    for remark in found.remarks:
        print(remark)
    store = shards or out.with_name(f"{out.name}.shards")
    with cluster(scheduler) as client:
        features = embed_shards(found.pictures, [str(each) for each in found.labels], embedding, store, client)
        model = fit(features, client, lam, balance=balance, embedding=str(features.index["embedding"]))
    model.save(out)
    print(f"{out}: {len(model.classes)} classes, {len(found.pictures):,} images, embedding {model.embedding}")
    print(f"Accuracy: {model.estimate}")
    print(
        f"Features are kept in {store}. Next: handful predict {out} IMAGES... --scheduler {scheduler} --parquet FOLDER"
    )
    return 0


def predict_by_dask(classifier: Path, images: Iterable[str], out: Path | None, scheduler: str) -> int:
    """Label images on the workers, with one Parquet file per thousand images; a repeated call adds what is missing."""
    from handful.classifier.distributed import ImagePaths, cluster, load_linear, predict_shards

    if out is None:
        raise InvalidOptionError(
            "With --scheduler, results are written as Parquet files. Say where with --parquet FOLDER."
        )
    model, names = load_linear(classifier), tuple(images)
    if not model.embedding or not names:
        raise InvalidOptionError(
            "There are no images to label."
            if model.embedding
            else f"{classifier} was fitted to features, so it cannot label images."
        )
    key = hashlib.sha256(b"\0".join([classifier.read_bytes(), *(os.fsencode(name) for name in names)])).hexdigest()
    if any(out.glob("part-*.parquet")) and recorded_key(out) != key:
        raise InvalidOptionError(
            f"{out} holds the results of another classifier or of other images. Choose another folder for --parquet."
        )
    write_atomically(out / KEY, json.dumps({"sha256": key}).encode())
    with cluster(scheduler) as client:
        paths = predict_shards(model, ImagePaths(names), out, client)
    print(f"{len(names):,} images labelled in {len(paths)} Parquet files in {out}")
    return 0


def recorded_key(out: Path) -> str:
    """The hash in a folder of results; empty without one."""
    try:
        return str(read_json(out / KEY)["sha256"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""
