"""`handful fit` and `handful predict` with --scheduler, which run on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from handful.errors import InvalidOptionError


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
    """Label images on the workers, with one Parquet file per thousand images."""
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
    with cluster(scheduler) as client:
        paths = predict_shards(model, ImagePaths(names), out, client)
    print(f"{len(names):,} images labelled in {len(paths)} Parquet files in {out}")
    return 0
