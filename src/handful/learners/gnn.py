"""Few-shot learning with graph neural networks (Garcia and Bruna 2018, eq. 1 to 5).

A query and the support are the nodes of a graph, x_i = [embedding, label], with the uniform distribution (the text) or
zeros (the authors' code) as the label of the query. Each layer learns an adjacency A_ij = softmax_j(MLP(|x_i - x_j|))
and appends leaky-ReLU([x, A x] W) to the nodes; the last layer gives the logits of the query's node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner, Limits, Predictor, check_support
from handful.learners.reading import by_chunks, start_as_vote

LEAK = 0.01
OMNIGLOT_DROPOUT = 0.3

QueryLabel = Literal["uniform", "zeros"]
Form = Literal["ours", "mini-imagenet", "omniglot"]


class GNN(BaseLearner):
    """One graph per query, so queries do not affect each other. Labels are part of the nodes, so the way is fixed.

    Each of `layers` layers appends `growth` features; the layers of the adjacency's network have 2, 2, 1 and 1 times
    `hidden` units. The network compares all pairs of nodes, so use embeddings with few features, such as the paper's
    64.

    With `vote` the logits start as a vote of the neighbours' labels, and the embedding learns from the first episode
    on. `form` chooses between the authors' two networks (models/gnn_iclr.py): 'mini-imagenet', whose batch norm counts
    each pair of nodes twice and each node with itself, and 'omniglot', which also has adjacency networks as wide as its
    nodes instead of `hidden`, dropout in the last of them, and batch norm on the logits. 'ours' is 'mini-imagenet'
    with every pair computed once; in evaluation mode the two are equal.
    """

    def __init__(
        self,
        features: int,
        way: int = 5,
        *,
        layers: int = 2,
        growth: int = 48,
        hidden: int = 96,
        vote: bool = True,
        query_label: QueryLabel = "uniform",
        form: Form = "ours",
    ) -> None:
        super().__init__()
        _check(layers, growth, hidden, query_label, form)
        self.limits = Limits(way=way)
        self.query_label, self.every_pair = query_label, form != "ours"
        widths = [features + way + growth * layer for layer in range(layers + 1)]
        omniglot = form == "omniglot"
        inner = [_omniglot_widths(width) if omniglot else _widths(hidden) for width in widths[:-1]]
        self.adjacencies = nn.ModuleList(
            _Adjacency([width, *inside], self.every_pair) for width, inside in zip(widths[:-1], inner, strict=True)
        )
        self.last_adjacency = _Adjacency([widths[-1], *inner[-1]], self.every_pair, OMNIGLOT_DROPOUT * omniglot)
        self.updates = nn.ModuleList(
            _ByRow(nn.Linear(2 * width, growth), nn.BatchNorm1d(growth), nn.LeakyReLU(LEAK)) for width in widths[:-1]
        )
        self.classify = nn.Linear(2 * widths[-1], way)
        self.normalise: nn.Module = _ByRow(nn.BatchNorm1d(way)) if omniglot else nn.Identity()
        if vote:
            start_as_vote(self.classify, widths[-1] + features, way)
        self._node_size, self._widest = widths[0], max(inner[-1])

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support embeddings (..., n, e) with one-hot targets (..., n, way)."""
        check_support(support, targets, self.limits.way)
        n, way = targets.shape[-2:]
        nodes = torch.cat([support, targets.to(support.dtype)], dim=-1).reshape(-1, n, self._node_size)
        cost = n * (n + 1) // 2 * self._widest
        label = 0.0 if self.query_label == "zeros" else 1 / way

        def predictor(query: Tensor) -> Tensor:
            unknown = query.new_full((*query.shape[:-1], way), label)
            queries = torch.cat([query, unknown], dim=-1).reshape(len(nodes), -1, self._node_size)
            return by_chunks(self._logits, nodes, queries, cost).reshape(*query.shape[:-1], way)

        return predictor

    def _logits(self, support: Tensor, query: Tensor) -> Tensor:
        """(b, n, c) and (b, q, c) -> (b, q, way), through b q graphs whose first node is the query."""
        b, q, c = query.shape
        others = support.unsqueeze(1).expand(b, q, -1, c)
        nodes = torch.cat([query.unsqueeze(2), others], dim=2).flatten(0, 1)  # (b q, n + 1, c)
        for adjacency, update in zip(self.adjacencies, self.updates, strict=True):
            nodes = torch.cat([nodes, update(torch.cat([nodes, adjacency(nodes) @ nodes], dim=-1))], dim=-1)
        if self.every_pair and self.training:
            around, last = self.last_adjacency(nodes) @ nodes, nodes
        else:
            around, last = self.last_adjacency.of_first(nodes) @ nodes, nodes[:, :1]  # (b q, 1, c)
        logits: Tensor = self.normalise(self.classify(torch.cat([last, around], dim=-1)))
        return logits[:, 0].reshape(b, q, -1)


