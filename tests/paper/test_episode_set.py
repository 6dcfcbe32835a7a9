"""Test episodes are known by their content, and those without common images have none."""

from __future__ import annotations

import pytest
import torch

from handful.data.table import Benchmark
from handful.embeddings import conv4
from handful.episodes import EpisodeSampler, FixedShots
from handful.episodes.sampler import EpisodeRows
from handful.errors import LeakError, NotEnoughImagesError
from handful.learners import R2D2
from handful.meta.evaluate import evaluate
from handful.meta.features import embed_pool
from handful.meta.manifest import content_hash
from handful.meta.model import FewShotModel
from handful.meta.train import seeded
from handful.paper.episode_set import accuracies_of, check_overlap, draw_set, episodes_apart


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
    with pytest.raises(NotEnoughImagesError, match="Not even one 5-way episode with 21 images"):
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


def test_an_image_that_is_support_and_query_is_a_leak() -> None:
    fine = torch.arange(30).reshape(3, 10)
    check_overlap(EpisodeRows(1, torch.zeros(3, 5, dtype=torch.long), fine))
    broken = fine.clone()
    broken[1, 7] = broken[1, 2]
    with pytest.raises(LeakError, match=r"Test episode 41 uses an image twice.*\(1 of 3 episodes do\)"):
        check_overlap(EpisodeRows(1, torch.zeros(3, 5, dtype=torch.long), broken), start=40)
