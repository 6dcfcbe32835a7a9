"""Networks whose weights are adapted: whose moments normalise a query, what is kept, and episodes in one call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from handful.errors import InvalidOptionError, ShapeError
from handful.learners.adapting import TOGETHER, AdaptedNetwork, AdaptingLearner, Batching, EpisodeNorm, Weights

# the same operations in another order, in double precision
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def test_a_query_is_normalised_by_the_moments_of_the_support():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(2)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    network = AdaptedNetwork(nn.Sequential(norm, nn.Flatten()))
    support, query = torch.randn(3, 2, 4, 4), torch.randn(5, 2, 4, 4)
    found = network.logits(network.start(), support, query).unflatten(1, (2, 4, 4))
    mean, var = support.mean((0, 2, 3)), support.var((0, 2, 3), correction=0)
    expected = nn.functional.batch_norm(query, mean, var, norm.weight, norm.bias, eps=norm.eps)
    torch.testing.assert_close(found, expected, **CLOSE)


def test_batch_statistics_normalise_the_queries_by_their_own_moments():
    network = AdaptedNetwork(nn.Sequential(nn.BatchNorm2d(2), nn.Flatten()), "batch")
    support, query = torch.randn(3, 2, 4, 4), torch.randn(5, 2, 4, 4)
    found = network.logits(network.start(), support, query).unflatten(1, (2, 4, 4))
    torch.testing.assert_close(found, nn.BatchNorm2d(2)(query), **CLOSE)
    assert network.transductive


def test_statistics_may_be_the_queries_own_in_training_and_the_supports_in_evaluation():
    layers = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten())
    network = AdaptedNetwork(layers, "batch-in-training")
    support, query = torch.randn(3, 2, 4, 4), torch.randn(5, 2, 4, 4)
    for training, same in ((True, "batch"), (False, "support")):
        network.train(training)
        expected = AdaptedNetwork(nn.Sequential(nn.BatchNorm2d(2), nn.Flatten()), same)
        logits = expected.logits(expected.start(), support, query)
        torch.testing.assert_close(network.logits(network.start(), support, query), logits, **CLOSE)
    assert not network.transductive


def test_the_network_keeps_no_running_statistics():
    network = AdaptedNetwork(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)))
    assert any(isinstance(module, EpisodeNorm) for module in network.modules())
    assert set(network.state_dict()) == {f"body.{part}" for part in ("0.weight", "0.bias", "1.weight", "1.bias")}


def test_the_norms_may_be_left_out_of_what_is_adapted() -> None:
    layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    assert set(AdaptedNetwork(layers, keep_norms=True).start()) == {"body.0.weight", "body.0.bias"}


def test_other_weights_are_used_for_one_call_and_leave_the_network_alone() -> None:
    network = AdaptedNetwork(nn.Linear(2, 3))
    before = {name: weight.clone() for name, weight in network.start().items()}
    weights = {"body.weight": torch.ones(3, 2), "body.bias": torch.tensor([0.0, 1.0, 2.0])}
    inputs, targets = torch.tensor([[1.0, 2.0]]), torch.eye(3)[:1]
    found = network.logits(weights, inputs, inputs)
    torch.testing.assert_close(found, torch.tensor([[3.0, 4.0, 5.0]]))
    torch.testing.assert_close(network.loss(weights, inputs, targets), cross_entropy(found, targets))
    assert all(torch.equal(weight, before[name]) for name, weight in network.start().items())


def test_unknown_words_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidOptionError, match=r"'support', 'batch'.*'running'"):
        AdaptedNetwork(nn.Linear(2, 3), "running")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match=r"'loop'.*'vmap'.*'threads'"):
        Summing("threads")  # type: ignore[arg-type]


class Summing(AdaptingLearner):
    """Adds the mean of the support to the bias: an inner loop whose answer is known."""

    def __init__(self, batching: Batching) -> None:
        layer = nn.Linear(3, 3)
        nn.init.eye_(layer.weight)
        nn.init.zeros_(layer.bias)
        super().__init__(layer, 3, "support", batching)

    def adapt(self, support: Tensor, targets: Tensor) -> Weights:
        start = self.network.start()
        return {**start, "body.bias": start["body.bias"] + support.mean(0)}


@pytest.mark.parametrize("batching", ["loop", "vmap"])
@pytest.mark.parametrize("lead", [(), (2,), (3, 4)])  # 12 episodes are more than one chunk of vmap
def test_each_episode_is_answered_by_its_own_weights(batching: Batching, lead: tuple[int, ...]) -> None:
    assert TOGETHER < 12
    support, query = torch.randn(*lead, 3, 3), torch.randn(*lead, 5, 3)
    found = Summing(batching).fit(support, torch.eye(3).expand(*lead, 3, 3))(query)
    torch.testing.assert_close(found, query + support.mean(-2, keepdim=True), **CLOSE)


def test_the_way_is_that_of_the_network() -> None:
    assert Summing("loop").limits.way == 3
    with pytest.raises(ShapeError, match=r"3 classes.* 4"):
        Summing("loop").fit(torch.zeros(4, 3), torch.eye(4))
