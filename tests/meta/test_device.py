"""An update on an accelerator waits for nothing and stays on its device: shown for every learner without one.

Two stand-ins take the accelerator's place. A dispatch mode fails where a program reads a value off a tensor, for which
it would have to wait. The device `meta`, whose tensors have a shape and no values, fails on values that are read, on
copies back to the CPU, and on operations between tensors of two devices.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from handful.data.table import Benchmark
from handful.embeddings import ResNet12, conv4
from handful.episodes import EpisodeSampler, FixedShots
from handful.learners import R2D2, BaseLearner, Predictor, ProtoNet
from handful.learners.registry import build_learner
from handful.meta.config import Plan
from handful.meta.engine import Engine
from handful.meta.model import FewShotModel
from handful.meta.state import TrainingState
from handful.meta.train import seeded, train
from tests.learners.cases import CASES, WAY, tiny_embedding

IMAGE = (1, 28, 28)
PER_STEP, READ_EVERY = 2, 3
WAITS = (
    "aten::_local_scalar_dense",
    "aten::_linalg_check_errors",
    "aten::_unique2",
    "aten::equal",
    "aten::is_nonzero",
    "aten::masked_select",
    "aten::nonzero",
)
"""Operations after which the program knows something about a tensor's values."""


class NoWaiting(TorchDispatchMode):
    """Fails where a value is read off a tensor, for which a program would wait until the device has computed it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.name() in WAITS:
            raise AssertionError(f"{func.name()} waits for the device")
        return func(*args, **(kwargs or {}))


def learner_model(name: str, options: Any, maps: bool, classes: int) -> FewShotModel:
    given = {key: classes if key == "classes" else value for key, value in options.items()}
    return FewShotModel(*build_learner(name, tiny_embedding(maps), IMAGE, given))


MODELS: dict[str, Callable[[int], FewShotModel]] = {
    str(case): lambda classes, case=case: learner_model(case.name, case.options, case.maps, classes)  # type: ignore[misc]
    for case in CASES
} | {
    "conv4 with dropout": lambda classes: FewShotModel(conv4("32C", 1, dropout=0.1), R2D2()),
    "ResNet-12 with DropBlock": lambda classes: FewShotModel(
        ResNet12(1, block_size=2, widths=(4, 4, 4, 4), pool=True), R2D2()
    ),
}


def training(model: FewShotModel, tiny: Benchmark, engine: Engine) -> tuple[TrainingState, Any]:
    sampler = EpisodeSampler(tiny.train, FixedShots(WAY, 2, 2))
    plan = Plan(episodes=10 * PER_STEP * READ_EVERY, episodes_per_step=PER_STEP, clip=1.0, validate_every=0)
    state = TrainingState(model.to(engine.device), plan)
    return state, train(model, sampler, state=state, engine=engine)


@pytest.mark.parametrize("name", MODELS)
def test_no_update_of_any_learner_waits_for_the_device(name: str, tiny: Benchmark) -> None:
    with seeded(0):
        model = MODELS[name](len(tiny.train.classes))
    # as on an accelerator, episodes are drawn in a thread, where values may be looked at
    state, steps = training(model, tiny, Engine(read_every=READ_EVERY, prefetch=1))
    next(steps)  # the optimiser makes its state in the first update
    with NoWaiting():
        next(steps)
    assert state.episode == 2 * PER_STEP * READ_EVERY


@pytest.mark.parametrize("name", MODELS)
def test_an_update_of_any_learner_stays_on_its_device_until_the_loss_is_read(name: str, tiny: Benchmark) -> None:
    state, steps = training(MODELS[name](len(tiny.train.classes)), tiny, Engine(torch.device("meta"), read_every=3))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta") as stopped:
        next(steps)
    assert state.episode == PER_STEP * READ_EVERY, stopped.value  # not earlier
    assert "tolist" in str(stopped.traceback[1].statement)
    assert all(each.device.type == "meta" for each in model_tensors(state))


def model_tensors(state: TrainingState) -> list[Tensor]:
    kept = [value for each in state.optimiser.state.values() for name, value in each.items() if name != "step"]
    return [*state.model.state_dict().values(), *kept]


class Reading(ProtoNet):
    """Looks at a value."""

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        return super().fit(support if float(support.detach().sum()) else -support, targets)


class Elsewhere(ProtoNet):
    """Brings a tensor from the CPU."""

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        return super().fit(support + torch.zeros(support.shape), targets)


def flat(learner: BaseLearner) -> FewShotModel:
    return FewShotModel(nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 5)), learner)


@pytest.mark.parametrize("learner", [Reading, Elsewhere])
def test_a_careless_learner_is_caught(learner: type[ProtoNet], tiny: Benchmark) -> None:
    state, steps = training(flat(learner()), tiny, Engine(torch.device("meta"), read_every=READ_EVERY))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        next(steps)
    assert state.episode == 0
    state, steps = training(flat(learner()), tiny, Engine(read_every=READ_EVERY))
    next(steps)
    with pytest.raises(AssertionError, match="waits") if learner is Reading else nullcontext(), NoWaiting():
        next(steps)


def test_an_engine_that_reads_every_loss_waits(tiny: Benchmark) -> None:
    state, steps = training(flat(R2D2()), tiny, Engine(read_every=1))
    next(steps)
    with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():
        next(steps)
    assert state.episode == PER_STEP
