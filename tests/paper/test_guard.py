"""Leaks are errors: batch statistics at test, queries that see each other, classes in two splits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from handful.data.table import Benchmark, ImageTable
from handful.embeddings import conv4
from handful.episodes import Episode, EpisodeSampler, FixedShots
from handful.errors import LeakError
from handful.learners import MAML, R2D2
from handful.learners.base import BaseLearner, Limits, Predictor
from handful.meta.model import FewShotModel
from handful.meta.train import seeded
from handful.paper.guard import check_model, check_splits


@pytest.fixture
def episode(tiny: Benchmark) -> Episode:
    return EpisodeSampler(tiny.test, FixedShots(5, 1, 6))[0]


def network() -> nn.Module:
    with seeded(0):
        return conv4("32C", 1)


def test_a_model_in_evaluation_mode_passes(episode: Episode) -> None:
    check_model(FewShotModel(network(), R2D2()).eval(), episode)


def test_batch_norm_in_training_mode_is_a_leak(episode: Episode) -> None:
    model = FewShotModel(network(), R2D2()).eval()
    model.embedding.blocks[1][1].train()  # type: ignore[union-attr, index]
    with pytest.raises(LeakError, match=r"'embedding\.blocks\.1\.1' takes its statistics.*it is in training mode"):
        check_model(model, episode)


def test_batch_norm_without_running_statistics_is_a_leak(episode: Episode) -> None:
    model = FewShotModel(network(), R2D2()).eval()
    model.embedding.blocks[0][1] = nn.BatchNorm2d(32, track_running_stats=False).eval()  # type: ignore[union-attr, index]
    with pytest.raises(LeakError, match="keeps no running statistics"):
        check_model(model, episode)


def test_batch_norm_that_serves_in_training_only_is_no_leak(episode: Episode) -> None:
    learner = R2D2()
    learner.unused = nn.BatchNorm1d(4, track_running_stats=False)
    check_model(FewShotModel(network(), learner).eval(), episode)


class _Centred(BaseLearner):
    """Subtracts the mean of all queries: transductive, whether it says so or not."""

    def __init__(self, honest: bool) -> None:
        super().__init__()
        self.inner = R2D2()
        self.limits = Limits(transductive=honest)

    def fit(self, support: Tensor, targets: Tensor) -> Predictor:
        predict = self.inner.fit(support, targets)
        return lambda query: predict(query - query.mean(-2, keepdim=True))


def test_an_undeclared_look_across_queries_is_a_leak_and_a_declared_one_is_not(episode: Episode) -> None:
    with pytest.raises(LeakError, match="Logits of _Centred move by up to"):
        check_model(FewShotModel(network(), _Centred(honest=False)).eval(), episode)
    check_model(FewShotModel(network(), _Centred(honest=True)).eval(), episode)


@pytest.mark.parametrize("statistics", [pytest.param("support", marks=pytest.mark.slow), "batch"])
def test_maml_passes_because_it_declares_what_it_does(episode: Episode, statistics: str) -> None:
    whole = nn.Sequential(network(), nn.LazyLinear(5))
    with torch.no_grad():
        whole(episode.support.inputs)
    model = FewShotModel(nn.Identity(), MAML(whole, 5, test_steps=1, statistics=statistics)).eval()  # type: ignore[arg-type]
    check_model(model, episode)


def test_disjoint_splits_pass(tiny: Benchmark) -> None:
    check_splits(tiny)


@pytest.mark.parametrize(("number", "part"), [(20, "test"), (14, "val")])
def test_a_training_class_under_another_name_is_a_leak(tiny: Benchmark, number: int, part: str) -> None:
    table = tiny.train.table
    pixels = table.images.clone()
    pixels[20 * number : 20 * number + 20] = pixels[20:40]  # a class of another split becomes class 1, of training
    copied = ImageTable(pixels, table.classes, table.counts, table.groups)
    names = table.classes
    leaking = Benchmark(
        "copied",
        copied.split("train", names[:12]),
        copied.split("val", names[12:18]),
        copied.split("test", names[18:]),
    )
    told = f"20 of the 20 images of {part} class 'blob{number}' of copied are also in 'train'"
    with pytest.raises(LeakError, match=told):
        check_splits(leaking)


def test_a_few_common_images_are_no_common_class(tiny: Benchmark) -> None:
    table = tiny.train.table
    pixels = table.images.clone()
    pixels[400:405] = pixels[20:25]
    copied = ImageTable(pixels, table.classes, table.counts, table.groups)
    names = table.classes
    parts = (names[:12], names[12:18], names[18:])
    check_splits(Benchmark("few", *(copied.split(n, p) for n, p in zip(("train", "val", "test"), parts, strict=True))))


def test_a_class_named_in_two_splits_is_a_leak(tiny: Benchmark) -> None:
    twice = object.__new__(Benchmark)  # past the constructor, which refuses it too
    for name, value in (("name", "twice"), ("train", tiny.train), ("val", tiny.val), ("test", tiny.train)):
        object.__setattr__(twice, name, value)
    with pytest.raises(LeakError, match="Class 'blob00' of twice is in both 'train' and 'test'"):
        check_splits(twice)
