"""Embed every image of a split once, as fast as possible."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from handful.data.table import ClassDataset
from handful.errors import NotEnoughImagesError
from handful.meta.engine import CPU, Engine

BATCH = 100
"""Images per forward pass: few enough that the memory of a batch is reused, enough for fast convolutions."""
CHUNK = 2_000
"""Images whose features are summed at a time."""


def embed_pool(embedding: nn.Module, dataset: ClassDataset, engine: Engine = CPU, batch: int = BATCH) -> Tensor:
    """Features of all images of a split, (n, *features), in the order of `dataset.rows`; no gradient.

    It uses a folded copy in evaluation mode, so the embedding itself is not changed.
    """
    return embed_rows(folded(embedding), dataset, dataset.rows, engine, batch)


def embed_pool_within(embedding: nn.Module, dataset: ClassDataset, memory: int, engine: Engine = CPU) -> Tensor | None:
    """The result of `embed_pool`, or None if it would take more than `memory` bytes."""
    return embed_pool(embedding, dataset, engine) if pool_bytes(embedding, dataset, engine) <= memory else None


def pool_bytes(embedding: nn.Module, dataset: ClassDataset, engine: Engine = CPU) -> int:
    """The bytes that the features of all images of a split take, computed from one image."""
    one = embed_rows(folded(embedding), dataset, dataset.rows[:1], engine)
    return len(dataset.rows) * one.numel() * one.element_size()


def mean_features(embedding: nn.Module, dataset: ClassDataset, engine: Engine = CPU) -> Tensor:
    """The mean of the features of all images of a split, (*features); few of them are in memory at a time."""
    network = folded(embedding)
    sums = [embed_rows(network, dataset, rows, engine).cpu().double().sum(0) for rows in dataset.rows.split(CHUNK)]
    return (torch.stack(sums).sum(0) / len(dataset.rows)).float().to(engine.device)


def embed_rows(
    network: nn.Module, dataset: ClassDataset, rows: Tensor, engine: Engine = CPU, batch: int = BATCH
) -> Tensor:
    """Features (n, *features) of the table's images at `rows`, by a network from `folded`; no gradient.

    Processes share the batches, and each process gets all features.
    """
    features: Tensor | None = None
    starts = range(0, len(rows), batch)
    shared = len(starts) >= engine.world > 1
    with torch.no_grad():
        for start in starts[engine.rank :: engine.world] if shared else starts:
            images = dataset.inputs(rows[start : start + batch], engine.device)
            with engine.autocast():
                done: Tensor = network(images)
            if features is None:
                features = torch.zeros(
                    (len(rows), *done.shape[1:]), dtype=engine.widened(done).dtype, device=done.device
                )
            features[start : start + batch] = done
    if features is None:
        raise NotEnoughImagesError(f"Split '{dataset.name}' has no images to embed.")
    return engine.total(features) if shared else features


def folded(network: nn.Module) -> nn.Module:
    """A copy for inference, in evaluation mode, with each batch norm after a convolution folded into its weights."""
    network = deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, nn.Sequential):
            _fold_sequence(module)
    return network


def _fold_sequence(sequence: nn.Sequential) -> None:
    for at, (conv, norm) in enumerate(pairwise(list(sequence))):
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats:
            sequence[at] = fuse_conv_bn_eval(conv, norm)
            sequence[at + 1] = nn.Identity()
