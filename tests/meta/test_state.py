"""Averaged weights are the averages they claim to be, have batch-norm statistics of their own, and survive a resume."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from torch import nn

from handful.data.table import Benchmark
from handful.embeddings import conv4
from handful.episodes import EpisodeSampler, RandomShots
from handful.errors import CheckpointError
from handful.learners import GNN, R2D2, reading
from handful.meta.config import Plan
from handful.meta.model import FewShotModel
from handful.meta.state import STATISTICS_EPISODES, WeightAverage, retake_statistics
from handful.meta.train import TrainingState, seeded, smoothed, train


def fresh(dropout: float = 0.2) -> FewShotModel:
    with seeded(0):
        return FewShotModel(conv4("32C", 1, dropout=dropout), R2D2())


def sampler(tiny: Benchmark) -> EpisodeSampler:
    return EpisodeSampler(tiny.train, RandomShots(6, 8, 1, 4), seed=0)


def test_the_uniform_average_is_the_mean() -> None:
    average = WeightAverage(Plan(average="uniform"))
    values = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for value in values:
        average.note({"w": value})
    torch.testing.assert_close(average.values["w"], values.mean(0))


def test_the_exponential_average_starts_with_a_short_memory_and_reaches_its_decay() -> None:
    average = WeightAverage(Plan(average="exponential", average_decay=0.9))
    average.note({"w": torch.tensor(4.0)})
    assert average.values["w"] == 4.0
    average.note({"w": torch.tensor(0.0)})
    torch.testing.assert_close(average.values["w"], torch.tensor(4 * 2 / 11))
    average.count = 1000
    assert math.isclose(average.weight, 0.1)


def test_statistics_are_those_of_the_training_episodes_without_dropout(tiny: Benchmark) -> None:
    model, episodes = fresh(), sampler(tiny)
    retake_statistics(model, episodes)
    conv, norm = model.embedding.blocks[0][0], model.embedding.blocks[0][1]  # type: ignore[union-attr, index]
    batches = [torch.cat([episodes[i].support.inputs, episodes[i].query.inputs]) for i in range(STATISTICS_EPISODES)]
    with torch.no_grad():
        means = torch.stack([conv(batch).mean((0, 2, 3)) for batch in batches])  # type: ignore[operator]
    # float32 means over 48 x 28 x 28 numbers, taken in another order
    torch.testing.assert_close(norm.running_mean, means.mean(0), atol=1e-5, rtol=1e-4)  # type: ignore[union-attr]
    assert norm.momentum == nn.BatchNorm2d(1).momentum  # type: ignore[union-attr]
    for same in (episodes, EpisodeSampler(episodes.dataset, episodes.shape, episodes.seed, turned=0.5, mixed=0.5)):
        again = fresh()
        retake_statistics(again, same)
        assert all(torch.equal(a, b) for a, b in zip(model.buffers(), again.buffers(), strict=True))


def test_statistics_of_a_learner_s_norms_are_those_of_whole_batches(
    tiny: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seeded(0):
        learner = GNN(4, 6, layers=1, growth=4, hidden=4)
        model = FewShotModel(nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 4)), learner)
    again = deepcopy(model)
    retake_statistics(model, sampler(tiny), count=2)
    monkeypatch.setattr(reading, "CHUNK_NUMBERS", 1)
    retake_statistics(again, sampler(tiny), count=2)
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), again.buffers(), strict=True))


def test_validation_sees_averaged_weights_and_training_goes_on_with_its_own(tiny: Benchmark) -> None:
    plan = Plan(episodes=6, validate_every=6, average="uniform", average_from=0.4)
    model, seen = fresh(), []
    state = TrainingState(model, plan)
    weights = []
    for _ in train(model, sampler(tiny), state=state, validate=lambda m: seen.append(m) or {"1-shot": 0.5}):
        weights.append(model.embedding.blocks[0][0].weight.detach().clone())  # type: ignore[union-attr, index]
    assert seen == [state.judged]
    assert state.judged is not model
    torch.testing.assert_close(
        state.judged.embedding.blocks[0][0].weight.detach(),  # type: ignore[union-attr, index]
        torch.stack(weights[2:]).mean(0),  # 0.4 of 6 episodes are over after the second
    )


@pytest.mark.slow
@pytest.mark.parametrize("average", ["exponential", "uniform"])
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_resumed_run_ends_in_the_same_bits_averages_included(tiny: Benchmark, average: str, optimiser: str) -> None:
    plan = Plan(
        episodes=8,
        optimiser=optimiser,  # type: ignore[arg-type]
        rate=1e-2,
        schedule="cosine",
        validate_every=0,
        weight_decay=5e-4,
        label_smoothing=0.1,
        average=average,  # type: ignore[arg-type]
        average_from=0.25,
    )
    whole = TrainingState(fresh(), plan)
    list(train(whole.model, sampler(tiny), state=whole))
    first = TrainingState(fresh(), plan)
    steps = train(first.model, sampler(tiny), state=first)
    for _ in range(5):
        next(steps)
    second = TrainingState(fresh(), plan)
    second.restore({name: value.clone() for name, value in first.tensors().items()}, first.facts())
    list(train(second.model, sampler(tiny), state=second))
    ends, goes = whole.tensors(), second.tensors()
    assert ends.keys() == goes.keys()
    assert any(name.startswith("average.") for name in ends)
    for name, value in ends.items():
        assert torch.equal(value, goes[name]), name
    judged, rejudged = whole.judge(sampler(tiny)).state_dict(), second.judge(sampler(tiny)).state_dict()
    assert all(torch.equal(value, rejudged[name]) for name, value in judged.items())


def test_a_state_without_the_average_that_the_plan_wants_is_refused() -> None:
    plain, averaged = TrainingState(fresh(), Plan()), TrainingState(fresh(), Plan(average="uniform"))
    with pytest.raises(CheckpointError, match="averages weights"):
        averaged.restore(plain.tensors(), plain.facts())


def test_nesterov_momentum_follows_its_formula() -> None:
    linear = nn.Linear(2, 1, bias=False)
    state = TrainingState(FewShotModel(linear, R2D2()), Plan(optimiser="sgd", rate=0.1, momentum=0.5))
    start = linear.weight.detach().clone()
    for _ in range(2):
        linear.weight.grad = torch.ones_like(start)
        state.optimiser.step()
    # v1 = 1, step 1 + 0.5; v2 = 1.5, step 1 + 0.75
    torch.testing.assert_close(linear.weight.detach(), start - 0.1 * (1.5 + 1.75))


def test_smoothed_targets_keep_their_sum_and_their_order() -> None:
    targets = torch.eye(5)
    soft = smoothed(targets, 0.1)
    torch.testing.assert_close(soft.sum(-1), torch.ones(5))
    assert math.isclose(float(soft[0, 0]), 0.92, rel_tol=1e-6)
    assert smoothed(targets, 0.0) is targets


def test_support_and_query_apart_have_statistics_of_their_own(tiny: Benchmark) -> None:
    episode = sampler(tiny)[0]
    together, apart = fresh(0.0), fresh(0.0)
    apart.together = False
    assert not torch.allclose(together(episode), apart(episode), atol=1e-3)
    together.eval()
    apart.load_state_dict(together.state_dict())
    apart.eval()
    assert torch.equal(together(episode), apart(episode))
