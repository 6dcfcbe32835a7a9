"""A contact sheet: a few images of a few classes on one page, to see what a data set looks like."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageDraw

from handful.data.table import ClassDataset
from handful.errors import InvalidOptionError

LEAST = 56
"""Smaller images are enlarged by a whole factor until their side has this many pixels."""
LABEL = 220
GAP = 2


def contact_sheet(dataset: ClassDataset, classes: int = 12, images: int = 10) -> Image.Image:
    """`classes` rows, one per class, spread evenly over the split, with the first `images` images of each class."""
    if classes < 1 or images < 1:
        raise InvalidOptionError(f"A contact sheet needs at least one class and image, but got {classes} x {images}.")
    if not len(dataset):
        raise InvalidOptionError(f"Split '{dataset.name}' has no classes to show.")
    rows = np.linspace(0, len(dataset) - 1, min(classes, len(dataset))).round().astype(int).tolist()
    _, height, width = dataset.image_shape
    factor = max(1, -(-LEAST // max(height, width)))
    height, width = height * factor, width * factor
    sheet = Image.new("RGB", (LABEL + images * (width + GAP), len(rows) * (height + GAP)), "white")
    pen = ImageDraw.Draw(sheet)
    for at, row in enumerate(rows):
        top = at * (height + GAP)
        pen.text((4, top + height // 2 - 6), dataset.classes[row][-34:], fill="black")
        first, n = int(dataset.starts[row]), min(images, int(dataset.counts[row]))
        for column, pixels in enumerate(dataset.table.images[first : first + n].permute(0, 2, 3, 1).numpy()):
            picture = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
            sheet.paste(
                picture.resize((width, height), Image.Resampling.NEAREST), (LABEL + column * (width + GAP), top)
            )
    return sheet
