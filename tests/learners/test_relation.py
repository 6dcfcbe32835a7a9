"""Relation networks: the split first convolution against a stacked one, and a case computed by hand."""

import math

import pytest
import torch
from torch import nn

from handful.embeddings import conv4
from handful.errors import InvalidOptionError, ShapeError
from handful.learners import RelationNet
from handful.learners.registry import build_learner
from handful.learners.relation import relation_loss


def test_pairs_are_compared_as_if_their_channels_were_stacked():
    torch.manual_seed(0)
    learner = RelationNet((3, 4, 4), channels=5).eval()
    support, query = torch.randn(4, 3, 4, 4), torch.randn(2, 3, 4, 4)
    targets = torch.eye(2).repeat(2, 1)
    stacked = nn.Conv2d(6, 5, 3, padding=1)
    stacked.weight.data = torch.cat([learner.of_class.weight, learner.of_query.weight], 1).data
    stacked.bias.data = learner.of_class.bias.data
    sums = torch.stack([support[0] + support[2], support[1] + support[3]])
    pairs = torch.stack([torch.cat([sums[c], query[q]]) for q in range(2) for c in range(2)])
    expected = learner.compare(stacked(pairs)).reshape(2, 2)
    torch.testing.assert_close(learner.fit(support, targets)(query), expected)


def test_the_average_of_a_class_does_not_depend_on_how_often_its_examples_are_repeated():
    torch.manual_seed(0)
    learner = RelationNet((3, 4, 4), channels=5, average=True).eval()
    support, query = torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    once = learner.fit(support, torch.eye(2))(query)
    thrice = learner.fit(support.repeat(3, 1, 1, 1), torch.eye(2).repeat(3, 1))(query)
    torch.testing.assert_close(thrice, once)


def test_a_relation_by_hand():
    """1 channel, weights that pass the centre pixel: per pair the maximum of 2 class + 3 query, minus 1."""
    learner = RelationNet((1, 4, 4), channels=1, hidden=1).eval()
    for conv, value in ((learner.of_class, 2.0), (learner.of_query, 3.0), (learner.compare[3], 1.0)):
        nn.init.zeros_(conv.weight)
        conv.weight.data[0, 0, 1, 1] = value
        if conv.bias is not None:
            nn.init.zeros_(conv.bias)
    for norm in (learner.compare[0], learner.compare[4]):
        norm.eps = 0.0
    for linear in (learner.compare[8], learner.compare[10]):
        nn.init.ones_(linear.weight)
        nn.init.zeros_(linear.bias)
    nn.init.constant_(learner.compare[10].bias, -1.0)
    support, query = torch.zeros(2, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    support[0, 0, 1, 1], support[1, 0, 2, 3], query[0, 0, 1, 1] = 1.0, 0.5, 1.0
    logits = learner.fit(support, torch.eye(2))(query)
    # class 0 meets the query at the same pixel: max = 2 + 3; class 1 elsewhere: max(1, 3)
    torch.testing.assert_close(logits, torch.tensor([[4.0, 2.0]]))


def test_the_loss_is_the_squared_error_of_relation_scores():
    logits = torch.tensor([[math.log(3), -math.log(3)]])
    torch.testing.assert_close(relation_loss(logits, torch.tensor([[1.0, 0.0]])), torch.tensor(1 / 16))
    torch.testing.assert_close(relation_loss(logits, torch.tensor([[0.0, 1.0]])), torch.tensor(9 / 16))


def test_the_paper_s_embedding_gives_feature_maps_for_it():
    embedding, learner = build_learner("relation", conv4("32C", 1), (1, 28, 28), {})
    maps = embedding(torch.zeros(2, 1, 28, 28))
    assert maps.shape == (2, 32, 7, 7)
    assert learner.shape == (32, 7, 7)


def test_an_embedding_that_flattens_its_maps_is_refused():
    flat = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten())
    with pytest.raises(InvalidOptionError, match="feature maps"):
        build_learner("relation", flat, (1, 8, 8), {})


def test_maps_that_are_too_small_or_of_another_shape_are_refused():
    with pytest.raises(ShapeError, match="3x3"):
        RelationNet((8, 3, 3))
    with pytest.raises(ShapeError, match=r"\(8, 4, 4\).*\(8, 5, 5\)"):
        RelationNet((8, 4, 4)).fit(torch.zeros(2, 8, 5, 5), torch.eye(2))
    with pytest.raises(InvalidOptionError):
        RelationNet((8, 4, 4), channels=0)
