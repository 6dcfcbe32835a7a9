"""Episodes are a pure function of (seed, index), fair, and free of overlap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from handful.data.table import Benchmark, ClassDataset, ImageTable
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.episodes.random import choose, random_words
from handful.errors import InvalidOptionError, NotEnoughClassesError, NotEnoughImagesError, ShapeError


def table(counts: tuple[int, ...], groups: tuple[str, ...] | None = None) -> ImageTable:
    """Images whose pixels spell their own row number, so that a gather can be checked."""
    n = sum(counts)
    rows = torch.arange(n)
    images = torch.stack([rows // 256, rows % 256], 1).to(torch.uint8).reshape(n, 2, 1, 1).expand(n, 2, 4, 4)
    return ImageTable(images.contiguous(), tuple(f"class{i}" for i in range(len(counts))), counts, groups)


def dataset(counts: tuple[int, ...] = (20,) * 30, groups: tuple[str, ...] | None = None) -> ClassDataset:
    whole = table(counts, groups)
    return whole.split("all", whole.classes)


def rows_of(inputs: torch.Tensor) -> torch.Tensor:
    pixels = (inputs[..., 0, 0] * 255).round().long()
    return pixels[..., 0] * 256 + pixels[..., 1]


def test_an_episode_depends_on_seed_and_number_only() -> None:
    sampler = EpisodeSampler(dataset(), RandomShots(5, 12), seed=3)
    backwards = [sampler[i] for i in (7, 2, 0)]
    again = EpisodeSampler(dataset(), RandomShots(5, 12), seed=3)
    for i, episode in zip((7, 2, 0), backwards, strict=True):
        assert torch.equal(episode.support.inputs, again[i].support.inputs)
        assert torch.equal(episode.query.inputs, again[i].query.inputs)
    assert not torch.equal(
        sampler[0].query.inputs[:10], EpisodeSampler(dataset(), RandomShots(5, 12), 4)[0].query.inputs[:10]
    )


def test_a_batch_of_episodes_equals_the_episodes_one_by_one() -> None:
    sampler = EpisodeSampler(dataset(), FixedShots(5, 2, 3), seed=1)
    batch = sampler.batch(4, 6)
    for b in range(6):
        single = sampler[4 + b]
        assert torch.equal(batch.support.inputs[b], single.support.inputs)
        assert torch.equal(batch.query.targets[b], single.query.targets)
        assert torch.equal(batch.classes[b], single.classes)


@pytest.mark.parametrize("step", [1, 3, 300])
def test_drawing_ahead_changes_no_episode(step: int) -> None:
    sampler = EpisodeSampler(dataset(), FixedShots(5, 1, 3), seed=2)
    sequential = torch.cat([sampler.rows(start, step).rows for start in range(0, 600, step)])
    at_once = EpisodeSampler(dataset(), FixedShots(5, 1, 3), seed=2).rows(0, 600).rows
    assert torch.equal(sequential, at_once)
    for start in (599, 255, 256, 0, 1, 2, 257, 90, 91):
        assert torch.equal(sampler.rows(start, 1).rows[0], at_once[start])


def test_the_stream_of_a_seed_is_the_same_in_every_version() -> None:
    rows = EpisodeSampler(dataset(), FixedShots(3, 1, 2), seed=7).rows(5, 2)
    assert rows.classes.tolist() == [[29, 12, 1], [21, 7, 0]]
    assert rows.rows.tolist() == [
        [594, 240, 21, 585, 589, 249, 253, 39, 33],
        [425, 150, 4, 420, 422, 152, 143, 2, 3],
    ]


def test_what_a_caller_does_with_rows_changes_no_later_answer() -> None:
    sampler = EpisodeSampler(dataset(), FixedShots(3, 1, 2), seed=0)
    first = sampler.rows(0, 1)
    kept = first.rows.clone(), first.classes.clone()
    first.rows.zero_()
    first.classes.zero_()
    again = sampler.rows(0, 1)
    assert torch.equal(again.rows, kept[0])
    assert torch.equal(again.classes, kept[1])


def test_support_and_query_never_overlap_and_labels_match_classes() -> None:
    data = dataset(tuple(range(12, 42)))
    sampler = EpisodeSampler(data, FixedShots(7, 4, 8), seed=0)
    for i in range(200):
        episode = sampler[i]
        support, query = rows_of(episode.support.inputs), rows_of(episode.query.inputs)
        both = torch.cat([support, query])
        assert len(both.unique()) == len(both)
        labels = torch.cat([episode.support.targets, episode.query.targets]).argmax(-1)
        owner = torch.searchsorted(data.starts, both, right=True) - 1
        assert torch.equal(owner, episode.classes[labels])


def test_every_image_and_class_is_drawn_equally_often() -> None:
    data = dataset((20,) * 10)
    rows = EpisodeSampler(data, FixedShots(5, 1, 4), seed=0).rows(0, 20_000)
    n = rows.rows.numel()
    for picked, expected in ((rows.rows, n / 200), (rows.rows[:, :5], 20_000 * 5 / 200)):
        counts = torch.bincount(picked.flatten(), minlength=200).double()
        # a chi-square statistic with 199 degrees of freedom exceeds 290 with probability below 1e-4
        assert float(((counts - expected) ** 2 / expected).sum()) < 290


def test_order_within_a_choice_is_uniform() -> None:
    words = random_words(0, np.arange(60_000), 6)
    picked = choose(words, np.full(60_000, 3))
    codes, counts = np.unique(picked @ np.array([9, 3, 1]), return_counts=True)
    assert len(codes) == 6
    # five degrees of freedom: above 25.7 with probability below 1e-4
    assert float(((counts - 10_000) ** 2 / 10_000).sum()) < 25.7


def test_random_shots_keep_the_number_of_images_and_cover_the_range() -> None:
    sampler = EpisodeSampler(dataset(), RandomShots(6, 12, 1, 9), seed=0)
    shots = [sampler.shot(i) for i in range(500)]
    assert set(shots) == set(range(1, 10))
    for i in range(20):
        episode = sampler[i]
        assert len(episode.support.inputs) == 6 * shots[i]
        assert len(episode.support.inputs) + len(episode.query.inputs) == 72


def test_held_shots_allow_stacking_and_others_are_refused() -> None:
    sampler = EpisodeSampler(dataset(), RandomShots(5, 12, hold=4), seed=0)
    assert sampler.batch(8, 4).support.inputs.shape[0] == 4
    loose = EpisodeSampler(dataset(), RandomShots(5, 12), seed=0)
    with pytest.raises(InvalidOptionError, match="hold=50"):
        loose.batch(0, 50)


def test_classes_can_stay_within_one_group() -> None:
    groups = tuple("abc"[i % 3] for i in range(30))
    data = dataset(groups=groups)
    sampler = EpisodeSampler(data, FixedShots(5, 1, 2, within_group=True), seed=0)
    seen = set()
    for i in range(60):
        drawn = {groups[c] for c in sampler[i].classes.tolist()}
        assert len(drawn) == 1
        seen |= drawn
    assert seen == {"a", "b", "c"}


def test_inputs_are_unit_floats_in_channels_last_memory() -> None:
    inputs = EpisodeSampler(dataset(), FixedShots(3, 1, 1), seed=0)[0].support.inputs
    assert inputs.dtype == torch.float32
    assert float(inputs.max()) <= 1.0
    assert inputs.is_contiguous(memory_format=torch.channels_last)


def test_a_transform_gets_a_generator_of_its_own_for_each_episode() -> None:
    def noise(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return images / 255 + torch.rand(images.shape, generator=generator)

    sampler = EpisodeSampler(dataset(), FixedShots(3, 1, 2), seed=0, transform=noise)
    batch = sampler.batch(0, 3)
    for b in range(3):
        assert torch.equal(batch.query.inputs[b], sampler[b].query.inputs)


def test_too_few_classes_or_images_are_named() -> None:
    with pytest.raises(NotEnoughClassesError, match=r"40-way .*'all' .*30"):
        EpisodeSampler(dataset(), FixedShots(40, 1, 1))
    with pytest.raises(NotEnoughImagesError, match=r"5 images.*'class1' .*'all' .*3"):
        EpisodeSampler(dataset((20, 3, 20)), FixedShots(2, 1, 4))
    with pytest.raises(InvalidOptionError, match="no groups"):
        EpisodeSampler(dataset(), FixedShots(2, 1, 1, within_group=True))
    with pytest.raises(InvalidOptionError, match="shot = 0"):
        FixedShots(5, 0, 1)
    with pytest.raises(InvalidOptionError, match=r"9 images.*max_shot = 9"):
        RandomShots(5, 9, 1, 9)


def test_a_table_refuses_what_does_not_belong_together() -> None:
    with pytest.raises(ShapeError, match="sum to 3"):
        ImageTable(torch.zeros(4, 1, 2, 2, dtype=torch.uint8), ("a", "b"), (1, 2))
    with pytest.raises(ShapeError, match="uint8"):
        ImageTable(torch.zeros(4, 1, 2, 2), ("a", "b"), (2, 2))


def test_a_sampler_with_a_length_is_a_sequence(tiny: Benchmark) -> None:
    sampler = EpisodeSampler(tiny.train, FixedShots(3, 1, 2), length=4)
    assert len(sampler) == len(list(sampler)) == 4
    assert torch.equal(sampler[-1].query.inputs, sampler[3].query.inputs)
    with pytest.raises(IndexError):
        sampler[4]
    assert "4 episodes" in repr(sampler)
    assert not EpisodeSampler(tiny.train, FixedShots(3, 1, 2), length=0)


def test_a_data_loader_takes_a_sampler_with_a_length(tiny: Benchmark) -> None:
    sampler = EpisodeSampler(tiny.train, FixedShots(3, 1, 2), length=3)
    loader = torch.utils.data.DataLoader(sampler, batch_size=None)
    loaded = [episode.query.inputs for episode in loader]
    assert all(torch.equal(one, two.query.inputs) for one, two in zip(loaded, sampler, strict=True))


def test_an_endless_sampler_has_no_length_and_is_true(tiny: Benchmark) -> None:
    sampler = EpisodeSampler(tiny.train, FixedShots(3, 1, 2))
    assert sampler
    with pytest.raises(TypeError, match="endless"):
        len(sampler)
