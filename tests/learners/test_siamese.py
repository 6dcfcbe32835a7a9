"""Siamese networks against a case small enough for pencil and paper."""

import math

import pytest
import torch

from handful.errors import InvalidOptionError
from handful.learners import Siamese
from handful.learners.siamese import pair_loss


def by_hand() -> Siamese:
    """h = sigma(x), log-odds 1 - 2 |h_1 - h'_1| + 3 |h_2 - h'_2|."""
    learner = Siamese(2, hidden=2)
    learner.encode.weight.data, learner.encode.bias.data = torch.eye(2), torch.zeros(2)
    learner.weigh.weight.data, learner.weigh.bias.data = torch.tensor([[-2.0, 3.0]]), torch.tensor([1.0])
    return learner


def test_the_log_odds_of_a_pair_are_a_weighted_l1_distance():
    odds = math.log(3)  # sigma(log 3) = 3/4, sigma(-log 3) = 1/4, sigma(0) = 1/2
    support = torch.tensor([[odds, 0.0], [-odds, odds]])
    query = torch.tensor([[0.0, 0.0]])
    logits = by_hand().fit(support, torch.eye(2))(query)
    # distances (1/4, 0) and (1/4, 1/4)
    torch.testing.assert_close(logits, torch.tensor([[1 - 2 / 4, 1 - 2 / 4 + 3 / 4]]))


def test_a_class_is_judged_by_the_mean_over_its_examples():
    odds = math.log(3)
    support = torch.tensor([[odds, 0.0], [0.0, 0.0], [-odds, odds]])
    targets = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    logits = by_hand().fit(support, targets)(torch.zeros(1, 2))
    torch.testing.assert_close(logits, torch.tensor([[(0.5 + 1.0) / 2, 1.25]]))


def test_the_loss_is_that_of_pairs_with_the_true_one_weighing_as_much_as_all_others():
    logits = torch.tensor([[2.0, -1.0, 0.5]])
    targets = torch.tensor([[1.0, 0.0, 0.0]])
    true = -2 * math.log(1 / (1 + math.exp(-2)))
    false = -math.log(1 / (1 + math.exp(-1))) - math.log(1 / (1 + math.exp(0.5)))
    torch.testing.assert_close(pair_loss(logits, targets), torch.tensor((true + false) / 3))


def test_many_queries_without_gradients_are_answered_in_pieces_that_change_nothing(monkeypatch):
    learner, support, query = Siamese(3, hidden=4), torch.randn(5, 2, 3), torch.randn(5, 7, 3)
    expected = learner.fit(support, torch.eye(2).expand(5, 2, 2))(query)
    for numbers in (8, 24, 200):
        monkeypatch.setattr("handful.learners.reading.CHUNK_NUMBERS", numbers)
        with torch.no_grad():
            torch.testing.assert_close(learner.fit(support, torch.eye(2).expand(5, 2, 2))(query), expected)


def test_values_that_cannot_work_are_refused():
    with pytest.raises(InvalidOptionError):
        Siamese(3, hidden=0)
