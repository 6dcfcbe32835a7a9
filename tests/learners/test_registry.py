"""Learners by name: what the registry says of their options is what it builds."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from handful.errors import InvalidOptionError
from handful.learners import BaseLearner, Predictor
from handful.learners.registry import LEARNERS, build_learner, check_options, default_options, feature_shape


@pytest.mark.parametrize("name", ["gnn", "snail"])
def test_the_size_of_a_reduced_embedding_is_among_the_default_options(name: str) -> None:
    size = default_options(name)["size"]
    embedding, _ = build_learner(name, nn.Flatten(), (1, 4, 4), {})
    assert embedding.get_submodule("project").out_features == size


def test_only_learners_that_reduce_the_embedding_take_a_size() -> None:
    assert {name for name in LEARNERS if "size" in default_options(name)} == {"gnn", "snail"}
    with pytest.raises(InvalidOptionError, match="size"):
        build_learner("protonet", nn.Flatten(), (1, 4, 4), {"size": 8})


def test_an_unknown_learner_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidOptionError, match="'nobody'"):
        build_learner("nobody", nn.Flatten(), (1, 4, 4), {})


class Constant(BaseLearner):
    """The smallest learner there can be: no option, no parameter."""

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        return lambda query: query.new_zeros(*query.shape[:-1], targets.shape[-1])


def test_a_learner_without_a_constructor_of_its_own_has_no_options() -> None:
    check_options("constant", Constant, {})
    with pytest.raises(InvalidOptionError, match="'lam'"):
        check_options("constant", Constant, {"lam": 1.0})
    assert repr(Constant()) == "Constant(0 learnt)"


def test_measuring_an_embedding_leaves_frozen_parts_frozen() -> None:
    frozen = nn.BatchNorm2d(3).eval()
    embedding = nn.Sequential(frozen, nn.Dropout(), nn.Flatten())
    assert feature_shape(embedding, (3, 4, 4)) == (48,)
    assert [module.training for module in (embedding, *embedding)] == [True, False, True, True]
