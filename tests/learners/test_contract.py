"""What every learner must satisfy, whatever its method: one battery over all registered learners."""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from torch import Tensor

from handful.episodes import Episode, LabelledSet
from handful.errors import NotFiniteError, ShapeError
from handful.learners import R2D2
from handful.learners.registry import LEARNERS
from tests.learners.cases import CASES, WAY, Case, episode

# Models and inputs are in double precision: what remains is the order of sums in differently batched products, after
# at most a few dozen layers or inner steps.
CLOSE = {"rtol": 1e-8, "atol": 1e-9}

every_learner = pytest.mark.parametrize("case", CASES, ids=str)

BEFORE_NORM = "batch norm takes away what a bias adds before it"
SHIFT = "softmax ignores a number that is added to all of its inputs"
FLAT = [
    ("", r"(embedding|embedding\.embedding|learner\.network|learner\.network\.body\.0)\.0\.bias", BEFORE_NORM),
    ("r2d2", r"learner\.bias", SHIFT),
    ("lrd2", r"learner\.bias", SHIFT),
    ("svm", r"learner\.log_C", "no support example is at the bound C, so the solution does not depend on it"),
    ("relation", r"learner\.(of_class|compare\.3)\.bias", BEFORE_NORM),
    ("gnn", r"embedding\.project\.bias", BEFORE_NORM),
    ("gnn", r"learner\.(updates\.\d\.layers\.0|.*similarity\.layers\.(0|3|4|6|7|9|10))\.bias", BEFORE_NORM),
    ("gnn", r"learner\..*similarity\.layers\.1[23]\.bias", SHIFT),
    ("gnn-form=omniglot", r"(learner\.classify|embedding\.normalise)\.bias", BEFORE_NORM),
    ("snail", r"embedding\.project\.bias", BEFORE_NORM),
    ("snail-first_dilation=2", r"learner\.blocks\.[13]\.before\.2\.weight", "8 steps back is before the first example"),
]
"""Parameters whose gradient is zero: words of the case, joined by hyphens, the parameter's name, and the reason."""


def test_every_registered_learner_is_in_the_battery():
    assert {case.name for case in CASES} == set(LEARNERS)


@every_learner
def test_logits_have_one_row_a_query_and_one_column_a_class(case: Case):
    logits = case.model()(episode(0, query=4))
    assert logits.shape == (WAY * 4, WAY)
    assert torch.isfinite(logits).all()


@every_learner
def test_every_parameter_gets_a_gradient_from_the_training_loss(case: Case):
    model = case.model().train()
    batch = model.learner.pose(episode(0, lead=(2,)))
    model.learner.objective(model(batch), batch.query.targets).backward()
    slopes = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert [name for name, slope in slopes.items() if slope is None or not torch.isfinite(slope).all()] == []
    # rounding leaves about 1e-14 of a gradient that is zero in exact arithmetic; the smallest true ones are near 1e-4
    zero = [name for name, slope in slopes.items() if slope is not None and slope.abs().max() < 1e-10]
    assert [name for name in zero if not any(re.fullmatch(pattern, name) for pattern in _flat(case))] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.closed_form], ids=str)
def test_gradients_of_closed_forms_equal_finite_differences(case: Case):
    learner = case.model().learner
    generator = torch.Generator().manual_seed(0)
    support, query = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (6, 2))
    targets = torch.eye(WAY, dtype=torch.float64).repeat(2, 1)
    inputs = (support.requires_grad_(), query.requires_grad_())
    # a solution that is differentiated at the optimum carries what is left of the way there
    assert torch.autograd.gradcheck(lambda s, q: learner.fit(s, targets)(q), inputs, atol=1e-5, rtol=1e-3)


