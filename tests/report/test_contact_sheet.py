from __future__ import annotations

import numpy as np
import pytest

from handful.data.table import Benchmark
from handful.errors import InvalidOptionError
from handful.report.contact_sheet import GAP, LABEL, contact_sheet


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
