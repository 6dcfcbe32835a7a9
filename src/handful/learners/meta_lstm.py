"""Meta-LSTM: an LSTM as the optimiser of a network (Ravi and Larochelle 2017, section 3).

The weights are the cell state of a gated update, theta_t = f_t theta_t-1 - i_t g_t, with g_t the gradient of the
support loss L_t; i_t = sigma(W_i [h_t, theta_t-1, i_t-1] + b_i) is a learnt rate for each weight, and f_t, computed in
the same way, how much of the weight to keep. h_t is the state of an ordinary LSTM that reads the preprocessed g_t and
L_t, separately for each weight but with shared parameters. theta_0 is learnt too. Instead of i_t-1 and f_t-1, the
released code (model/lstm/lstm-helper.lua) gives each gate the argument of its last sigmoid, and it divides the gradient
of the mean loss by the number of examples again (model/lstm/meta-learner-lstm.lua).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.adapting import AdaptingLearner, Batching, Statistics, Weights

Feedback = Literal["value", "logit"]

LOG_RANGE = 10.0
"""The p of the preprocessing: values down to exp(-p) are represented by their logarithm."""


class MetaLSTM(AdaptingLearner):
    """A learnt, per-weight gated update rule with `hidden` units and a learnt initial state.

    `rate` and `keep` are the initial outputs of the input and forget gates. As in the paper, gradients are inputs of
    the optimiser and are not differentiated themselves. `feedback` is what a gate sees of the previous step: its value
    (the paper; i_0 = 0 and f_0 = 1), or the logit of that value (the released code; both start at 0). `divide_twice`
    divides gradients by the number of support examples, as the released code does.
    """

    def __init__(
        self,
        network: nn.Module,
        way: int = 5,
        *,
        steps: int = 12,
        test_steps: int | None = None,
        hidden: int = 20,
        rate: float = 0.01,
        keep: float = 0.993,
        feedback: Feedback = "value",
        divide_twice: bool = False,
        statistics: Statistics = "support",
        batching: Batching = "loop",
    ) -> None:
        super().__init__(network, way, statistics, batching)
        if steps < 1 or (test_steps is not None and test_steps < 1) or hidden < 1:
            raise InvalidOptionError(
                f"steps, test_steps and hidden must be at least 1, but got {steps}, {test_steps} and {hidden}."
            )
        if not (0 < rate < 1 and 0 < keep < 1):
            raise InvalidOptionError(f"rate and keep are gate values and must be in (0, 1), but got {rate} and {keep}.")
        if feedback not in ("value", "logit"):
            raise InvalidOptionError(f"feedback must be 'value' or 'logit', but got '{feedback}'.")
        self.steps, self.test_steps = steps, test_steps or steps
        self.feedback, self.divide_twice = feedback, divide_twice
        self.reader = nn.LSTMCell(4, hidden)
        self.input_gate, self.forget_gate = _gate(hidden + 2, rate), _gate(hidden + 2, keep)

    def adapt(self, support: Tensor, targets: Tensor) -> Weights:
        """Run the learnt optimiser on one episode."""
        start = self.network.start()
        theta = torch.cat([weight.flatten() for weight in start.values()])
        state: tuple[Tensor, Tensor] | None = None
        by_value = self.feedback == "value"
        rate, keep = torch.zeros_like(theta), torch.ones_like(theta) if by_value else torch.zeros_like(theta)
        for _ in range(self.steps if self.training else self.test_steps):
            loss, slope = self._slope(theta, start, support, targets)
            state = self.reader(torch.cat([preprocess(slope), preprocess(loss).expand(len(theta), 2)], dim=-1), state)
            rate_logit = _logit(self.input_gate, state[0], theta, rate)
            keep_logit = _logit(self.forget_gate, state[0], theta, keep)
            theta = torch.sigmoid(keep_logit) * theta - torch.sigmoid(rate_logit) * slope
            rate, keep = rate_logit, keep_logit
            if by_value:
                rate, keep = torch.sigmoid(rate), torch.sigmoid(keep)
        return _named(theta, start)

    def _slope(self, theta: Tensor, like: Weights, support: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The support loss and its gradient with respect to all weights, (p,), detached."""
        losses = torch.func.grad_and_value(self.network.loss)
        slopes, loss = losses(_named(theta.detach(), like), support.detach(), targets)
        slope = torch.cat([slope.flatten() for slope in slopes.values()])
        return loss, slope / len(targets) if self.divide_twice else slope


def preprocess(values: Tensor) -> Tensor:
    """Magnitude and sign of numbers of any size (their appendix): (...) -> (..., 2).

    (log|x| / p, sign x) where |x| >= exp(-p), else (-1, exp(p) x).
    """
    floor = math.exp(-LOG_RANGE)
    large = values.abs() >= floor
    magnitude = torch.where(large, values.abs().clamp_min(floor).log() / LOG_RANGE, -1.0)
    return torch.stack([magnitude, torch.where(large, values.sign(), values / floor)], dim=-1)


def _gate(fan_in: int, value: float) -> nn.Linear:
    gate = nn.Linear(fan_in, 1)
    nn.init.normal_(gate.weight, std=0.01)
    nn.init.constant_(gate.bias, math.log(value / (1 - value)))
    return gate


def _logit(gate: nn.Linear, hidden: Tensor, theta: Tensor, before: Tensor) -> Tensor:
    """The argument of a gate's sigmoid, for each weight."""
    logit: Tensor = gate(torch.cat([hidden, theta.unsqueeze(-1), before.unsqueeze(-1)], dim=-1))
    return logit.squeeze(-1)


def _named(theta: Tensor, like: Weights) -> Weights:
    parts = theta.split([weight.numel() for weight in like.values()])
    return {name: part.reshape(weight.shape) for part, (name, weight) in zip(parts, like.items(), strict=True)}
