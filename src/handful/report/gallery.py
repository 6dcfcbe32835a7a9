"""Parts of a page that show many small pictures, and a table of counts as shades."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

GALLERY_STYLE = """<style>
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.tile { background: var(--wash); border: 1px solid var(--line); border-radius: 8px; padding: .7rem 1rem;
        min-width: 6rem; }
.tile b { display: block; font-size: 1.5rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: .88rem; }
.group { display: flex; gap: 1rem; padding: .7rem 0; border-bottom: 1px solid var(--line); align-items: flex-start; }
.group > div:first-child { flex: 0 0 11rem; overflow-wrap: anywhere; }
.group small, .thumb small { color: var(--soft); font-size: .82rem; display: block; line-height: 1.35; }
.thumb small { margin: .3rem 0 .2rem; }
.thumbs { display: flex; flex-wrap: wrap; gap: .45rem; }
.thumb { width: 6.4rem; overflow-wrap: anywhere; }
.thumb.small { width: 3.6rem; }
.thumb img, .thumb i { display: block; width: 100%; aspect-ratio: 1; object-fit: cover; border-radius: 5px;
                       background: var(--wash); border: 1px solid var(--line); }
.thumb.marked img, .thumb.marked i { outline: 2px solid #d9480f; outline-offset: 1px; }
table.shades td, table.shades th { text-align: center; padding: .3rem .55rem; border: 1px solid var(--line);
  max-width: 9rem; overflow: hidden; text-overflow: ellipsis; }
table.shades th:first-child { text-align: right; }
@media (max-width: 40rem) { .group { display: block; } .group > div:first-child { margin-bottom: .4rem; } }
</style>"""


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


def tiles(facts: Sequence[tuple[str, str]]) -> str:
    """Figures with what they mean, side by side."""
    cells = "".join(
        f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for value, name in facts
    )
    return f'<div class="tiles">{cells}</div>'


def thumbs(pictures: Sequence[Thumb]) -> str:
    """Pictures side by side."""
    return f'<div class="thumbs">{"".join(_thumb(each) for each in pictures)}</div>'


def groups(rows: Sequence[Group]) -> str:
    """Rows of pictures, one a group."""
    return "".join(
        f'<div class="group"><div><b>{escape(row.name)}</b><small>{escape(row.remark)}</small></div>'
        f"{thumbs(row.thumbs)}</div>"
        for row in rows
    )


def shades(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """A square table of counts: rows sum up to the darkest shade, the diagonal is blue, all else is red."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = ""
    for number, (name, row) in enumerate(zip(names, counts, strict=True)):
        total = max(sum(row), 1)
        cells = "".join(_shade(count, count / total, column == number) for column, count in enumerate(row))
        body += f"<tr><th>{escape(name)}</th>{cells}</tr>"
    whole = f'<table class="shades"><thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="scroll">{whole}</div>'


def _shade(count: int, share: float, right: bool) -> str:
    colour = "11,107,203" if right else "217,72,15"
    return f'<td style="background:rgba({colour},{0.65 * share:.2f})">{count or ""}</td>'


def _thumb(thumb: Thumb) -> str:
    kinds = "thumb" + (" small" if thumb.small else "") + (" marked" if thumb.marked else "")
    title = f' title="{escape(thumb.title, quote=True)}"' if thumb.title else ""
    data = base64.b64encode(thumb.jpeg).decode()
    text = escape(thumb.title or thumb.text, quote=True)
    image = f'<img alt="{text}" src="data:image/jpeg;base64,{data}">' if thumb.jpeg else "<i></i>"
    return f'<div class="{kinds}"{title}>{image}<small>{escape(thumb.text)}</small></div>'
