import pytest
import torch
from torch import Generator, Tensor

from handful.data.augment import Compose, Crop, Flip, Jitter, Transform
from handful.data.table import unit_floats
from handful.errors import InvalidOptionError, ShapeError

ALL = Compose((Crop(4), Flip(), Jitter()))


def photos(n: int = 24, channels: int = 3, height: int = 12, width: int = 10) -> Tensor:
    nhwc = torch.randint(0, 256, (n, height, width, channels), dtype=torch.uint8, generator=seeded(7))
    return nhwc.permute(0, 3, 1, 2)


def seeded(seed: int) -> Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("transform", [Crop(2), Flip(), Jitter(), ALL], ids=repr)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_output_is_float_in_the_unit_interval_and_channels_last(transform: Transform, channels: int) -> None:
    images = photos(channels=channels)
    before = images.clone()
    changed = transform(images, seeded(0))
    assert changed.shape == images.shape
    assert changed.dtype == torch.float32
    assert changed.is_contiguous(memory_format=torch.channels_last)
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert torch.equal(images, before)


@pytest.mark.parametrize("transform", [Crop(2), Flip(), Jitter(), ALL], ids=repr)
def test_the_result_depends_on_the_seed_alone(transform: Transform) -> None:
    images = photos()
    global_state = torch.get_rng_state()
    assert torch.equal(transform(images, seeded(3)), transform(images, seeded(3)))
    assert not torch.equal(transform(images, seeded(3)), transform(images, seeded(4)))
    assert torch.equal(torch.get_rng_state(), global_state)


@pytest.mark.parametrize("transform", [Crop(2), Flip(), Jitter(), ALL], ids=repr)
def test_bytes_and_floats_give_the_same(transform: Transform) -> None:
    images = photos()
    from_floats = transform(unit_floats(images).contiguous(), seeded(5))
    torch.testing.assert_close(transform(images, seeded(5)), from_floats, rtol=0, atol=1e-6)  # a rounding of float32


def test_a_crop_is_a_window_of_the_padded_image() -> None:
    images, padding = photos(n=60), 3
    cropped = Crop(padding)(images, seeded(1))
    padded = torch.nn.functional.pad(unit_floats(images), [padding] * 4)
    windows = padded.unfold(2, 12, 1).unfold(3, 10, 1).movedim(1, 3)  # (n, 7, 7, c, h, w)
    matches = (windows == cropped[:, None, None]).flatten(3).all(-1)
    places = matches.flatten(1).int().argmax(1)
    assert bool(matches.flatten(1).any(1).all())
    assert len(places.unique()) > 20  # 60 draws from 49 places: about 35 differ


def test_a_crop_without_padding_is_the_image() -> None:
    images = photos()
    assert torch.equal(Crop(0)(images, seeded(0)), unit_floats(images))


def test_a_flip_mirrors_some_images_and_leaves_the_others() -> None:
    images = photos(n=200)
    flipped, same = Flip()(images, seeded(2)), unit_floats(images)
    left = (flipped == same).flatten(1).all(1)
    mirrored = (flipped == same.flip(-1)).flatten(1).all(1)
    assert bool((left ^ mirrored).all())
    assert 70 < int(mirrored.sum()) < 130  # 100 expected, deviation 7


def test_a_certain_flip_mirrors_all_and_an_impossible_one_none() -> None:
    images = photos()
    assert torch.equal(Flip(1.0)(images, seeded(0)), unit_floats(images).flip(-1))
    assert torch.equal(Flip(0.0)(images, seeded(0)), unit_floats(images))


def test_jitter_is_brightness_then_contrast_then_saturation() -> None:
    images = photos() // 4 + 96  # far from 0 and 255, so that nothing is clipped
    changed = Jitter(0.2, 0.2, 0.2)(images, seeded(6))
    b, c, s = 1 + 0.2 * (2 * torch.rand((3, len(images), 1, 1, 1), generator=seeded(6)) - 1)
    expected = b * unit_floats(images)
    expected = mean_grey(expected) + c * (expected - mean_grey(expected))
    expected = grey(expected) + s * (expected - grey(expected))
    torch.testing.assert_close(changed, expected, rtol=0, atol=1e-6)  # a few roundings of float32


def test_jitter_of_nothing_changes_nothing() -> None:
    images = photos()
    unchanged = Jitter(0, 0, 0)(images, seeded(0))
    torch.testing.assert_close(unchanged, unit_floats(images), rtol=0, atol=1e-6)


def test_an_empty_batch_stays_empty() -> None:
    assert ALL(photos(n=0), seeded(0)).shape == (0, 3, 12, 10)


@pytest.mark.parametrize(
    "make", [lambda: Crop(-1), lambda: Flip(1.5), lambda: Jitter(brightness=2), lambda: Jitter(saturation=-1)]
)
def test_impossible_options_are_refused(make: object) -> None:
    with pytest.raises(InvalidOptionError):
        make()  # type: ignore[operator]


def test_a_single_image_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(3, 12, 10\)"):
        ALL(photos()[0], seeded(0))


def grey(images: Tensor) -> Tensor:
    return (images * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(1, keepdim=True)


def mean_grey(images: Tensor) -> Tensor:
    return grey(images).mean((2, 3), keepdim=True)


@pytest.mark.parametrize("shape", [(3, 3, 4, 4), (5, 70, 3, 32, 32), (700, 3, 32, 32), (0, 3, 4, 4)])
def test_bytes_become_the_same_floats_piece_by_piece_as_at_once(shape):
    nhwc = torch.randint(0, 256, (*shape[:-3], *shape[-2:], 3), dtype=torch.uint8)
    images = nhwc.movedim(-1, -3)
    floats = unit_floats(images)
    assert torch.equal(floats, images.to(torch.float32).div_(255))
    assert floats.movedim(-3, -1).is_contiguous()  # channels stay last in memory
