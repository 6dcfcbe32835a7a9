"""Episodes are a pure function of (seed, index), fair, and free of overlap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from handful.data.table import Benchmark, ClassDataset, ImageTable
from handful.episodes import EpisodeSampler, FixedShots, RandomShots
from handful.episodes.random import choose, random_words
from handful.episodes.sampler import Transform
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


def arrows(classes: int, per_class: int = 8) -> ClassDataset:
    """Square images whose two brightest pixels tell their row and which way they are turned."""
    n = classes * per_class
    images = torch.zeros(n, 1, 3, 3, dtype=torch.uint8)
    images[:, 0, 0, 0], images[:, 0, 1, 1] = 255, torch.arange(n).to(torch.uint8)
    names = tuple(f"class{i}" for i in range(classes))
    return ImageTable(images, names, (per_class,) * classes).split("all", names)


def turns_of(images: torch.Tensor) -> torch.Tensor:
    """Quarter turns against the clock, from the corner that is lit."""
    corners = images[..., 0, [0, 2, 2, 0], [0, 0, 2, 2]]
    return corners.argmax(-1)


def test_images_are_turned_after_the_transform_so_that_mirroring_swaps_no_turns() -> None:
    def mirrored(images: torch.Tensor, _: torch.Generator) -> torch.Tensor:
        return images.flip(-1) / 255

    shape = FixedShots(5, 1, 3)
    turned = EpisodeSampler(arrows(6), shape, seed=0, transform=mirrored, turned=1.0)[0].query
    corner = {0: (0, 2), 1: (0, 0), 2: (2, 0), 3: (2, 2)}  # of the upper right one, turned against the clock
    classes = EpisodeSampler(arrows(6), shape, seed=0, turned=1.0)[0].classes[turned.targets.argmax(-1)]
    assert len(set((classes // 6).tolist())) > 2
    for image, turns in zip(turned.inputs, (classes // 6).tolist(), strict=True):
        assert image[0][corner[turns]] == 1


def test_a_plain_sampler_keeps_everything_but_turns_and_mixing() -> None:
    def halved(images: torch.Tensor, _: torch.Generator) -> torch.Tensor:
        return images / 510

    shape = FixedShots(5, 1, 3)
    changed = EpisodeSampler(arrows(6), shape, seed=3, transform=halved, turned=1.0, mixed=1.0, length=7)
    assert "turned=1, mixed=1" in repr(changed)
    plain = changed.plain()
    assert len(plain) == 7
    expected = EpisodeSampler(arrows(6), shape, seed=3, transform=halved)
    assert torch.equal(plain[2].query.inputs, expected[2].query.inputs)
    assert torch.equal(plain[2].query.targets, expected[2].query.targets)
    assert plain.plain() is plain


@pytest.mark.parametrize("transform", [None, lambda images, _: images / 255], ids=["plain", "transformed"])
def test_in_turned_episodes_each_quarter_turn_of_a_class_is_a_class(transform: Transform | None) -> None:
    data = arrows(6)
    sampler = EpisodeSampler(data, FixedShots(5, 1, 3), seed=0, transform=transform, turned=1.0)
    seen, together = set(), 0
    for index in range(60):
        episode = sampler[index]
        assert len(set(episode.classes.tolist())) == 5
        together += len(set((episode.classes % 6).tolist())) < 5
        for part in (episode.support, episode.query):
            classes = episode.classes[part.targets.argmax(-1)]
            assert torch.equal(turns_of(part.inputs), classes // 6)
            assert torch.equal((part.inputs[:, 0, 1, 1] * 255).round().long() // 8, classes % 6)
        seen |= set(episode.classes.tolist())
    assert seen == set(range(24))
    assert together > 20  # turns of one class must be told apart, too
    batch = sampler.batch(3, 4)
    assert torch.equal(batch.query.inputs[2], sampler[5].query.inputs)


def test_a_share_of_the_episodes_is_turned_and_the_others_stay_as_they_were() -> None:
    shape = FixedShots(5, 1, 3)
    plain, some = (EpisodeSampler(arrows(6), shape, seed=0, turned=share) for share in (0.0, 0.25))
    upright = [index for index in range(400) if int(some[index].classes.max()) < 6]
    assert 270 <= len(upright) <= 330
    for index in upright[:50]:
        assert torch.equal(some[index].query.inputs, plain[index].query.inputs)


def test_mixed_queries_take_a_box_and_its_share_of_the_label_from_another_query() -> None:
    n, size = 12, 10
    images = torch.arange(n).to(torch.uint8).reshape(n, 1, 1, 1).expand(n, 1, size, size)
    data = ImageTable(images.contiguous(), ("a", "b", "c"), (4, 4, 4)).split("all", ("a", "b", "c"))
    plain, mixed = (EpisodeSampler(data, FixedShots(3, 1, 3), seed=0, mixed=share) for share in (0.0, 1.0))
    shares = set()
    for index in range(40):
        before, after = plain[index], mixed[index]
        assert torch.equal(after.support.inputs, before.support.inputs)
        assert torch.equal(after.support.targets, before.support.targets)
        rows = (after.query.inputs[:, 0] * 255).round().long()
        labels = torch.nn.functional.one_hot((rows // 4).flatten(1), 3).float().mean(1)  # a pixel's class by its value
        positions = {int(c): place for place, c in enumerate(after.classes)}
        ordered = labels[:, sorted(positions, key=positions.__getitem__)]
        torch.testing.assert_close(after.query.targets, ordered, atol=1e-6, rtol=0)
        own = (before.query.inputs[:, 0, 0, 0] * 255).round().long()
        boxes = rows != own[:, None, None]
        for box in boxes[boxes.flatten(1).any(1)]:
            rows_hit, columns_hit = box.any(1).sum(), box.any(0).sum()
            assert int(box.sum()) == int(rows_hit * columns_hit)
        shares |= {round(float(boxes.flatten(1).float().mean(1).max()), 2)}
    assert len(shares) > 10
    assert torch.equal(mixed.batch(0, 3).query.targets[1], mixed[1].query.targets)


def test_a_share_of_the_episodes_is_mixed() -> None:
    sampler = EpisodeSampler(arrows(6), FixedShots(5, 1, 3), seed=0, mixed=0.5)
    soft = sum(bool((sampler[index].query.targets.amax(-1) < 1).any()) for index in range(200))
    assert 60 <= soft <= 120  # boxes without a pixel leave labels as they are


def test_impossible_shares_and_images_that_are_not_square_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"turned .*\[0, 1\], but got 1\.5"):
        EpisodeSampler(dataset(), FixedShots(3, 1, 2), turned=1.5)
    with pytest.raises(InvalidOptionError, match=r"mixed .*\[0, 1\], but got -1"):
        EpisodeSampler(dataset(), FixedShots(3, 1, 2), mixed=-1)
    wide = ImageTable(torch.zeros(40, 1, 4, 6, dtype=torch.uint8), ("a", "b"), (20, 20)).split("all", ("a", "b"))
    with pytest.raises(InvalidOptionError, match=r"square images.*4 x 6"):
        EpisodeSampler(wide, FixedShots(2, 1, 2), turned=0.5)
    EpisodeSampler(wide, FixedShots(2, 1, 2), mixed=0.5)[0]


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
