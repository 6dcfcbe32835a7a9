"""How pixels become inputs of a network: shifted, scaled, bright ink, and plain values in a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from handful.embeddings.preprocessing import Preprocessing, preprocessing_from_json
from handful.errors import CheckpointError, InvalidOptionError


def test_pixels_are_divided_by_255_then_shifted_and_scaled_by_channel() -> None:
    pixels = np.array([[[[0, 51, 255]]]], np.uint8)  # one image of one pixel
    plain = Preprocessing(1, 1).tensor(pixels)
    assert plain.shape == (1, 3, 1, 1)
    assert plain.flatten().tolist() == pytest.approx([0.0, 0.2, 1.0])
    both = Preprocessing(1, 1, mean=(0.5, 0.2, 0.0), std=(0.5, 1.0, 0.25)).tensor(pixels)
    assert both.flatten().tolist() == pytest.approx([-1.0, 0.0, 4.0], abs=1e-7)
    mean_only = Preprocessing(1, 1, mean=(0.5, 0.2, 0.0)).tensor(pixels)
    assert mean_only.flatten().tolist() == pytest.approx([-0.5, 0.0, 1.0], abs=1e-7)


def test_tensors_are_in_channels_last_memory() -> None:
    images = Preprocessing(4, 5).tensor(np.zeros((2, 4, 5, 3), np.uint8))
    assert images.shape == (2, 3, 4, 5)
    assert images.is_contiguous(memory_format=torch.channels_last)


def test_ink_becomes_bright_by_the_brightness_of_the_border() -> None:
    on_paper = np.full((5, 5, 1), 250, np.uint8)
    on_paper[2, 2] = 10
    bright = Preprocessing(5, 5, 1, bright_ink=True)
    inverted = bright.oriented(on_paper)
    assert inverted[2, 2] == 245
    assert inverted[0, 0] == 5
    np.testing.assert_array_equal(bright.oriented(inverted), inverted)
    np.testing.assert_array_equal(Preprocessing(5, 5, 1).oriented(on_paper), on_paper)


def test_the_decoder_is_told_size_channels_and_fit() -> None:
    decoding = Preprocessing(28, 30, 1, "squash").decoding
    assert (decoding.height, decoding.width, decoding.channels, decoding.fit) == (28, 30, 1, "squash")


def test_plain_values_there_and_back() -> None:
    first = Preprocessing(28, 30, 1, "squash", True, (0.5,), (0.25,))
    values = first.as_json()
    assert preprocessing_from_json({**values, "mean": list(values["mean"])}) == first


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"height": 0}, "0x224"),
        ({"width": 5000}, "224x5000"),
        ({"channels": 2}, "2, 'crop'"),
        ({"fit": "stretch"}, "'stretch'"),
        ({"mean": (0.5,)}, "mean .*1 .*3 "),
        ({"std": (0.5, 0.5)}, "std .*2 .*3 "),
        ({"std": (0.5, 0.0, 0.5)}, r"std .*0\.0"),
        ({"std": (0.5, float("nan"), 0.5)}, "std .*nan"),
    ],
)
def test_values_that_cannot_work_are_refused(wrong: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidOptionError, match=fact):
        Preprocessing(**wrong)
    with pytest.raises(CheckpointError, match=fact):
        preprocessing_from_json(wrong)


@pytest.mark.parametrize("wrong", [{"colour": "blue"}, {"mean": 3}, {"height": "28"}])
def test_values_of_another_kind_in_a_file_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError):
        preprocessing_from_json(wrong)
