"""Matching networks: attention over the support set (Vinyals et al. 2016, eq. 1 and section 2.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.base import (
    BaseLearner,
    GramPredictor,
    KernelLearner,
    Limits,
    Predictor,
    check_support,
    log_parameter,
)
from handful.learners.reading import shuffled


class CosineAttention(KernelLearner):
    """Logits log sum_i a(x, x_i) y_i with a = softmax_i(scale cos(x, x_i)); cosines only need inner products."""

    def __init__(self, scale: float, learn_scale: bool) -> None:
        super().__init__()
        self.log_scale = log_parameter("scale", scale, learn_scale)

    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        """Keep the support's norms; all the work happens in the predictor."""
        support_norms = gram.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)  # (..., 1, n)
        labels = targets.to(gram.dtype)
        scale = self.log_scale.exp()
        tiny = torch.finfo(gram.dtype).tiny

        def predictor(cross: Tensor, norms: Tensor) -> Tensor:
            cosines = cross / (norms.unsqueeze(-1) * support_norms).clamp_min(tiny).sqrt()
            scores = scale * cosines  # (..., q, n)
            return _log_sums(scores, labels) - scores.logsumexp(-1, keepdim=True)

        return predictor


def _log_sums(scores: Tensor, labels: Tensor) -> Tensor:
    """log sum_i exp(scores_i) over the examples of each class: (..., q, n) and one-hot (..., n, way) to (..., q, way).

    Each class is shifted by its own largest score, so that no sum underflows, however small its share of the attention.
    """
    own = labels.argmax(-1).unsqueeze(-2).expand(scores.shape)
    lowest = scores.new_full((*scores.shape[:-1], labels.shape[-1]), torch.finfo(scores.dtype).min)
    largest = lowest.scatter_reduce(-1, own, scores.detach(), "amax")
    sums = (scores - largest.gather(-1, own)).exp() @ labels
    return largest + sums.clamp_min(torch.finfo(scores.dtype).tiny).log()


class FullContext(nn.Module):
    """Full context embeddings: support examples see each other, and each query sees the support (appendix A).

    g(x_i) adds the two directions of an LSTM over the support set to x_i. f(x) is the state of an LSTM with input
    x after `steps` steps; in each of them it also reads r = sum_i softmax_i(h . g(x_i)) g(x_i).
    """

    def __init__(self, features: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.over_support = nn.LSTM(features, features, batch_first=True, bidirectional=True)
        self.read = nn.LSTMCell(2 * features, features)

    def support(self, support: Tensor) -> Tensor:
        """g of all examples: (..., n, e) -> (..., n, e)."""
        states, _ = self.over_support(support.reshape(-1, *support.shape[-2:]))
        forward, backward = states.reshape(*support.shape[:-1], -1).chunk(2, dim=-1)
        contexts: Tensor = support + forward + backward
        return contexts

    def query(self, query: Tensor, contexts: Tensor) -> Tensor:
        """f of all queries, (..., q, e), given g of the support, (..., n, e)."""
        rows = query.reshape(-1, query.shape[-1])
        hidden, cell, reading = (torch.zeros_like(rows) for _ in range(3))
        for _ in range(self.steps):
            hidden, cell = self.read(torch.cat([rows, reading], dim=-1), (hidden, cell))
            hidden = hidden + rows
            weights = torch.softmax(hidden.reshape(query.shape) @ contexts.mT, dim=-1)  # (..., q, n)
            reading = (weights @ contexts).reshape(rows.shape)
        return hidden.reshape(query.shape)


class MatchingNet(BaseLearner):
    """Chooses the class of the most similar support examples, by attention (eq. 1).

    `context` adds full context embeddings, which read the support as a sequence; in training it is shuffled each
    time. The paper's attention has scale = 1; a larger scale learns faster, and at one shot it changes no answer.
    """

    def __init__(
        self,
        scale: float = 10.0,
        *,
        learn_scale: bool = False,
        context: bool = False,
        context_steps: int = 5,
        features: int | None = None,
    ) -> None:
        super().__init__()
        if context_steps < 1:
            raise InvalidOptionError(f"context_steps must be at least 1, but got {context_steps}.")
        if context and features is None:
            raise InvalidOptionError("Full context embeddings need `features`, the embedding's size.")
        self.attention = CosineAttention(scale, learn_scale)
        self.context = FullContext(features, context_steps) if context and features is not None else None
        self.limits = Limits(order_dependent=context)

    @property
    def kernel(self) -> KernelLearner | None:
        """Plain attention as a kernel learner; None with full context embeddings, which need the vectors."""
        return self.attention if self.context is None else None

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        """Learn from support embeddings (..., n, e) with one-hot targets (..., n, way)."""
        if self.context is None:
            return self.attention.fit(support, targets)
        check_support(support, targets)
        if self.training:
            support, targets = shuffled(support, targets)
        context, contexts = self.context, self.context.support(support)
        predict = self.attention.fit(contexts, targets)
        return lambda query: predict(context.query(query, contexts))
