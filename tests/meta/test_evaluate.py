"""Every route of the evaluation gives what embedding and solving each episode alone gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from handful import evaluate
from handful.data.table import Benchmark
from handful.embeddings import Conv4, conv4
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import InvalidOptionError, NotFiniteError
from handful.learners import LRD2, R2D2, BaseLearner, Predictor, ProtoNet
from handful.meta.features import embed_pool, embed_pool_within, pool_bytes
from handful.meta.gram import Cut, Gathered, Products, Route, Tiles, WholeGram
from handful.meta.model import FewShotModel
from handful.meta.train import seeded
from tests.conftest import blobs
from tests.meta.engines import Apart, model_of


class NearestNeighbour(BaseLearner):
    """A learner that needs more than inner products, for the routes that must not assume them."""

    def fit(self, support: torch.Tensor, targets: torch.Tensor) -> Predictor:
        return lambda query: (-torch.cdist(query, support, p=1)).softmax(-1) @ targets


FAST: tuple[Route, ...] = ("features", "gram", "tiles", "chunks")
LEARNERS = [R2D2(), R2D2(0.1, prior="diagonal", features=256), LRD2(steps=3), ProtoNet(), ProtoNet("cosine")]


@cache
def embedding() -> Conv4:
    with seeded(0):
        network = conv4("32C", 1)
    for _ in range(20):  # running statistics that are true, so that features differ and answers are no ties
        network(blobs(4).images.float() / 255)
    return network


def tasks(tiny: Benchmark, way: int = 5, shot: int = 1, query: int = 15, seed: int = 0) -> EpisodeSampler:
    return EpisodeSampler(tiny.test, FixedShots(way, shot, query), seed)


def model_with(learner: BaseLearner) -> FewShotModel:
    return FewShotModel(deepcopy(embedding()), learner)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
@pytest.mark.parametrize("shot", [1, 3])
def test_routes_agree_episode_by_episode(tiny: Benchmark, learner: BaseLearner, shot: int) -> None:
    model = model_with(learner)
    plain = evaluate(model, tasks(tiny, 4, shot, 6), 50, route="episodes")
    for route in FAST:
        assert torch.equal(
            plain.accuracies,
            evaluate(model, tasks(tiny, 4, shot, 6), 50, route=route).accuracies,
        ), route


@pytest.mark.parametrize("kind", [Gathered, WholeGram, lambda pool: Tiles(pool, Cut(4, 30))])
def test_logits_from_inner_products_equal_logits_from_images(
    tiny: Benchmark, kind: Callable[[Tensor], Products]
) -> None:
    model = model_with(R2D2()).eval()
    sampler = tasks(tiny, 5, 1, 5, seed=0)
    pool = embed_pool(model.embedding, tiny.test)
    block = kind(pool).of(sampler.rows(0, 4).rows - tiny.test.rows[0], 5)
    for b in range(4):
        predicted = R2D2().fit_gram(block[b, :5], sampler[b].support.targets)(block[b, 5:], torch.zeros(25))
        # float32: batch norm folded into the weights against batch norm applied
        with torch.no_grad():
            torch.testing.assert_close(predicted, model(sampler[b]), atol=1e-5, rtol=1e-5)


def test_learners_that_need_more_than_inner_products_are_evaluated_too(tiny: Benchmark) -> None:
    model = model_with(NearestNeighbour())
    assert torch.equal(
        evaluate(model, tasks(tiny, 4, 2, 5), 30, route="episodes").accuracies,
        evaluate(model, tasks(tiny, 4, 2, 5), 30).accuracies,
    )
    with pytest.raises(InvalidOptionError, match=r"NearestNeighbour .*'features'"):
        evaluate(model, tasks(tiny, 4, 2, 5), 30, route="gram")


def test_the_same_seed_gives_the_same_result_and_another_seed_another(tiny: Benchmark) -> None:
    model = model_with(ProtoNet())
    first, again, other = (evaluate(model, tasks(tiny, 5, 1, 5, seed=seed), 40) for seed in (0, 0, 1))
    assert torch.equal(first.accuracies, again.accuracies)
    assert not torch.equal(first.accuracies, other.accuracies)


def test_a_result_says_all_that_is_needed_to_repeat_it(tiny: Benchmark) -> None:
    result = evaluate(model_with(ProtoNet()), tasks(tiny, 5, 2, 4, seed=7), 30)
    facts = result.as_json()
    assert {key: facts[key] for key in ("way", "shot", "query", "episodes", "seed", "inductive", "split")} == {
        "way": 5, "shot": 2, "query": 4, "episodes": 30, "seed": 7, "inductive": True, "split": "test",
    }  # fmt: skip
    assert len(facts["accuracies"]) == 30
    assert math.isclose(result.mean, sum(facts["accuracies"]) / 30, abs_tol=1e-6)
    assert "5-way 2-shot" in str(result)
    assert "inductive" in str(result)


def test_a_result_says_which_route_was_taken_and_why(tiny: Benchmark) -> None:
    model = model_with(R2D2())
    few = evaluate(model, tasks(tiny, 5, 1, 5), 20)
    many = evaluate(model, tasks(tiny, 5, 1, 5), 5_000)
    tight = evaluate(model, tasks(tiny, 5, 1, 5), 5_000, memory=pool_bytes(model.embedding, tiny.test))
    assert many.route.startswith("blocks of one Gram matrix: about")
    assert "gram would not fit into memory, tiles would not fit" in tight.route
    assert torch.equal(few.accuracies, many.accuracies[:20])
    # of 125,000 queries, a few have two equal logits but for float32 rounding
    assert int((many.accuracies != tight.accuracies).sum()) <= 10


@pytest.mark.parametrize("learner", [R2D2(), NearestNeighbour()], ids=["kernel", "other"])
def test_features_that_do_not_fit_into_memory_are_embedded_chunk_by_chunk(
    tiny: Benchmark, learner: BaseLearner
) -> None:
    model = model_with(learner)
    plain = evaluate(model, tasks(tiny, 4, 1, 3), 12, route="episodes")
    memory = 2 * 20 * 256 * 4  # half of it holds the 256 features of 20 images: those of one episode of 16
    chunked = evaluate(model, tasks(tiny, 4, 1, 3), 12, memory=memory)
    assert "for each chunk, those of all images would take" in chunked.route
    assert torch.equal(plain.accuracies, chunked.accuracies)
    assert embed_pool_within(model.embedding, tiny.test, memory) is None
    whole = embed_pool_within(model.embedding, tiny.test, 10**9)
    assert whole is not None
    assert torch.equal(whole, embed_pool(model.embedding, tiny.test))


def test_features_that_are_not_finite_are_refused_by_number(tiny: Benchmark) -> None:
    model = model_with(ProtoNet())
    pool = embed_pool(model.embedding, tiny.test)
    pool[3, 5], pool[7, 0] = math.nan, math.inf
    with pytest.raises(NotFiniteError, match="2 of 120 images"):
        evaluate(model, tasks(tiny, 5, 1, 5), 20, pool=pool)


@pytest.mark.parametrize("route", ["episodes", *FAST])
def test_logits_that_are_not_finite_are_refused_and_not_counted_as_answers(tiny: Benchmark, route: Route) -> None:
    model = model_with(R2D2())
    model.learner.bias.data.fill_(math.nan)  # type: ignore[union-attr, operator]
    with pytest.raises(NotFiniteError, match=r"logits of \d+ of \d+ queries"):
        evaluate(model, tasks(tiny, 4, 1, 3), 3, route=route)


def test_a_tile_that_cannot_fit_is_refused(tiny: Benchmark) -> None:
    with pytest.raises(InvalidOptionError, match=r"Gram matrix.*'features'"):
        evaluate(model_with(R2D2()), tasks(tiny, 5, 1, 5), 20, route="tiles", memory=1000)


def test_evaluation_leaves_the_model_as_it_was(tiny: Benchmark) -> None:
    model = model_with(R2D2()).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, tasks(tiny, 5, 1, 5), 10)
    evaluate(model, tasks(tiny, 5, 1, 5), 10, route="episodes")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_frozen_random_state_is_not_touched(tiny: Benchmark) -> None:
    before = torch.get_rng_state()
    evaluate(FewShotModel(nn.Flatten(), ProtoNet()), tasks(tiny, 5, 1, 5), 10)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "changes",
    [{"turned": 1.0}, {"mixed": 1.0}, {"transform": lambda images, _: images / 255}],
    ids=lambda each: next(iter(each)),
)
def test_episodes_that_change_their_images_are_evaluated_one_by_one_or_refused(
    tiny: Benchmark, changes: dict[str, Any]
) -> None:
    sampler = EpisodeSampler(tiny.test, FixedShots(5, 1, 3), **changes)
    with pytest.raises(InvalidOptionError, match="route 'episodes'"):
        evaluate(model_with(R2D2()), sampler, 4)
    assert evaluate(model_with(R2D2()), sampler, 4, route="episodes").episodes == 4


def test_no_episodes_is_refused(tiny: Benchmark) -> None:
    with pytest.raises(InvalidOptionError, match=r"episode.* 0\b"):
        evaluate(model_with(R2D2()), tasks(tiny), 0)


@pytest.mark.parametrize(("learner", "route"), [(R2D2(), "auto"), (ProtoNet(), "episodes")])
def test_processes_solve_disjoint_episodes(
    tiny: Benchmark, learner: BaseLearner, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handful.meta.evaluate.MOST_EPISODES", 4)
    monkeypatch.setattr("handful.meta.evaluate.CHUNK_BYTES", 1000)
    model, episodes = model_of(learner), EpisodeSampler(tiny.test, FixedShots(3, 1, 2))
    pool = embed_pool(model.embedding, tiny.test)
    whole = evaluate(model, episodes, 12, route=route, pool=pool).accuracies
    parts = [
        evaluate(model, episodes, 12, engine=Apart(rank=rank, world=2), route=route, pool=pool).accuracies
        for rank in range(2)
    ]
    assert torch.equal(parts[0] + parts[1], whole)
    assert all(0 < float(part.sum()) < float(whole.sum()) for part in parts)


def test_a_route_that_does_not_exist_or_takes_no_pool_is_refused(tiny: Benchmark) -> None:
    model, sampler = FewShotModel(nn.Flatten(), R2D2()), EpisodeSampler(tiny.test, FixedShots(5, 1, 4))
    with pytest.raises(InvalidOptionError, match="nonsense"):
        evaluate(model, sampler, 2, route="nonsense")  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="chunks"):
        evaluate(model, sampler, 2, route="chunks", pool=embed_pool(model.embedding, tiny.test))


def test_the_interval_of_a_single_episode_is_null_in_json(tiny: Benchmark) -> None:
    done = evaluate(FewShotModel(nn.Flatten(), R2D2()), EpisodeSampler(tiny.test, FixedShots(5, 1, 4)), 1)
    assert json.loads(json.dumps(done.as_json(), allow_nan=False))["ci95"] is None
