"""Few-shot learning with graph neural networks (Garcia and Bruna 2018, eq. 1 to 5).

A query and the support are the nodes of a graph, x_i = [embedding, label], with the uniform distribution as the label
of the query. Each layer learns an adjacency A_ij = softmax_j(MLP(|x_i - x_j|)) and appends leaky-ReLU([x, A x] W) to
the nodes; the last layer gives the logits of the query's node.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner, Limits, Predictor, check_support
from handful.learners.chunks import by_chunks
from handful.learners.vote import start_as_vote

LEAK = 0.01


class GNN(BaseLearner):
    """One graph a query, so a query never sees another. Labels are part of the nodes: the way is fixed.

    The logits start as a vote of the neighbours' labels, and the embedding learns from the first episode on.

    `growth` numbers are appended by each of `layers` layers; `hidden` is the width of the adjacency's network, 2, 2, 1,
    1 times. The network compares all pairs of nodes: give it embeddings of few features, such as the paper's 64.
    """

    def __init__(self, features: int, way: int = 5, *, layers: int = 2, growth: int = 48, hidden: int = 96) -> None:
        super().__init__()
        if min(layers, growth, hidden) < 1:
            raise InvalidOptionError(
                f"layers, growth and hidden must be at least 1, but got {layers}, {growth} and {hidden}."
            )
        self.limits = Limits(way=way)
        widths = [features + way + growth * layer for layer in range(layers + 1)]
        self.adjacencies = nn.ModuleList(_Adjacency(width, hidden) for width in widths[:-1])
        self.last_adjacency = _Adjacency(widths[-1], hidden)
        self.updates = nn.ModuleList(
            _ByRow(nn.Linear(2 * width, growth), nn.BatchNorm1d(growth), nn.LeakyReLU(LEAK)) for width in widths[:-1]
        )
        self.classify = nn.Linear(2 * widths[-1], way)
        start_as_vote(self.classify, widths[-1] + features, way)
        self._node_size, self._widest = widths[0], 2 * hidden

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support embeddings (..., n, e) with one-hot targets (..., n, way)."""
        check_support(support, targets, self.limits.way)
        n, way = targets.shape[-2:]
        nodes = torch.cat([support, targets.to(support.dtype)], dim=-1).reshape(-1, n, self._node_size)
        cost = n * (n + 1) // 2 * self._widest

        def predictor(query: Tensor) -> Tensor:
            unknown = query.new_full((*query.shape[:-1], way), 1 / way)
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
        first = self.last_adjacency.of_first(nodes) @ nodes  # (b q, 1, c)
        logits: Tensor = self.classify(torch.cat([nodes[:, :1], first], dim=-1))
        return logits.reshape(b, q, -1)


class _ByRow(nn.Module):
    """Layers on the last dimension, with every other dimension taken as a batch, for batch norm."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, values: Tensor) -> Tensor:
        """(..., c) -> (..., d)."""
        rows: Tensor = self.layers(values.flatten(0, -2))
        return rows.reshape(*values.shape[:-1], -1)


class _Adjacency(nn.Module):
    """A_ij = softmax over j != i of a network's view of |x_i - x_j| (eq. 2); it is symmetric before the softmax."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        widths = [width, 2 * hidden, 2 * hidden, hidden, hidden]
        layers: list[nn.Module] = []
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), nn.BatchNorm1d(fan_out), nn.LeakyReLU(LEAK)]
        self.similarity = _ByRow(*layers, nn.Linear(hidden, 1))

    def forward(self, nodes: Tensor) -> Tensor:
        """Nodes (g, m, c) -> adjacency (g, m, m); each pair passes the network once."""
        m = nodes.shape[1]
        i, j = torch.triu_indices(m, m, 1, device=nodes.device)
        pairs: Tensor = self.similarity((nodes[:, i] - nodes[:, j]).abs()).squeeze(-1)  # (g, m (m - 1) / 2)
        place = torch.zeros(m, m, dtype=torch.long, device=nodes.device)
        place[i, j] = place[j, i] = torch.arange(len(i), device=nodes.device)
        scores = pairs[:, place.flatten()].unflatten(1, (m, m))
        itself = torch.eye(m, dtype=torch.bool, device=nodes.device)
        return torch.softmax(scores.masked_fill(itself, -torch.inf), dim=-1)

    def of_first(self, nodes: Tensor) -> Tensor:
        """The adjacency's row of the first node alone, (g, 1, m)."""
        scores = self.similarity((nodes[:, :1] - nodes[:, 1:]).abs()).mT  # (g, 1, m - 1)
        return nn.functional.pad(torch.softmax(scores, dim=-1), (1, 0))