class _ByRow(nn.Module):
    """Applies layers to the last dimension and treats all other dimensions as a batch, for batch norm."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, values: Tensor) -> Tensor:
        """(..., c) -> (..., d)."""
        rows: Tensor = self.layers(values.flatten(0, -2))
        return rows.reshape(*values.shape[:-1], -1)


class _Adjacency(nn.Module):
    """A_ij = softmax over j != i of a network's output for |x_i - x_j| (eq. 2); it is symmetric before the softmax.

    With `every_pair` all m^2 pairs pass through the network in training, as in the authors' code: batch norm then
    counts each pair twice and each node with itself. Otherwise each pair passes through once.
    """

    def __init__(self, widths: Sequence[int], every_pair: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.every_pair = every_pair
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), nn.BatchNorm1d(fan_out), nn.LeakyReLU(LEAK)]
        if dropout:
            layers.insert(3, nn.Dropout(dropout))
        self.similarity = _ByRow(*layers, nn.Linear(widths[-1], 1))

    def forward(self, nodes: Tensor) -> Tensor:
        """Nodes (g, m, c) -> adjacency (g, m, m)."""
        every = self.every_pair and self.training
        scores = self._of_every_pair(nodes) if every else self._of_each_pair_once(nodes)
        itself = torch.eye(nodes.shape[1], dtype=torch.bool, device=nodes.device)
        return torch.softmax(scores.masked_fill(itself, -torch.inf), dim=-1)

    def _of_every_pair(self, nodes: Tensor) -> Tensor:
        scores: Tensor = self.similarity((nodes.unsqueeze(2) - nodes.unsqueeze(1)).abs())
        return scores.squeeze(-1)

    def _of_each_pair_once(self, nodes: Tensor) -> Tensor:
        m = nodes.shape[1]
        i, j = torch.triu_indices(m, m, 1, device=nodes.device)
        pairs: Tensor = self.similarity((nodes[:, i] - nodes[:, j]).abs()).squeeze(-1)  # (g, m (m - 1) / 2)
        place = torch.zeros(m, m, dtype=torch.long, device=nodes.device)
        place[i, j] = place[j, i] = torch.arange(len(i), device=nodes.device)
        scores: Tensor = pairs[:, place.flatten()].reshape(len(nodes), m, m)
        return scores

    def of_first(self, nodes: Tensor) -> Tensor:
        """Only the first node's row of the adjacency, (g, 1, m)."""
        scores = self.similarity((nodes[:, :1] - nodes[:, 1:]).abs()).mT  # (g, 1, m - 1)
        return nn.functional.pad(torch.softmax(scores, dim=-1), (1, 0))


def _widths(hidden: int) -> list[int]:
    return [2 * hidden, 2 * hidden, hidden, hidden]


def _omniglot_widths(nodes: int) -> list[int]:
    return [2 * nodes, int(1.5 * nodes), nodes, nodes]


def _check(layers: int, growth: int, hidden: int, query_label: str, form: str) -> None:
    if min(layers, growth, hidden) < 1:
        raise InvalidOptionError(
            f"layers, growth and hidden must be at least 1, but got {layers}, {growth} and {hidden}."
        )
    for name, value, known in (("query_label", query_label, QueryLabel), ("form", form, Form)):
        if value not in get_args(known):
            raise InvalidOptionError(f"{name} must be one of {', '.join(get_args(known))}, but got '{value}'.")
