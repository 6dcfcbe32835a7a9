"""Self-contained HTML pages: text, tables and pictures in one file that opens anywhere, without a network.

The markup is in templates/, rendered by Jinja with auto-escaping: parts of a page are `Markup`, and any other text that
reaches a template is escaped.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Picture:
    """An image with its kind ('png' or 'svg+xml') and a description of what it shows."""

    data: bytes
    kind: str
    text: str


@dataclass(frozen=True)
class Thumb:
    """A small JPEG (or a blank square if empty) with a line of text below; `title` is its tooltip."""

    jpeg: bytes
    text: str = ""
    title: str = ""
    marked: bool = False
    small: bool = False
    key: str = ""
    """Identifies the picture in the page, so that it can be opened large, alone or from a table of counts."""
    path: str = ""
    """The path of the image, shown for copying."""


@dataclass(frozen=True)
class Group:
    """A row of pictures under a name, with a remark."""

    name: str
    remark: str
    thumbs: Sequence[Thumb]


def heading(text: str) -> Markup:
    """The title of a section."""
    return _part("heading", text)


def paragraph(text: str) -> Markup:
    """A paragraph of plain text."""
    return _part("paragraph", text)


def code(lines: Sequence[str]) -> Markup:
    """Lines of code in a fixed-width font."""
    return _part("code", lines)


def figure(picture: Picture, caption: str) -> Markup:
    """A picture inside the page, with a caption."""
    return _part("figure", picture, caption)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], strong: Sequence[int] = (), remarks: bool = False
) -> Markup:
    """A table; the rows with numbers in `strong` are bold, and `remarks` lets the last column wrap."""
    return _part("table", head, rows, strong, remarks)


def tiles(facts: Sequence[tuple[str, str]]) -> Markup:
    """Figures with their meaning, side by side."""
    return _part("tiles", facts)


def thumbs(pictures: Sequence[Thumb]) -> Markup:
    """Pictures side by side."""
    return _part("thumbs", pictures)


def groups(rows: Sequence[Group]) -> Markup:
    """Rows of pictures, one per group."""
    return _part("groups", rows)


def shades(
    names: Sequence[str], counts: Sequence[Sequence[int]], examples: Mapping[tuple[int, int], Sequence[str]]
) -> Markup:
    """A square table of counts, each shaded by its share of the row: blue on the diagonal, red elsewhere.

    `examples` gives the keys of the pictures that a cell opens, by row and column.
    """
    return _part("shades", names, counts, examples)


def page(title: str, lead: str, parts: Sequence[Markup], viewer: bool = False) -> str:
    """The whole document; with a `viewer`, pictures that have a key open large."""
    return _templates().get_template("page.html").render(title=title, lead=lead, parts=parts, viewer=viewer)


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("handful.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["base64"] = lambda data: base64.b64encode(data).decode()
    templates.filters["breakable"] = _breakable
    return templates


def _breakable(text: str) -> Markup:
    """A name that may wrap after the separators of its words."""
    return Markup("<wbr>").join(Markup.escape(word) for word in re.split(r"(?<=[_\-/\\.,])", str(text)) if word)


def _part(name: str, *arguments: Any) -> Markup:
    made: Markup = getattr(_templates().get_template("parts.html").module, name)(*arguments)
    return made
