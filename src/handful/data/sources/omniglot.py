"""Omniglot (Lake et al., 2015): 1623 handwritten characters of 50 alphabets, drawn by 20 people each.

As in the paper, drawings are rotated, then resized to 28 x 28, then inverted, so that ink is bright. The four rotations
of a character are four classes. The same archives give two data sets that differ only in how they are resized:
`omniglot` is antialiased, and `omniglot-nearest` has the pixels of the authors' code. That code resizes the 1-bit
image, for which Pillow ignores the filter and uses nearest neighbour, so every pixel is 0 or 255. (The code also
transposes every image. Because all four rotations are classes, this mirrors the whole data set; we do not do it.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from handful.data._packing import Item
from handful.data.archives import Blob, Tree
from handful.data.decode import Decoding
from handful.data.download import Remote
from handful.data.sources.source import Contents, Source, decoded, expect_counts, joined
from handful.data.splits import PARTS, entries, ranges
from handful.errors import DataError

DRAWING = re.compile(r"(?:^|/)([^/]+/character\d\d)/(\d{4}_\d\d\.png)$")
DECODING = Decoding(28, 28, channels=1, fit="squash", invert=True)
NEAREST = replace(DECODING, filter="nearest")
DRAWERS = 20

Class = tuple[str, int]
"""A character, "Alphabet/characterNN", and its rotation in quarter turns."""


def read(trees: Sequence[Tree], decoding: Decoding = DECODING) -> Contents:
    """Both halves of Omniglot, from its two zips or from unpacked folders."""
    drawings: dict[str, dict[str, Blob]] = {}
    for tree in trees:
        for name, blob in tree.files.items():
            if match := DRAWING.search(name):
                drawings.setdefault(match[1], {})[match[2]] = blob
    if not drawings:
        raise DataError(f"No drawings of Omniglot (Alphabet/characterNN/NNNN_DD.png) in {joined(trees)}.")
    classes = vinyals_classes()
    expect_counts(
        {character: len(files) for character, files in drawings.items()},
        dict.fromkeys([character for character, turns in classes if turns == 0], DRAWERS),
        joined(trees),
        "Omniglot (both images_background and images_evaluation are needed)",
    )
    items = [
        Item(blob, f"{character}/{file}", turns)
        for character, turns in classes
        for file, blob in sorted(drawings[character].items())
    ]
    names = tuple(named(classes))
    return Contents(
        classes=names,
        counts=(DRAWERS,) * len(names),
        shape=decoding.shape,
        splits={
            "vinyals": ranges({part: list(named(vinyals_classes(part))) for part in PARTS}, names),
            "lake": ranges({part: list(named((c, 0) for c in characters("lake", part))) for part in PARTS}, names),
        },
        groups=tuple(character.split("/")[0] for character, _ in classes),
        pixels=decoded(items, decoding),
    )


def characters(split: str, part: str) -> list[str]:
    """The characters of one part of a split, as "Alphabet/characterNN"."""
    return [
        f"{entry.name}/character{number:02d}"
        for entry in entries(f"omniglot-{split}")
        if entry.part == part
        for number in entry.numbers
    ]


def vinyals_classes(*parts: str) -> list[Class]:
    """The classes of some or all parts of the Vinyals split, with the rotations of a character next to each other."""
    return [(c, turns) for part in parts or PARTS for c in characters("vinyals", part) for turns in range(4)]


def named(classes: Iterable[Class]) -> Iterable[str]:
    """The classes' names, "Alphabet/characterNN/rotDDD"."""
    return (f"{character}/rot{90 * turns:03d}" for character, turns in classes)


def _remote(name: str, md5: str) -> Remote:
    path = f"brendenlake/omniglot/{{}}master/python/{name}"
    mirrors = ("https://raw.githubusercontent.com/" + path.format(""), "https://github.com/" + path.format("raw/"))
    return Remote(name, mirrors, md5)


SOURCE = Source(
    name="omniglot",
    title="Omniglot, antialiased: 1623 characters x 20 drawings, 28 x 28 grey",
    licence="MIT",
    how="handful data add omniglot (16 MB)",
    read=read,
    companions=("omniglot-nearest",),
    remotes=(
        _remote("images_background.zip", "68d2efa1b9178cc56df9314c21c6e718"),
        _remote("images_evaluation.zip", "6b91aef0f799c5bb55b94e3f2daec811"),
    ),
    archives=("images_background.zip", "images_evaluation.zip"),
)

NEAREST_SOURCE = replace(
    SOURCE,
    name="omniglot-nearest",
    title="Omniglot, nearest neighbour as in the authors' code: 1623 characters x 20 drawings, 28 x 28 black and white",
    how="handful data add omniglot (16 MB, adds both)",
    read=partial(read, decoding=NEAREST),
    companions=(),
)
