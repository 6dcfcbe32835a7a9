"""An episode: inputs and targets that belong together, on any device, or as one plain classification problem."""

from __future__ import annotations

import pytest
import torch

from handful.episodes import Episode, LabelledSet
from handful.errors import ShapeError


def episode() -> Episode:
    """Classes 7 and 2 of a split, one support example and two queries each; inputs are their own numbers."""
    support = LabelledSet(torch.tensor([[0.0], [1.0]]), torch.eye(2))
    query = LabelledSet(torch.tensor([[2.0], [3.0], [4.0], [5.0]]), torch.eye(2).repeat_interleave(2, 0))
    return Episode(support, query, torch.tensor([7, 2]))


def test_inputs_and_targets_that_do_not_match_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(3, 1, 28, 28\) .*\(4, 4\)"):
        LabelledSet(torch.zeros(3, 1, 28, 28), torch.eye(4))


def test_leading_dimensions_belong_to_both() -> None:
    LabelledSet(torch.zeros(5, 3, 1, 28, 28), torch.zeros(5, 3, 4))
    with pytest.raises(ShapeError, match=r"\(5, 3, 8\) .*\(4, 3, 2\)"):
        LabelledSet(torch.zeros(5, 3, 8), torch.zeros(4, 3, 2))


def test_an_episode_moves_as_a_whole() -> None:
    moved = episode().to(torch.device("meta"))
    tensors = [each for part in (moved.support, moved.query) for each in (part.inputs, part.targets)]
    assert {each.device.type for each in (*tensors, moved.classes)} == {"meta"}


def test_all_images_are_queries_labelled_by_their_class_in_the_split() -> None:
    plain = episode().over_classes(9)
    assert plain.support.inputs.shape == (0, 1)
    assert plain.support.targets.shape == (0, 9)
    assert plain.query.inputs.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert plain.query.targets.sum(-1).tolist() == [1.0] * 6
    assert plain.query.targets.argmax(-1).tolist() == [7, 2, 7, 7, 2, 2]
    assert plain.query.targets.dtype == torch.float32
    assert plain.classes.tolist() == list(range(9))


def test_a_batch_of_episodes_is_relabelled_like_each_of_them() -> None:
    one = episode()
    sets = (
        LabelledSet(part.inputs.expand(2, -1, -1), part.targets.expand(2, -1, -1)) for part in (one.support, one.query)
    )
    both = Episode(*sets, torch.tensor([[7, 2], [0, 1]])).over_classes(9)
    assert both.query.targets.argmax(-1).tolist() == [[7, 2, 7, 7, 2, 2], [0, 1, 0, 0, 1, 1]]
    assert both.query.inputs.shape == (2, 6, 1)
    assert both.classes.shape == (2, 9)


def test_a_class_beyond_the_number_of_classes_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"number 7 .*classes is 7"):
        episode().over_classes(7)


def test_mixed_targets_stay_mixed_among_all_classes() -> None:
    one = episode()
    mixed = LabelledSet(one.query.inputs[:1], torch.tensor([[0.25, 0.75]]))
    targets = Episode(one.support, mixed, one.classes).over_classes(9).query.targets
    assert targets[2, 7] == 0.25
    assert targets[2, 2] == 0.75
    assert targets.sum() == 3
