"""Pictures of episodes and of training: what they show, and that the same input gives the same bytes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from handful.data.table import Benchmark
from handful.episodes import EpisodeSampler, FixedShots
from handful.errors import InvalidOptionError
from handful.report.plots import GAP, LABEL, contact_sheet, curves_picture, episode_picture


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


def test_rows_are_classes_and_columns_their_images(tiny: Benchmark) -> None:
    sheet = np.asarray(contact_sheet(tiny.test, classes=3, images=4))
    assert sheet.shape == (3 * (56 + GAP), LABEL + 4 * (56 + GAP), 3)
    cell = sheet[56 + GAP : 56 + GAP + 56, LABEL + 56 + GAP : LABEL + 56 + GAP + 56]
    shown = tiny.test.table.images[int(tiny.test.starts[2]) + 1, 0].numpy()  # classes 0, 2 and 5 of six
    assert np.array_equal(cell[::2, ::2, 0], shown)


def test_a_sheet_never_asks_for_more_than_there_is(tiny: Benchmark) -> None:
    sheet = contact_sheet(tiny.val, classes=100, images=100)
    assert sheet.height == len(tiny.val) * (56 + GAP)


def test_an_empty_sheet_is_refused(tiny: Benchmark) -> None:
    with pytest.raises(InvalidOptionError):
        contact_sheet(tiny.val, classes=0)
