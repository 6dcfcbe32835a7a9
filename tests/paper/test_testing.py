"""Test episodes are known by their content, those without common images have none, and leaks are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from handful.data.table import Benchmark, ImageTable
from handful.embeddings import conv4
from handful.episodes import Episode, EpisodeSampler, FixedShots
from handful.episodes.sampler import EpisodeRows
from handful.errors import LeakError, NotEnoughImagesError, NotFiniteError
from handful.learners import MAML, R2D2
from handful.learners.base import BaseLearner, Limits, Predictor
from handful.meta.config import Recipe
from handful.meta.engine import Engine
from handful.meta.evaluate import evaluate
from handful.meta.features import embed_pool
from handful.meta.manifest import content_hash
from handful.meta.model import FewShotModel
from handful.meta.run import TrainedModel
from handful.meta.train import seeded
from handful.paper import testing
from handful.paper.testing import accuracies_of, check_model, check_overlap, check_splits, draw_set, episodes_apart


def test_the_hash_follows_the_episodes_and_the_data(tiny: Benchmark) -> None:
    kinds = [(5, 1, 4, 30, 0), (5, 1, 4, 30, 1), (5, 2, 4, 30, 0), (5, 1, 4, 31, 0)]
    digests = {draw_set(tiny.test, "data", *kind).digest for kind in kinds}
    assert len(digests) == 4
    assert draw_set(tiny.test, "data", *kinds[0]).digest in digests
    assert draw_set(tiny.test, "other", *kinds[0]).digest not in digests


def test_the_data_hash_sees_one_changed_pixel(tiny: Benchmark) -> None:
    before = content_hash(tiny)
    assert content_hash(tiny) == before
    row = int(tiny.test.rows[3])
    tiny.test.table.images[row, 0, 5, 5] ^= 1
    try:
        assert content_hash(tiny) != before
    finally:
        tiny.test.table.images[row, 0, 5, 5] ^= 1


@pytest.mark.parametrize(("way", "shot", "query"), [(5, 1, 3), (2, 1, 9), (6, 5, 5), (3, 2, 4)])
def test_episodes_apart_share_no_image_and_are_as_many_as_can_be(
    tiny: Benchmark, way: int, shot: int, query: int
) -> None:
    apart = episodes_apart(tiny.test, way, shot, query, 0)
    used = apart.rows.flatten()
    assert len(used.unique()) == len(used)
    blocks = len(tiny.test) * (20 // (shot + query))
    assert len(apart.rows) == blocks // way
    assert (apart.n_support, apart.query) == (way * shot, query)
    owner = tiny.test.table
    of_row = torch.arange(len(owner.classes)).repeat_interleave(torch.tensor(owner.counts))
    members = torch.tensor(tiny.test.members)
    for classes, rows in zip(apart.classes, apart.rows, strict=True):
        support, asked = rows[: way * shot].reshape(way, shot), rows[way * shot :].reshape(way, query)
        assert torch.equal(of_row[support], members[classes][:, None].expand(-1, shot))
        assert torch.equal(of_row[asked], members[classes][:, None].expand(-1, query))
        assert len(classes.unique()) == way


def test_too_few_images_for_one_episode_are_refused(tiny: Benchmark) -> None:
    with pytest.raises(NotEnoughImagesError, match="21 images per class"):
        episodes_apart(tiny.test, 5, 1, 20, 0)


def test_accuracies_equal_those_of_the_evaluator(tiny: Benchmark) -> None:
    with seeded(0):
        model = FewShotModel(conv4("32C", 1), R2D2()).eval()
    rows = EpisodeSampler(tiny.test, FixedShots(5, 1, 10), 3).rows(0, 20)
    pool = embed_pool(model.embedding, tiny.test)
    ours = accuracies_of(model, tiny.test, rows, pool)
    theirs = evaluate(
        model, EpisodeSampler(tiny.test, FixedShots(5, 1, 10), 3), 20, route="features", pool=pool
    ).accuracies
    assert torch.equal(ours, theirs)
    assert torch.equal(accuracies_of(model, tiny.test, rows, None), theirs)


def test_logits_that_are_not_finite_are_refused_and_not_counted_as_answers(tiny: Benchmark) -> None:
    model = FewShotModel(nn.Flatten(), R2D2())
    model.learner.bias.data.fill_(float("nan"))  # type: ignore[union-attr, operator]
    rows = EpisodeSampler(tiny.test, FixedShots(5, 1, 2)).rows(0, 2)
    with pytest.raises(NotFiniteError, match="logits of 10 of 10 queries"):
        accuracies_of(model, tiny.test, rows, None)


def test_an_image_that_is_support_and_query_is_a_leak() -> None:
    fine = torch.arange(30).reshape(3, 10)
    check_overlap(EpisodeRows(1, torch.zeros(3, 5, dtype=torch.long), fine))
    broken = fine.clone()
    broken[1, 7] = broken[1, 2]
    with pytest.raises(LeakError, match="Test episode 41"):
        check_overlap(EpisodeRows(1, torch.zeros(3, 5, dtype=torch.long), broken), start=40)


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
    with pytest.raises(LeakError, match=r"'embedding\.blocks\.1\.1'.*training mode"):
        check_model(model, episode)


def test_batch_norm_without_running_statistics_is_a_leak(episode: Episode) -> None:
    model = FewShotModel(network(), R2D2()).eval()
    model.embedding.blocks[0][1] = nn.BatchNorm2d(32, track_running_stats=False).eval()  # type: ignore[union-attr, index]
    with pytest.raises(LeakError, match=r"'embedding\.blocks\.0\.1'.*running statistics"):
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
    with pytest.raises(LeakError, match="_Centred"):
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
    with pytest.raises(LeakError, match=f"20 of the 20 .*{part} .*'blob{number}'.*'train'"):
        check_splits(leaking)


def test_a_few_common_images_are_no_common_class(tiny: Benchmark) -> None:
    table = tiny.train.table
    pixels = table.images.clone()
    pixels[400:405] = pixels[20:25]
    copied = ImageTable(pixels, table.classes, table.counts, table.groups)
    names = table.classes
    parts = (names[:12], names[12:18], names[18:])
    check_splits(Benchmark("few", *(copied.split(n, p) for n, p in zip(("train", "val", "test"), parts, strict=True))))


def test_a_run_is_tested_on_the_engine_it_was_given(tiny: Benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(read_every=2)  # another value than the default, so that it is recognised
    used: list[Engine] = []

    def watched(embed: Callable[..., Any]) -> Callable[..., Any]:
        def embedded(*given: Any) -> Any:
            used.append(given[3])
            return embed(*given)

        return embedded

    monkeypatch.setattr(testing, "embed_rows", watched(testing.embed_rows))
    monkeypatch.setattr(testing, "embed_pool_within", watched(testing.embed_pool_within))
    episodes = draw_set(tiny.test, "content", 5, 1, 4, 3, 0)
    trained = TrainedModel(FewShotModel(conv4("32C", 1), R2D2()).eval(), Recipe(), 1, tiny.test.image_shape)
    testing._measure(trained, episodes, "last", engine, 3)
    accuracies_of(trained.model, tiny.test, episodes.apart, None, engine)
    assert used
    assert all(each is engine for each in used)
