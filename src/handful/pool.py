"""Embedding every image of a split once, as fast as the machine allows."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from handful.data.table import ClassDataset

BATCH = 100
"""Images a forward pass: small enough for the activations of a batch to stay in the processor's cache."""


def embed_pool(embedding: nn.Module, dataset: ClassDataset, batch: int = BATCH) -> Tensor:
    """Features of all images of a split, (n, *features), in the order of `dataset.rows`; no gradient.

    Works on a folded copy in evaluation mode, so the embedding itself is left as it is.
    """
    network = folded(embedding)
    device = next((p.device for p in embedding.parameters()), torch.device("cpu"))
    pool: Tensor | None = None
    with torch.no_grad():
        for start in range(0, len(dataset.rows), batch):
            images = dataset.gather(dataset.rows[start : start + batch]).to(device).to(torch.float32).div_(255)
            features: Tensor = network(images)
            if pool is None:
                pool = features.new_empty((len(dataset.rows), *features.shape[1:]))
            pool[start : start + batch] = features
    if pool is None:
        raise AssertionError("a class data set has at least one image")
    return pool


def folded(network: nn.Module) -> nn.Module:
    """A copy for inference: evaluation mode, and each batch norm that follows a convolution folded into its weights."""
    network = deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, nn.Sequential):
            _fold_sequence(module)
    return network


def _fold_sequence(sequence: nn.Sequential) -> None:
    names = list(sequence._modules)
    for first, second in pairwise(names):
        conv, norm = sequence._modules[first], sequence._modules[second]
        if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats:
            sequence._modules[first] = fuse_conv_bn_eval(conv, norm)
            sequence._modules[second] = nn.Identity()
