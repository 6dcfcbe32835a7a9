"""The interface of all learners: declared limits, one-line reprs, positive parameters, and what a support set needs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from handful.errors import InvalidOptionError, NotFiniteError, ShapeError
from handful.learners import FRN, LRD2, R2D2, BaseLearner, MatchingNet, Predictor, ProtoNet, Transfer, with_lam
from handful.learners.base import GramPredictor, KernelLearner, Limits, check_support, cross_entropy, log_parameter
from handful.solvers import unchecked


class MeanProduct(KernelLearner):
    """Logit of a class: the sum of inner products with its examples. Its features are doubled."""

    def fit_gram(self, gram: Tensor, targets: Tensor) -> GramPredictor:
        return lambda products, norms: products @ targets + norms.unsqueeze(-1)

    def feature_map(self, embeddings: Tensor) -> Tensor:
        return 2 * embeddings


class Constant(BaseLearner):
    """The smallest learner there can be: no option, no parameter."""

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        return lambda query: query.new_zeros(*query.shape[:-1], targets.shape[-1])


def test_limits_are_told_in_words() -> None:
    assert Limits().describe() == "inductive"
    told = Limits(way=5, order_dependent=True, transductive=True).describe()
    assert told.startswith("transductive, 5-way only, ")
    with pytest.raises(InvalidOptionError, match="way = 1"):
        Limits(way=1)


def test_a_learner_needs_more_than_inner_products_unless_it_says_so() -> None:
    assert Constant().kernel is None
    learner = MeanProduct()
    assert learner.kernel is learner


def test_a_repr_is_one_line_with_the_present_values_of_options() -> None:
    assert repr(Constant()) == "Constant(0 learnt)"
    learner = R2D2(lam=3.0, learn_lam=True)
    assert "lam=3," in repr(learner)
    with torch.no_grad():
        learner.log_lam.fill_(math.log(7.0))
    assert "lam=7," in repr(learner)
    assert "\n" not in repr(learner)


def test_a_kernel_learner_gets_inner_products_and_squared_norms_of_the_mapped_features() -> None:
    support, query = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 1.0]])
    logits = MeanProduct().fit(support, torch.eye(2))(query)
    # products 4 * (3, 2), squared norm 4 * 10
    torch.testing.assert_close(logits, torch.tensor([[52.0, 48.0]]))


def test_a_positive_number_is_kept_as_its_logarithm() -> None:
    kept, learnt = log_parameter("lam", 50.0, learn=False), log_parameter("lam", 50.0, learn=True, shape=(3,))
    assert not kept.requires_grad
    assert learnt.requires_grad
    torch.testing.assert_close(learnt.exp(), torch.full((3,), 50.0))
    for value in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InvalidOptionError, match=f"lam = {value}"):
            log_parameter("lam", value, learn=True)


def test_the_loss_is_the_mean_over_all_queries_of_all_episodes() -> None:
    logits = torch.tensor([[[0.0, 0.0]], [[0.0, math.log(3)]]])
    targets = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    expected = -(math.log(1 / 2) + math.log(3 / 4)) / 2
    assert cross_entropy(logits, targets).item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("support", "targets", "way", "fact"),
    [
        ((6, 4), (5, 3), None, r"\(6, 4\) and \(5, 3\)"),
        ((2, 3, 4), (3, 3), None, r"\(2, 3, 4\) and \(3, 3\)"),
        ((3,), (3, 3), None, r"\(3,\) and \(3, 3\)"),
        ((3, 4), (3, 1), None, "two classes"),
        ((3, 4), (3, 3), 5, "5 classes.* 3"),
    ],
)
def test_shapes_that_do_not_belong_together_are_refused(
    support: tuple[int, ...], targets: tuple[int, ...], way: int | None, fact: str
) -> None:
    with pytest.raises(ShapeError, match=fact):
        check_support(torch.zeros(support), torch.ones(targets), way)


def test_values_that_cannot_be_learnt_from_are_refused_while_values_are_looked_at() -> None:
    support, targets = torch.zeros(2, 3, 4), torch.eye(3).repeat(2, 1, 1)
    check_support(support, targets, way=3)
    empty = targets.clone()
    empty[1, 2] = torch.tensor([1.0, 0.0, 0.0])
    with pytest.raises(ShapeError, match="Class 2 "):
        check_support(support, empty)
    support[1, 0, 3] = math.nan
    with pytest.raises(NotFiniteError, match="1 of the 6 "):
        check_support(support, targets)
    with unchecked():
        check_support(support, empty)


@pytest.mark.parametrize("learner", [ProtoNet(), ProtoNet("cosine"), MatchingNet(), R2D2()], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_give_the_answers_of_the_same_values_in_float32(
    learner: BaseLearner, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(0)
    support, query = (5 * torch.rand(n, 8064, generator=draw).to(dtype) for n in (6, 4))  # squares sum to 67,000
    targets = torch.eye(3).repeat(2, 1)
    found = learner.fit(support, targets)(query)
    expected = learner.fit(support.float(), targets)(query.float())
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected)


def test_one_hot_targets_may_be_integers() -> None:
    logits, targets = torch.randn(4, 3), torch.eye(3, dtype=torch.int64)[[0, 1, 2, 0]]
    torch.testing.assert_close(cross_entropy(logits, targets), cross_entropy(logits, targets.float()))


@pytest.mark.parametrize(
    ("learner", "expected"),
    [
        (R2D2(lam=50.0), R2D2(lam=7.0, lam_per_example=False)),
        (LRD2(lam=50.0, lam_per_example=True), LRD2(lam=7.0)),
        (Transfer(8, 4), Transfer(8, 4, lam=7.0, lam_per_example=False)),
    ],
    ids=["r2d2", "lrd2", "transfer"],
)
def test_another_lambda_holds_for_any_number_of_examples(learner: BaseLearner, expected: BaseLearner) -> None:
    draw = torch.Generator().manual_seed(0)
    support, query = (torch.randn(n, 8, generator=draw) for n in (6, 4))
    targets = torch.eye(3).repeat(2, 1)
    before = learner.eval().fit(support, targets)(query)
    found = with_lam(learner, 7.0).fit(support, targets)(query)
    torch.testing.assert_close(found, expected.eval().fit(support, targets)(query))
    assert not torch.allclose(found, before)
    assert torch.equal(learner.fit(support, targets)(query), before)  # the learner itself is unchanged


@pytest.mark.parametrize("learner", [ProtoNet(), FRN((4, 2, 2)), R2D2(prior="diagonal", features=8)], ids=repr)
def test_learners_without_a_single_lambda_refuse_another_one(learner: BaseLearner) -> None:
    with pytest.raises(InvalidOptionError, match=f"{type(learner).__name__} has no single lambda"):
        with_lam(learner, 7.0)
