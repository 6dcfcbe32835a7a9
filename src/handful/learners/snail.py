"""SNAIL: temporal convolutions and causal attention over a sequence (Mishra et al. 2018, section 3).

The sequence is (x_1, y_1), ..., (x_n, y_n), (x, 0): the support, then one query without its label, whose position gives
the logits. Blocks append to what they get: attention softmax(q k^T / sqrt(d)) v over all earlier positions, and stacks
of causal convolutions of kernel 2 and doubling dilation with gates, tanh(a) sigma(b).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.base import BaseLearner, Limits, Predictor, check_support
from handful.learners.reading import shuffled, start_as_vote

Streams = tuple[Tensor, Tensor]
"""Activations at the support's positions (b, n, c) and at the last position, for each query (b, q, c)."""


class SNAIL(BaseLearner):
    """The paper's stack, two convolution stacks between three attention blocks, scaled by `width`.

    No position looks ahead, so the support's activations are the same for all queries. They are computed once, and each
    query adds its own last position. The convolutions cover `shot` examples of each class; longer sequences
    work too, through attention. Labels are inputs, so the way is fixed. In training the support is shuffled.

    A sequence of T examples has ceil(log2 T) dilations, which double from `first_dilation`. The paper's pseudo-code
    starts at 2, so its convolutions skip the neighbour; starting at 1 they see every earlier example. With `vote`, the
    keys of attention are initialised equal to its queries, the last block passes on labels by similarity, and the
    logits start as their vote; without it, all weights have torch's default initialisation.
    """

    def __init__(
        self,
        features: int,
        way: int = 5,
        *,
        shot: int = 1,
        width: int = 128,
        vote: bool = True,
        first_dilation: int = 1,
    ) -> None:
        super().__init__()
        if min(shot, first_dilation) < 1 or width < 4:
            raise InvalidOptionError(
                f"shot and first_dilation must be at least 1 and width at least 4, but got {shot}, {first_dilation} "
                f"and {width}."
            )
        self.limits = Limits(way=way, order_dependent=True)
        dilations = [first_dilation * 2**power for power in range(math.ceil(math.log2(way * shot + 1)))]
        first = _Attention(features + way, width // 2, width // 4)
        second = _Convolutions(first.channels, width, dilations)
        third = _Attention(second.channels, 2 * width, width)
        fourth = _Convolutions(third.channels, width, dilations)
        last = _Attention(fourth.channels, 4 * width, 2 * width)
        self.blocks = nn.ModuleList([first, second, third, fourth, last])
        self.classify = nn.Linear(last.channels, way)
        if vote:
            labels = min(way, 2 * width)
            for block in (first, third, last):
                block.tie_keys()
            last.pass_on(features, labels)
            start_as_vote(self.classify, fourth.channels, labels)

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support embeddings (..., n, e) with one-hot targets (..., n, way)."""
        check_support(support, targets, self.limits.way)
        if self.training:
            support, targets = shuffled(support, targets)
        n, way = targets.shape[-2:]
        labelled = torch.cat([support, targets.to(support.dtype)], dim=-1)
        sequence = labelled.reshape(-1, n, labelled.shape[-1])

        def predictor(query: Tensor) -> Tensor:
            last = torch.cat([query, query.new_zeros(*query.shape[:-1], way)], dim=-1)
            streams = sequence, last.reshape(len(sequence), -1, last.shape[-1])
            for block in self.blocks:
                streams = block(streams)
            logits: Tensor = self.classify(streams[1])
            return logits.reshape(*query.shape[:-1], way)

        return predictor


class _Attention(nn.Module):
    """Causal attention over the sequence, a position itself included, appended to the activations."""

    def __init__(self, channels: int, keys: int, values: int) -> None:
        super().__init__()
        self.channels = channels + values
        self.project = nn.Linear(channels, 2 * keys + values)
        self.sizes = (keys, keys, values)

    def tie_keys(self) -> None:
        """Initialise keys equal to queries, so that attention starts with similarity instead of random weights."""
        keys = self.sizes[0]
        with torch.no_grad():
            for parameter in self.project.parameters():
                parameter[keys : 2 * keys] = parameter[:keys]

    def pass_on(self, first: int, count: int) -> None:
        """Initialise the first values as copies of the inputs `first` to `first` + `count`."""
        start = 2 * self.sizes[0]
        with torch.no_grad():
            self.project.bias[start : start + count] = 0
            self.project.weight[start : start + count] = 0
            self.project.weight[start : start + count, first : first + count] = torch.eye(count)

    def forward(self, streams: Streams) -> Streams:
        """Append what each position reads from itself and all earlier positions."""
        support, last = streams
        queries, keys, values = self.project(support).split(self.sizes, dim=-1)
        ahead = torch.ones(support.shape[1], support.shape[1], dtype=torch.bool, device=support.device).triu(1)
        scores = (queries @ keys.mT / math.sqrt(self.sizes[0])).masked_fill(ahead, -torch.inf)
        read = torch.softmax(scores, dim=-1) @ values
        asked, own_keys, own_values = self.project(last).split(self.sizes, dim=-1)
        own = (asked * own_keys).sum(-1, keepdim=True)  # (b, q, 1)
        scores = torch.cat([asked @ keys.mT, own], dim=-1) / math.sqrt(self.sizes[0])  # (b, q, n + 1)
        weights = torch.softmax(scores, dim=-1)
        read_last = weights[..., :-1] @ values + weights[..., -1:] * own_values
        return torch.cat([support, read], dim=-1), torch.cat([last, read_last], dim=-1)


class _Convolutions(nn.Module):
    """Gated causal convolutions of growing dilation, each appended to the activations (TCBlock)."""

    def __init__(self, channels: int, growth: int, dilations: Sequence[int]) -> None:
        super().__init__()
        self.dilations = tuple(dilations)
        self.now = nn.ModuleList(nn.Linear(channels + growth * i, 2 * growth) for i in range(len(self.dilations)))
        self.before = nn.ModuleList(
            nn.Linear(channels + growth * i, 2 * growth, bias=False) for i in range(len(self.dilations))
        )
        self.channels = channels + growth * len(self.dilations)

    def forward(self, streams: Streams) -> Streams:
        """Append one output per dilation."""
        support, last = streams
        n = support.shape[1]
        for now, before, dilation in zip(self.now, self.before, self.dilations, strict=True):
            past = nn.functional.pad(before(support), (0, 0, dilation, 0))  # at t, the view of position t - dilation
            out, out_last = now(support) + past[:, :n], now(last)
            if dilation <= n:
                out_last = out_last + past[:, n : n + 1]
            support = torch.cat([support, _gated(out)], dim=-1)
            last = torch.cat([last, _gated(out_last)], dim=-1)
        return support, last


def _gated(values: Tensor) -> Tensor:
    signal, gate = values.chunk(2, dim=-1)
    return torch.tanh(signal) * torch.sigmoid(gate)
