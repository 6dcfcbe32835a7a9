"""Pictures of episodes and of training: what they show, and that the same input gives the same bytes."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from handful.data.table import Benchmark
from handful.episodes import EpisodeSampler, FixedShots
from handful.report.plots import curves_picture, episode_picture


def test_an_episode_has_one_row_per_class_with_support_left_and_queries_right(tiny: Benchmark) -> None:
    picture = episode_picture(EpisodeSampler(tiny.test, FixedShots(3, 2, 4))[0], queries=3)
    sheet = np.asarray(Image.open(io.BytesIO(picture.data)))
    size, gap, gutter = 28 * 3, 6, 36
    assert sheet.shape == (3 * (size + gap), 5 * (size + gap) + gutter, 3)
    between = sheet[:, 2 * (size + gap) : 2 * (size + gap) + gutter]
    assert (between == 255).all()
    assert (sheet[:size, :size] != 255).any()
    assert "3 classes" in picture.text


def test_ink_is_dark(tiny: Benchmark) -> None:
    episode = EpisodeSampler(tiny.test, FixedShots(3, 1, 1))[0]
    sheet = np.asarray(Image.open(io.BytesIO(episode_picture(episode).data)))
    first = (255 * (1 - episode.support.inputs[0, 0])).round().numpy()
    # the middle of each pixel, enlarged three times; half a grey level of rounding
    np.testing.assert_allclose(sheet[1:84:3, 1:84:3, 0], first, atol=1)


def test_curves_name_every_line_and_are_the_same_bytes_twice() -> None:
    curves = {"R2-D2": [(0, 0.2), (100, 0.6)], "ProtoNet": [(0, 0.2), (100, 0.5)]}
    first, second = (curves_picture(curves, "accuracy, %") for _ in range(2))
    assert first.kind == "svg+xml"
    assert "R2-D2" in first.text
    assert "ProtoNet" in first.text
    assert b"<dc:date>" not in first.data
    assert first.data == second.data
