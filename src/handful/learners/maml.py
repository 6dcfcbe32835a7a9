"""MAML: initial weights from which a few gradient steps suffice (Finn et al. 2017, algorithm 2), and ANIL.

With the support loss L_S, the weights of an episode are theta_0 = theta, theta_k+1 = theta_k - rate grad L_S(theta_k),
and the query loss at theta_steps is minimised over theta through all steps. ANIL (Raghu et al. 2020) adapts only the
last layer: the same learner on the features of an embedding that is not adapted.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners.adapting import AdaptingLearner, Batching, Statistics, Weights
from handful.learners.base import log_parameter, positive


class MAML(AdaptingLearner):
    """Gradient descent on the support loss from meta-learnt weights of a `network` with one output per class.

    `steps` and `rate` apply in training mode, `test_steps` and `test_rate` (by default `rate`) in evaluation mode.
    `first_order` omits second derivatives. `learn_rates` learns one rate for each weight tensor, as a logarithm.

    Two details come from the released code, not from the paper. With `sum_over_classes`, L_S is the sum of the support
    examples' cross-entropies divided by the number of shots, so each step is `way` times as large as with their mean.
    With `keep_norms`, batch norm's shifts are learnt, but not adapted to an episode.
    """

    def __init__(
        self,
        network: nn.Module,
        way: int = 5,
        *,
        steps: int = 5,
        test_steps: int = 10,
        rate: float = 0.01,
        test_rate: float | None = None,
        first_order: bool = False,
        learn_rates: bool = False,
        sum_over_classes: bool = False,
        keep_norms: bool = False,
        statistics: Statistics = "support",
        batching: Batching = "loop",
    ) -> None:
        super().__init__(network, way, statistics, batching, keep_norms)
        if steps < 1 or test_steps < 1:
            raise InvalidOptionError(f"steps and test_steps must be at least 1, but got {steps} and {test_steps}.")
        if test_rate is not None and learn_rates:
            raise InvalidOptionError("With learn_rates, the learnt rates apply at test time too: leave out test_rate.")
        self.steps, self.test_steps, self.first_order = steps, test_steps, first_order
        self.test_rate = None if test_rate is None else positive("test_rate", test_rate)
        self.factor = way if sum_over_classes else 1
        self.log_rates = log_parameter("rate", rate, learn_rates, (len(self.network.start()),))

    def adapt(self, support: Tensor, targets: Tensor) -> Weights:
        """The weights after the inner loop of one episode, differentiable with respect to the initial weights."""
        weights = self.network.start()
        for _ in range(self.steps if self.training else self.test_steps):
            weights = self._step(weights, support, targets)
        return weights

    def _step(self, weights: Weights, support: Tensor, targets: Tensor) -> Weights:
        at = {name: weight.detach() for name, weight in weights.items()} if self.first_order else weights
        slope = torch.func.grad(self.network.loss)(at, support.detach() if self.first_order else support, targets)
        if self.first_order:  # kept norms are not among the detached weights
            slope = {name: each.detach() for name, each in slope.items()}
        rates = self.factor * self._rates()
        return {name: weight - rates[i] * slope[name] for i, (name, weight) in enumerate(weights.items())}

    def _rates(self) -> Tensor:
        if self.test_rate is not None and not self.training:
            return torch.full_like(self.log_rates, self.test_rate)
        return self.log_rates.exp()
