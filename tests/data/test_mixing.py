"""Quarter turns and CutMix change the images they are given, and nothing else."""

from __future__ import annotations

import torch

from handful.data.mixing import cutmix_, turn_


def test_each_image_is_turned_by_its_own_number_of_quarter_turns() -> None:
    images = torch.arange(4 * 2 * 3 * 3).reshape(2, 2, 2, 3, 3)
    turned, turns = images.clone(), torch.tensor([[0, 1], [2, 3]])
    turn_(turned, turns)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        assert torch.equal(turned[place], images[place].rot90(int(turns[place]), (-2, -1)))


def test_a_mixed_label_is_the_share_of_the_pixels() -> None:
    way, size = 6, 16
    own = torch.arange(way)
    most, least = 0.0, 1.0
    for seed in range(100):
        images = own.float().reshape(way, 1, 1, 1).expand(way, 2, size, size).clone()
        targets = torch.eye(way)
        cutmix_(images, targets, torch.Generator().manual_seed(seed))
        shares = torch.nn.functional.one_hot(images[:, 0].long().flatten(1), way).float().mean(1)
        torch.testing.assert_close(targets, shares)
        assert torch.equal(images[:, 0], images[:, 1])
        most, least = max(most, float(1 - shares.diagonal().min())), min(least, float(1 - shares.diagonal().min()))
    assert most > 0.7
    assert least < 0.1
