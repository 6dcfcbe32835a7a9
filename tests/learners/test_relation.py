"""Relation networks: a case computed by hand, the original's parameters, and what batch statistics do to answers."""

import math

import pytest
import torch
from torch import nn

from handful import FewShotModel
from handful.embeddings import build_embedding, conv4
from handful.embeddings.relation_net import RelationEmbedding
from handful.episodes import Episode, LabelledSet
from handful.errors import InvalidOptionError, ShapeError
from handful.learners import RelationNet
from handful.learners.registry import build_learner
from handful.learners.relation import relation_loss
from handful.paper.testing import check_model


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


@pytest.mark.parametrize(
    ("side", "padding", "positions", "total"),
    [(84, 0, 9, 115_601), (28, 1, 1, 111_505)],
    ids=["miniImageNet", "Omniglot"],
)
def test_the_relation_module_has_the_original_s_parameters(side: int, padding: int, positions: int, total: int):
    """Maps of 19x19 positions become 17, 8, 6, 3 without padding; of 5x5, with it, 5, 2, 2, 1."""
    channels = 1 if side == 28 else 3
    _, learner = build_learner(
        "relation", build_embedding("relation-net", channels), (channels, side, side), {"padding": padding}
    )
    counted = [
        128 * 64 * 9 + 64 + 2 * 64,  # both halves of the pair, biases, batch norm
        64 * 64 * 9 + 64 + 2 * 64,
        64 * positions * 8 + 8,
        8 + 1,
    ]
    assert sum(p.numel() for p in learner.parameters()) == sum(counted) == total


def batch_model() -> FewShotModel:
    torch.manual_seed(0)
    options = {"channels": 4, "statistics": "batch", "start": "original"}
    model = FewShotModel(*build_learner("relation", RelationEmbedding(1, width=4), (1, 28, 28), options))
    nn.init.normal_(model.learner.compare[-1].weight)  # answers that differ by more than the original's 0.01
    return model.eval()


def characters(queries: int = 6) -> Episode:
    support = LabelledSet(torch.rand(4, 1, 28, 28), torch.eye(2).repeat(2, 1))
    return Episode(support, LabelledSet(torch.rand(queries, 1, 28, 28), torch.eye(2).repeat(3, 1)), torch.arange(2))


def test_batch_statistics_are_declared_and_the_leak_guard_lets_them_pass():
    model, episode = batch_model(), characters()
    assert model.learner.limits.transductive
    assert not RelationNet((4, 5, 5)).limits.transductive
    check_model(model, episode)
    assert isinstance(model.embedding, nn.Identity)


def test_batch_statistics_do_not_change_when_all_queries_come_twice_but_do_when_some_are_missing():
    model, episode = batch_model(), characters()
    predict = model.adapt(episode.support)
    once = predict(episode.query.inputs)
    twice = predict(episode.query.inputs.repeat(2, 1, 1, 1))
    # the same moments from sums of another length, in double precision
    torch.testing.assert_close(twice, once.repeat(2, 1), rtol=1e-9, atol=1e-11)
    gap = (predict(episode.query.inputs[:2]) - once[:2]).abs().max()
    assert gap > 0.01 * (once.max() - once.min())


def test_support_and_queries_are_normalised_apart_so_that_the_contrast_of_all_queries_does_not_matter():
    model, episode = batch_model(), characters()
    predict = model.adapt(episode.support)
    logits = predict(episode.query.inputs)
    # batch norm's eps of 1e-5 beside variances of about 0.01 and more
    torch.testing.assert_close(predict(3 * episode.query.inputs), logits, rtol=1e-2, atol=1e-3)


def test_the_original_s_start_draws_small_linear_weights_with_biases_of_one():
    torch.manual_seed(0)
    learner = RelationNet((64, 19, 19), padding=0, start="original")
    first, last = learner.compare[8], learner.compare[10]
    assert torch.equal(first.bias, torch.ones(8))
    assert torch.equal(last.bias, torch.ones(1))
    # 4,608 weights: one standard error of the deviation is 1%
    assert first.weight.std().item() == pytest.approx(0.01, rel=0.05)
    # both halves of the first convolution have the fan-out 9 * 64; 36,864 weights each
    for half in (learner.of_class, learner.of_query):
        assert half.weight.std().item() == pytest.approx((2 / 576) ** 0.5, rel=0.02)


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
    with pytest.raises(InvalidOptionError, match=r"\(72,\).*feature_maps"):
        build_learner("relation", flat, (1, 8, 8), {})


def test_maps_that_are_too_small_or_of_another_shape_are_refused():
    with pytest.raises(ShapeError, match="3x3"):
        RelationNet((8, 3, 3))
    with pytest.raises(ShapeError, match=r"\(8, 4, 4\).*\(8, 5, 5\)"):
        RelationNet((8, 4, 4)).fit(torch.zeros(2, 8, 5, 5), torch.eye(2))
    with pytest.raises(ShapeError, match=r"10x10 .*6x6.*padding 1"):
        RelationNet((8, 6, 6), padding=0)
    with pytest.raises(ShapeError, match=r"\(8, 4, 4\).*\(3, 4, 4\)"):
        RelationNet((8, 4, 4), statistics="batch").fit(torch.zeros(2, 3, 4, 4), torch.eye(2))
    for options in ({"channels": 0}, {"padding": 2}, {"statistics": "support"}, {"start": "zeros"}):
        with pytest.raises(InvalidOptionError):
            RelationNet((8, 4, 4), **options)
