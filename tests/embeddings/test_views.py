"""Mean features over views: which views there are, each image by itself, and what is refused; centred features."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from handful.embeddings import Centred, MeanOverViews, conv4
from handful.errors import InvalidOptionError, ShapeError
from handful.meta.features import folded


class Kept(nn.Module):
    """Flattens images and keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(images[0, 0].clone())
        return images.flatten(1)


def image() -> Tensor:
    return torch.arange(6.0).view(1, 1, 2, 3)


@pytest.mark.parametrize(
    ("mirror", "shift", "count"),
    [(False, 0, 1), (True, 0, 2), (False, 1, 5), (True, 1, 10), (False, 2, 9), (True, 2, 18)],
)
def test_the_features_are_the_mean_over_all_views(mirror: bool, shift: int, count: int) -> None:
    kept, pixels = Kept(), torch.arange(20.0).view(1, 1, 4, 5)
    found = MeanOverViews(kept, mirror=mirror, shift=shift)(pixels)
    assert len(kept.seen) == count
    assert len({tuple(view.flatten().tolist()) for view in kept.seen}) == count
    torch.testing.assert_close(found, torch.stack(kept.seen).mean(0).view(1, -1))


def test_views_are_the_mirror_image_and_moves_by_a_pixel_with_repeated_borders() -> None:
    kept = Kept()
    MeanOverViews(kept, mirror=True, shift=1)(image())
    assert [view.int().tolist() for view in kept.seen[:6]] == [
        [[0, 1, 2], [3, 4, 5]],
        [[0, 1, 2], [0, 1, 2]],
        [[3, 4, 5], [3, 4, 5]],
        [[0, 0, 1], [3, 3, 4]],
        [[1, 2, 2], [4, 5, 5]],
        [[2, 1, 0], [5, 4, 3]],
    ]
    for one, other in zip(kept.seen[:5], kept.seen[5:], strict=True):
        assert torch.equal(one.flip(-1), other)


def test_the_farther_moves_follow_the_nearer_ones() -> None:
    kept = Kept()
    MeanOverViews(kept, shift=2)(image())
    assert [view.int().tolist() for view in kept.seen[-2:]] == [[[0, 0, 0], [3, 3, 3]], [[2, 2, 2], [5, 5, 5]]]


@pytest.mark.parametrize("shift", [-1, 5])
def test_a_shift_beyond_the_limit_is_refused(shift: int) -> None:
    with pytest.raises(InvalidOptionError, match=f"from 0 to 4, but got {shift}"):
        MeanOverViews(nn.Flatten(), shift=shift)


def test_centred_features_are_less_the_mean() -> None:
    centred = Centred(nn.Flatten(), torch.tensor([1.0, 2.0, 3.0]))
    assert centred(torch.tensor([[[1.0, 2.0, 4.0]]])).tolist() == [[0.0, 0.0, 1.0]]


def test_an_image_and_its_mirror_image_get_the_same_features() -> None:
    net, images = conv4("32C", 3).eval(), torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        mean = MeanOverViews(net, mirror=True)
        torch.testing.assert_close(mean(images), mean(images.flip(-1)))
        assert not torch.allclose(net(images), net(images.flip(-1)), atol=1e-3)


def test_an_image_alone_equals_the_image_in_a_batch_and_folding_changes_nothing() -> None:
    mean, images = MeanOverViews(conv4("32C", 3), mirror=True, shift=1), torch.rand(5, 3, 32, 32)
    mean(images)  # running statistics that are not 0 and 1
    mean.eval()
    with torch.no_grad():
        together = mean(images)
        torch.testing.assert_close(torch.cat([mean(each[None]) for each in images]), together, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(folded(mean)(images), together, rtol=1e-4, atol=1e-5)


def test_a_learner_with_a_network_of_its_own_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="without views"):
        MeanOverViews(nn.Identity(), mirror=True)
    with pytest.raises(InvalidOptionError, match="without centring"):
        Centred(nn.Identity(), torch.zeros(1))


def test_what_is_no_batch_of_images_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(3, 8, 8\)"):
        MeanOverViews(nn.Flatten(), shift=1)(torch.rand(3, 8, 8))


def test_its_repr_tells_the_number_of_views() -> None:
    assert "views=10" in repr(MeanOverViews(nn.Flatten(), mirror=True, shift=1))
