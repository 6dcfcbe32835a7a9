"""The pre-trained baseline: a classifier of the training classes that becomes ridge regression at test."""

import pytest
import torch
from torch import nn

from handful import FewShotModel
from handful.episodes import Episode, LabelledSet
from handful.errors import InvalidOptionError, ShapeError
from handful.learners import R2D2, Transfer
from handful.learners.registry import build_learner


def episode() -> Episode:
    inputs = torch.arange(12.0).reshape(2, 6, 1)
    targets = torch.eye(2).repeat(1, 1)
    support = LabelledSet(inputs[:, :2], targets.expand(2, 2, 2))
    query = LabelledSet(inputs[:, 2:], targets.repeat(2, 1).expand(2, 4, 2))
    return Episode(support, query, torch.tensor([[3, 1], [0, 4]]))


def test_training_poses_all_images_as_queries_of_the_split_s_classes():
    posed = Transfer(1, 5).pose(episode())
    assert posed.support.inputs.shape == (2, 0, 1)
    assert torch.equal(posed.query.inputs, torch.arange(12.0).reshape(2, 6, 1))
    assert posed.query.targets.argmax(-1).tolist() == [[3, 1, 3, 1, 3, 1], [0, 4, 0, 4, 0, 4]]
    assert posed.query.targets.shape == (2, 6, 5)


def test_in_training_the_model_is_the_plain_classifier_of_features_normalised_over_the_batch():
    embedding = nn.Linear(1, 3)
    model = FewShotModel(embedding, Transfer(3, 5)).train()
    posed = model.learner.pose(episode())
    features = embedding(posed.query.inputs)
    var, mean = torch.var_mean(features, dim=(0, 1), correction=0)
    expected = model.learner.classify((features - mean) / (var + 1e-5).sqrt())
    torch.testing.assert_close(model(posed), expected)


def test_without_normalisation_the_training_model_is_one_fully_connected_layer_on_the_features():
    embedding = nn.Linear(1, 3)
    model = FewShotModel(embedding, Transfer(3, 5, normalise=False)).train()
    posed = model.learner.pose(episode())
    head = model.learner.classify
    expected = embedding(posed.query.inputs) @ head.weight.T + head.bias
    # the same products in another order, in the precision of the weights
    torch.testing.assert_close(model(posed), expected)
    assert sum(p.numel() for p in model.learner.parameters() if p.requires_grad) == 3 * 5 + 5


@pytest.mark.parametrize("literal", [{}, {"lam_per_example": False, "intercept": False}])
def test_in_evaluation_it_is_ridge_regression_on_the_features(literal):
    learner = Transfer(4, 5, lam=0.7, **literal).eval()
    support, targets, query = torch.randn(6, 4), torch.eye(3).repeat(2, 1), torch.randn(5, 4)
    expected = R2D2(0.7, **literal).fit(support, targets)(query)
    torch.testing.assert_close(learner.fit(support, targets)(query), expected.detach())
    assert learner.kernel is learner.ridge


def test_a_class_beyond_the_planned_ones_is_refused():
    with pytest.raises(ShapeError, match=r"number 4 .*classes is 4"):
        Transfer(1, 4).pose(episode())


def test_the_number_of_training_classes_must_be_given_and_sensible():
    with pytest.raises(InvalidOptionError, match=r"transfer .*'classes'"):
        build_learner("transfer", nn.Flatten(), (1, 4, 4), {})
    with pytest.raises(InvalidOptionError, match=r"2, .*1\."):
        build_learner("transfer", nn.Flatten(), (1, 4, 4), {"classes": 1})