@every_learner
def test_fitting_and_predicting_leave_the_state_alone(case: Case):
    model, one = case.model(), episode(0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.adapt(one.support)(one.query.inputs)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(p.grad is None for p in model.parameters())


@every_learner
def test_the_model_on_an_episode_equals_adapting_then_predicting(case: Case):
    model, one = case.model(), episode(0)
    torch.testing.assert_close(model.adapt(one.support)(one.query.inputs), model(one), **CLOSE)


@every_learner
def test_predictions_are_the_same_without_gradients(case: Case):
    model, one = case.model(), episode(0)
    with torch.no_grad():
        quiet = model(one)
    assert not quiet.requires_grad
    torch.testing.assert_close(quiet, model(one).detach(), **CLOSE)


@every_learner
def test_two_predictors_do_not_disturb_each_other(case: Case):
    model, first, second = case.model(), episode(0), episode(1)
    predict = model.adapt(first.support)
    alone = predict(first.query.inputs)
    other = model.adapt(second.support)
    other(second.query.inputs)
    assert torch.equal(predict(first.query.inputs), alone)


@every_learner
def test_one_query_at_a_time_equals_all_at_once_unless_declared_transductive(case: Case):
    model, one = case.model(), episode(0)
    predict = model.adapt(one.support)
    together = predict(one.query.inputs)
    singly = torch.cat([predict(query[None]) for query in one.query.inputs])
    assert torch.allclose(singly, together, **CLOSE) != model.learner.limits.transductive


@every_learner
def test_the_order_of_the_support_does_not_matter_unless_declared(case: Case):
    model, one = case.model(), episode(0)
    order = torch.randperm(len(one.support.targets), generator=torch.Generator().manual_seed(3))
    support = LabelledSet(one.support.inputs[order], one.support.targets[order])
    shuffled = model(dataclasses.replace(one, support=support))
    assert torch.allclose(shuffled, model(one), **CLOSE) != model.learner.limits.order_dependent


@every_learner
def test_relabelling_the_classes_permutes_the_logits_unless_the_way_is_fixed(case: Case):
    model, one = case.model(), episode(0)
    order = torch.tensor([2, 0, 1])
    support = LabelledSet(one.support.inputs, one.support.targets[:, order])
    relabelled = model(dataclasses.replace(one, support=support))
    # a learner of fixed way has trained outputs of its own for each class
    assert torch.allclose(relabelled, model(one)[:, order], **CLOSE) == (model.learner.limits.way is None)


@every_learner
def test_a_batch_of_episodes_equals_a_loop_over_them(case: Case):
    model, batch = case.model(), episode(0, lead=(2, 3))
    looped = torch.stack([torch.stack([model(_pick(batch, i, j)) for j in range(3)]) for i in range(2)])
    torch.testing.assert_close(model(batch), looped, **CLOSE)


@every_learner
def test_classes_may_have_different_numbers_of_examples(case: Case):
    model, one = case.model(), episode(0, shot=2)
    support = LabelledSet(one.support.inputs[1:], one.support.targets[1:])
    assert torch.isfinite(model(dataclasses.replace(one, support=support))).all()


@every_learner
def test_another_way_works_or_is_refused_with_both_numbers(case: Case):
    model, one = case.model(), episode(0, way=WAY + 1)
    if model.learner.limits.way is None:
        assert model(one).shape[-1] == WAY + 1
        return
    with pytest.raises(ShapeError, match=rf"{WAY} classes.*{WAY + 1}"):
        model(one)


@every_learner
def test_an_empty_class_is_refused_by_its_number(case: Case):
    model, one = case.model(), episode(0, shot=2)
    support = LabelledSet(one.support.inputs[:-2], one.support.targets[:-2])
    with pytest.raises(ShapeError, match=r"Class 2 .*support"):
        model(dataclasses.replace(one, support=support))


@every_learner
def test_one_class_only_is_refused(case: Case):
    with pytest.raises(ShapeError, match="two classes"):
        case.model()(episode(0, way=1))


@every_learner
def test_features_that_are_not_numbers_are_refused_with_their_count(case: Case):
    model, one = case.model(), episode(0)
    inputs = one.support.inputs.clone()
    inputs[1] = torch.nan
    with pytest.raises(NotFiniteError, match="1 of the 6 support"):
        model(dataclasses.replace(one, support=LabelledSet(inputs, one.support.targets)))


@every_learner
def test_a_query_that_is_no_number_is_refused_and_not_answered(case: Case):
    problem = episode(0, query=2)
    predict = case.model().adapt(problem.support)
    inputs = problem.query.inputs.clone()
    inputs[1] = torch.nan
    with pytest.raises(NotFiniteError, match=r"of 6 queries .*NaN"):
        predict(inputs)


@every_learner
def test_targets_that_do_not_belong_to_the_support_are_refused(case: Case):
    model, one = case.model(), episode(0)
    features = model.embed(one.support.inputs)
    with pytest.raises(ShapeError, match=r"\(5, 3\)"):
        model.learner.fit(features, one.support.targets[1:])


@every_learner
def test_a_learner_says_what_it_is_on_one_line_with_its_options(case: Case):
    said = repr(case.model().learner)
    assert "\n" not in said
    assert all(f"{key}={value!r}" in said for key, value in case.options.items() if key in {"way", "steps", "gradient"})


def test_a_learner_shows_what_it_has_learnt():
    learner = R2D2(lam=2.0, prior="diagonal", features=2)
    with torch.no_grad():
        learner.log_lam += torch.tensor([0.0, 1.0])
    assert repr(learner).startswith("R2D2(lam=[2..5.437], scale=10, bias=0")


def _flat(case: Case) -> list[str]:
    """The names of the parameters, as patterns, that may have no gradient in this case."""
    return [name for words, name, _ in FLAT if all(word in str(case).split("-") for word in words.split("-") if word)]


def _pick(batch: Episode, i: int, j: int) -> Episode:
    def each(part: LabelledSet) -> LabelledSet:
        return LabelledSet(part.inputs[i, j], part.targets[i, j])

    classes: Tensor = batch.classes[i, j]
    return Episode(each(batch.support), each(batch.query), classes)
