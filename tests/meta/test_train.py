"""Training lowers the loss, resumes to the same bits, stops in time, and refuses to go on from NaN."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from handful.data.table import Benchmark
from handful.embeddings import conv4
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.errors import (
    CheckpointError,
    DivergedError,
    InvalidOptionError,
    NotFiniteError,
    NotPositiveDefiniteError,
    ShapeError,
)
from handful.learners import R2D2, Predictor, ProtoNet
from handful.meta.config import Plan, Recipe
from handful.meta.engine import Engine
from handful.meta.evaluate import evaluate
from handful.meta.model import FewShotModel
from handful.meta.run import Run, read_recipe, validation_queries
from handful.meta.state import TrainingState
from handful.meta.train import seeded, train
from tests.meta.engines import model_of


def fresh(dropout: float = 0.0) -> FewShotModel:
    with seeded(0):
        return FewShotModel(conv4("32C", 1, dropout=dropout), R2D2())


def sampler(tiny: Benchmark, hold: int = 1) -> EpisodeSampler:
    return EpisodeSampler(tiny.train, RandomShots(6, 8, 1, 4, hold), seed=0)


@pytest.mark.slow
def test_training_raises_the_accuracy_on_unseen_classes(tiny: Benchmark) -> None:
    model = fresh()
    before = evaluate(model, EpisodeSampler(tiny.test, FixedShots(5, 1, 10)), 300)
    steps = list(train(model, sampler(tiny), Plan(episodes=60, validate_every=0)))
    after = evaluate(model, EpisodeSampler(tiny.test, FixedShots(5, 1, 10)), 300)
    assert after.mean - after.ci95 > before.mean + before.ci95
    assert steps[-1].episode == 60
    assert sum(step.loss for step in steps[-10:]) < sum(step.loss for step in steps[:10])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_resumed_run_ends_in_the_same_bits(tiny: Benchmark, dropout: float) -> None:
    plan = Plan(episodes=12, schedule="cosine", validate_every=0, weight_decay=1e-3)
    whole = fresh(dropout)
    list(train(whole, sampler(tiny), plan))
    first = fresh(dropout)
    state = TrainingState(first, plan)
    steps = train(first, sampler(tiny), state=state)
    for _ in range(5):
        next(steps)
    tensors, facts = {k: v.clone() for k, v in state.tensors().items()}, state.facts()
    torch.rand(7)  # a disturbed global random state must not matter
    second = TrainingState(fresh(dropout), plan)
    second.restore(tensors, facts)
    list(train(second.model, sampler(tiny), state=second))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name


@pytest.mark.slow
def test_a_run_with_a_second_loss_resumes_to_the_same_bits_and_keeps_its_classifier_out_of_the_model(
    tiny: Benchmark, tmp_path: Path
) -> None:
    plan = Plan(episodes=8, classify=0.5, average="exponential", validate_every=4)
    recipe = Recipe(width="32C", way=5, images_per_class=6, max_shot=3, plan=plan, val_query=5, val_episodes=10)
    whole = Run(tmp_path / "whole", recipe, tiny)
    whole.start()
    list(whole.train())
    first = Run(tmp_path / "parts", recipe, tiny)
    first.start()
    steps = first.train()
    for _ in range(3):
        next(steps)
    steps.close()
    second = Run(tmp_path / "parts", recipe, tiny)
    second.resume()
    list(second.train())
    for name, value in whole.state.tensors().items():
        assert torch.equal(value, second.state.tensors()[name]), name
    assert whole.state.classifier is not None
    assert whole.best().state_dict().keys() == fresh().state_dict().keys()


@pytest.mark.parametrize("stop", [None, 3])
def test_averaged_weights_are_kept_without_any_validation(tiny: Benchmark, tmp_path: Path, stop: int | None) -> None:
    plan = Plan(episodes=4, average="uniform", validate_every=0)
    recipe = Recipe(width="32C", way=5, images_per_class=6, max_shot=3, plan=plan)
    run = Run(tmp_path, recipe, tiny)
    run.start()
    steps = run.train()
    for _ in range(stop or 4):
        next(steps)
    steps.close()
    kept, last = run.best().state_dict(), run.best("last").state_dict()
    assert run.state.average is not None
    for name, value in run.state.average.values.items():
        assert torch.equal(kept[name], value), name
    assert any(not torch.equal(kept[name], last[name]) for name in run.state.average.values)


def test_a_run_that_failed_before_its_first_update_can_be_started_again(tiny: Benchmark, tmp_path: Path) -> None:
    plan = Plan(episodes=2, validate_every=0)
    recipe = Recipe(width="32C", way=5, images_per_class=6, max_shot=3, plan=plan)
    Run(tmp_path, recipe, tiny).start()
    run = Run(tmp_path, replace(recipe, way=4), tiny)
    run.start()
    assert read_recipe(tmp_path).way == 4
    next(run.train())
    with pytest.raises(InvalidOptionError, match="--resume"):
        run.start()


def test_turned_and_mixed_episodes_train_and_turns_are_classes_of_the_second_loss(
    tiny: Benchmark, tmp_path: Path
) -> None:
    plan = Plan(episodes=3, classify=0.5, validate_every=0)
    recipe = Recipe(width="32C", way=5, images_per_class=6, max_shot=3, turned=1.0, mixed=1.0, plan=plan)
    run = Run(tmp_path, recipe, tiny)
    run.start()
    assert all(0 < progress.loss < 20 for progress in run.train())
    assert run.state.tensors()["classifier.weight"].shape[0] == 4 * len(tiny.train)
    assert int(run.episodes.batch(0, 1).classes.max()) >= len(tiny.train)


def test_the_second_loss_is_the_cross_entropy_of_all_images_among_all_training_classes(tiny: Benchmark) -> None:
    with seeded(1):
        classifier = nn.Linear(256, len(tiny.train))
    plans = [Plan(episodes=1, classify=weight, validate_every=0) for weight in (0.0, 0.25)]
    alone, both = (
        next(
            train((state := TrainingState(fresh(), plan, deepcopy(classifier))).model, sampler(tiny), state=state)
        ).loss
        for plan in plans
    )
    model, every = fresh().train(), sampler(tiny)[0].over_classes(len(tiny.train)).query
    expected = nn.functional.cross_entropy(classifier(model.embed(every.inputs)), every.targets.argmax(-1))
    assert both - alone == pytest.approx(0.25 * float(expected.detach()), rel=1e-4)  # float32 sums of other order


def test_a_second_loss_without_a_classifier_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"classify = 0\.5"):
        TrainingState(fresh(), Plan(classify=0.5))


def test_a_classifier_with_too_few_classes_is_refused(tiny: Benchmark) -> None:
    state = TrainingState(fresh(), Plan(classify=0.5, validate_every=0), nn.Linear(256, 2))
    with pytest.raises(ShapeError, match=r"class number \d+ of its split, but the number of classes is 2\."):
        next(train(state.model, sampler(tiny), state=state))


def test_training_leaves_the_callers_random_state_alone(tiny: Benchmark) -> None:
    before = torch.get_rng_state()
    list(train(fresh(0.3), sampler(tiny), Plan(episodes=2, validate_every=0)))
    assert torch.equal(torch.get_rng_state(), before)


def gradients_of_first_update(tiny: Benchmark, plan: Plan) -> list[torch.Tensor]:
    """What the first update of a run leaves in `grad`, which is what its optimiser was given."""
    model = fresh()
    next(train(model, sampler(tiny, hold=plan.episodes_per_step), plan))
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def test_several_episodes_a_step_average_their_gradients(tiny: Benchmark) -> None:
    linear = torch.nn.Linear(28 * 28, 5)  # no batch norm, so that an episode's features do not depend on the others

    def model() -> FewShotModel:
        return FewShotModel(torch.nn.Sequential(torch.nn.Flatten(), deepcopy(linear)), ProtoNet(learn_scale=True))

    trained = model()
    next(train(trained, sampler(tiny, hold=4), Plan(episodes=4, episodes_per_step=4, validate_every=0)))
    found = [parameter.grad for parameter in trained.parameters()]
    episodes, singly = sampler(tiny, hold=4), []
    for index in range(4):
        single, episode = model().train(), episodes[index]
        loss = single.learner.objective(single(episode), episode.query.targets)
        singly.append(torch.autograd.grad(loss, list(single.parameters())))
    for each, apart in zip(found, zip(*singly, strict=True), strict=True):
        assert each is not None
        # float32 sums of another order
        torch.testing.assert_close(each, torch.stack(apart).mean(0), rtol=1e-4, atol=1e-6)
        assert not torch.allclose(each, torch.stack(apart).sum(0), rtol=1e-1)


def test_clipping_by_value_limits_each_entry_of_the_gradient(tiny: Benchmark) -> None:
    whole = gradients_of_first_update(tiny, Plan(episodes=1, validate_every=0))
    largest = float(torch.cat([each.flatten() for each in whole]).abs().max())
    limit = largest / 10
    cut = gradients_of_first_update(tiny, Plan(episodes=1, validate_every=0, clip_value=limit))
    for before, after in zip(whole, cut, strict=True):
        assert torch.equal(after, before.clamp(-limit, limit))


def test_patience_ends_a_run_whose_scores_stall(tiny: Benchmark) -> None:
    scores = iter([0.5, 0.6, 0.55, 0.56, 0.58, 0.9])
    plan = Plan(episodes=100, validate_every=2, patience=4)
    steps = list(train(fresh(), sampler(tiny), plan, validate=lambda model: {"1-shot": next(scores)}))
    assert steps[-1].episode == 10  # the first validation more than four episodes after the best
    assert [step.improved for step in steps if step.scores] == [("1-shot", "mean"), ("1-shot", "mean"), (), (), ()]


def test_a_tie_counts_as_the_best_and_the_mean_does_not_count_for_patience(tiny: Benchmark) -> None:
    state = TrainingState(fresh(), Plan(validate_every=2, patience=4))
    state.episode = 2
    assert state.note({"1-shot": 0.5, "5-shot": 0.75}) == ("1-shot", "5-shot", "mean")
    state.episode = 4
    assert state.note({"1-shot": 0.5, "5-shot": 0.5}) == ("1-shot",)
    assert state.last_improvement == 4
    state.best["mean"] = 0.4
    state.episode = 6
    assert state.note({"1-shot": 0.4, "5-shot": 0.7}) == ("mean",)
    assert state.last_improvement == 4


def test_validation_fills_the_images_of_a_training_episode_and_can_draw_new_episodes(
    tiny: Benchmark, tmp_path: Path
) -> None:
    recipe = Recipe(width="32C", way=6, images_per_class=8, max_shot=3, val_ways=(2, 4), val_query=0, val_episodes=10)
    assert [validation_queries(recipe, way, 1, 20) for way in (2, 4)] == [19, 11]  # 48 / 2 - 1 is cut to 20 images
    run = Run(tmp_path, recipe, tiny)
    first = run.validate(run.model)
    assert list(first) == ["1-shot", "5-shot", "4-way-1-shot", "4-way-5-shot"]
    assert run.validate(run.model) == first
    fresh_run = Run(tmp_path, replace(recipe, val_fresh=True), tiny)
    again = fresh_run.validate(fresh_run.model)
    assert fresh_run.validate(fresh_run.model) == again != first
    fresh_run.state.episode = 100
    assert fresh_run.validate(fresh_run.model) != again


def test_without_validation_patience_does_not_count(tiny: Benchmark) -> None:
    assert list(train(fresh(), sampler(tiny), Plan(episodes=3, patience=1)))[-1].episode == 3


def test_schedules_follow_their_formulas() -> None:
    step = Plan(rate=8.0, decay=0.5, decay_every=10)
    assert [step.rate_at(e) for e in (0, 9, 10, 25)] == [8.0, 8.0, 4.0, 2.0]
    cosine = Plan(rate=1.0, schedule="cosine", episodes=100)
    assert [round(cosine.rate_at(e), 6) for e in (0, 50, 100)] == [1.0, 0.5, 0.0]
    assert Plan(rate=0.3, schedule="constant").rate_at(10**6) == 0.3


def test_a_loss_that_is_not_finite_stops_before_the_weights_change(
    tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fresh()
    monkeypatch.setattr(type(model.learner), "objective", lambda self, logits, targets: logits.sum() * math.nan)
    before = {name: value.clone() for name, value in model.named_parameters()}
    with pytest.raises(DivergedError, match=r"nan at episode 0 .*0\.005"):
        list(train(model, sampler(tiny), Plan(episodes=3)))
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())


@pytest.mark.parametrize("kind", [NotFiniteError, NotPositiveDefiniteError])
def test_a_validation_that_cannot_be_computed_means_that_training_diverged(
    tiny: Benchmark, kind: type[Exception]
) -> None:
    def validate(model: FewShotModel) -> dict[str, float]:
        raise kind("The logits of 3 of 5 queries are NaN or infinite. Check the images.")

    said = r"^Validation failed: The logits of 3 of 5 queries are NaN or infinite at episode 1 with learning rate"
    with pytest.raises(DivergedError, match=said):
        next(train(fresh(), sampler(tiny), Plan(episodes=1, validate_every=1), validate=validate))


def test_a_state_of_another_model_is_refused(tiny: Benchmark) -> None:
    state = TrainingState(fresh(), Plan())
    other = TrainingState(FewShotModel(conv4("64C", 1), R2D2()), Plan())
    with pytest.raises(CheckpointError, match=r"\(32, 1, 3, 3\).*\(64, 1, 3, 3\)"):
        other.restore(state.tensors(), state.facts())


def test_half_precision_is_for_the_embedding_alone(tiny: Benchmark) -> None:
    seen = []

    class Watched(ProtoNet):
        def fit(self, support: torch.Tensor, targets: torch.Tensor) -> Predictor:
            seen.append((support.dtype, torch.is_autocast_enabled("cpu")))
            return super().fit(support, targets)

    model = model_of(Watched())
    kinds = []
    model.embedding.register_forward_hook(lambda module, inputs, output: kinds.append(output.dtype))
    sampler = EpisodeSampler(tiny.train, FixedShots(3, 1, 2))
    next(train(model, sampler, Plan(episodes=1, validate_every=0), engine=Engine(precision="bf16")))
    assert seen == [(torch.float32, False)]
    assert kinds == [torch.bfloat16]


def test_episodes_drawn_ahead_and_losses_read_seldom_change_no_bit(tiny: Benchmark) -> None:
    plan, ends = Plan(episodes=12, episodes_per_step=2, validate_every=0), []
    for engine in (Engine(), Engine(prefetch=2, read_every=4)):
        model, sampler = model_of(ProtoNet()), EpisodeSampler(tiny.train, FixedShots(3, 1, 2))
        steps = list(train(model, sampler, plan, engine=engine))
        ends.append((model.state_dict(), [step.episode for step in steps], steps))
    for name, value in ends[0][0].items():
        assert torch.equal(value, ends[1][0][name]), name
    assert [each[1] for each in ends] == [[2, 4, 6, 8, 10, 12], [8, 12]]
    assert ends[1][2][0].loss == pytest.approx(sum(step.loss for step in ends[0][2][:4]) / 4)
