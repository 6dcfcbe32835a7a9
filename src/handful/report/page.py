"""A self-contained HTML page: text, tables and pictures in one file that opens anywhere, without a network.

The markup is in templates/, filled in by Jinja with auto-escaping on: a part of a page is `Markup`, and any other text
that reaches a template is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@dataclass(frozen=True)
class Picture:
    """An image with its kind ('png' or 'svg+xml') and what it shows, in words."""

    data: bytes
    kind: str
    text: str


@dataclass(frozen=True)
class Thumb:
    """A small JPEG (empty: a blank square) with a line of text below; `title` shows when the mouse rests on it."""

    jpeg: bytes
    text: str = ""
    title: str = ""
    marked: bool = False
    small: bool = False


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
    """Lines to type or to read, set in a fixed-width font."""
    return _part("code", lines)


def figure(picture: Picture, caption: str) -> Markup:
    """A picture inside the page, with a caption."""
    return _part("figure", picture, caption)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], strong: Sequence[int] = (), remarks: bool = False
) -> Markup:
    """A table; the rows numbered in `strong` are set in bold, and `remarks` lets the last column wrap."""
    return _part("table", head, rows, strong, remarks)


def tiles(facts: Sequence[tuple[str, str]]) -> Markup:
    """Pairs of a figure and what it means, side by side."""
    return _part("tiles", facts)


def thumbs(pictures: Sequence[Thumb]) -> Markup:
    """Pictures side by side."""
    return _part("thumbs", pictures)


def groups(rows: Sequence[Group]) -> Markup:
    """Rows of pictures, one per group."""
    return _part("groups", rows)


def shades(names: Sequence[str], counts: Sequence[Sequence[int]]) -> Markup:
    """A square table of counts, each shaded by its share of the row: the diagonal in blue, all else in red."""
    return _part("shades", names, counts)


def page(title: str, lead: str, parts: Sequence[Markup]) -> str:
    """The whole document."""
    return _templates().get_template("page.html").render(title=title, lead=lead, parts=parts)


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
    return templates


def _part(name: str, *arguments: Any) -> Markup:
    made: Markup = getattr(_templates().get_template("parts.html").module, name)(*arguments)
    return made
