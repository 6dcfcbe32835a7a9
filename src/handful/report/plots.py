"""Pictures for reports: examples of a data set or an episode, and learning curves."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from handful.data.table import ClassDataset
from handful.episodes import Episode
from handful.errors import InvalidOptionError
from handful.report.page import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Curve = Sequence[tuple[int, float]]
"""Pairs of episodes trained and a score."""

_ZOOM, _GAP, _GUTTER = 3, 6, 36


def episode_picture(episode: Episode, queries: int = 5) -> Picture:
    """One episode with dark ink: a row per class, with support images on the left and some queries on the right."""
    way = episode.support.targets.shape[-1]
    support = [_of_class(episode.support.inputs, episode.support.targets, label) for label in range(way)]
    query = [_of_class(episode.query.inputs, episode.query.targets, label)[:queries] for label in range(way)]
    size = support[0].shape[-1] * _ZOOM
    columns = len(support[0]) + len(query[0])
    sheet = Image.new("RGB", (columns * (size + _GAP) + _GUTTER, way * (size + _GAP)), "white")
    for row, (shots, asked) in enumerate(zip(support, query, strict=True)):
        for column, image in enumerate([*shots, *asked]):
            left = column * (size + _GAP) + (_GUTTER if column >= len(shots) else 0)
            sheet.paste(_tile(image, size), (left, row * (size + _GAP)))
    buffer = io.BytesIO()
    sheet.save(buffer, format="PNG")
    return Picture(buffer.getvalue(), "png", f"{way} classes, support images left, queries right")


def curves_picture(curves: Mapping[str, Curve], ylabel: str) -> Picture:
    """Scores in percent against episodes trained, one line per name."""
    from matplotlib.figure import Figure

    canvas = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = canvas.subplots()
    for name, curve in curves.items():
        axes.plot(
            [x for x, _ in curve], [100 * y for _, y in curve], marker="o", markersize=3.5, linewidth=1.8, label=name
        )
    axes.set_xlabel("episodes trained")
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if len(curves) > 1:
        axes.legend(frameon=False)
    return svg(canvas, f"{ylabel} against episodes trained: {', '.join(curves)}")


def svg(canvas: Figure, text: str) -> Picture:
    """The canvas as an SVG picture, with reproducible bytes; `text` describes what it shows."""
    from matplotlib import rc_context

    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "handful"}):
        canvas.savefig(buffer, format="svg", metadata={"Date": None})
    return Picture(buffer.getvalue(), "svg+xml", text)


def _of_class(inputs: Tensor, targets: Tensor, label: int) -> Tensor:
    return inputs[targets.argmax(-1) == label]


def _tile(image: Tensor, size: int) -> Image.Image:
    pixels = (image.movedim(0, -1) * 255).round().byte().numpy()
    if pixels.shape[-1] == 1:
        return (
            Image.fromarray(255 - np.squeeze(pixels, -1), "L")
            .resize((size, size), Image.Resampling.NEAREST)
            .convert("RGB")
        )
    return Image.fromarray(pixels, "RGB").resize((size, size), Image.Resampling.NEAREST)


LEAST = 56
"""Smaller images are enlarged by an integer factor until their side has this many pixels."""
LABEL = 220
GAP = 2


def contact_sheet(dataset: ClassDataset, classes: int = 12, images: int = 10) -> Image.Image:
    """A contact sheet with the first `images` images of `classes` classes, spread evenly over the split."""
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
