"""A self-contained HTML page: text, tables and pictures in one file that opens anywhere, without a network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5d6570; --line: #d9dde3; --paper: #ffffff; --wash: #f4f6f8;
        --accent: #0b6bcb; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --soft: #a2abb6; --line: #3a4048; --paper: #15181c; --wash: #1e2227; --accent: #6db3ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
       font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; }
p { margin: .5rem 0; max-width: 46rem; }
p.lead { color: var(--soft); font-size: 1.08rem; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; border-radius: 6px; background: #fff; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .35rem; max-width: 46rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .9rem .45rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; }
tr.strong td { font-weight: 650; }
table.remarks { font-size: .88rem; }
table.remarks th, table.remarks td { padding-right: .75rem; }
table.remarks th:last-child, table.remarks td:last-child { white-space: normal; text-align: left; line-height: 1.3;
      min-width: 9.5rem; padding-right: 0; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; overflow-x: auto;
      font: 14px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
"""


@dataclass(frozen=True)
class Picture:
    """An image with its kind ('png' or 'svg+xml') and what it shows, in words."""

    data: bytes
    kind: str
    text: str


def heading(text: str) -> str:
    """A section's title."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def code(lines: Sequence[str]) -> str:
    """Lines to type or to read, as they are."""
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def figure(picture: Picture, caption: str) -> str:
    """A picture inside the page, with a caption."""
    data = base64.b64encode(picture.data).decode()
    image = f'<img alt="{escape(picture.text, quote=True)}" src="data:image/{picture.kind};base64,{data}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], strong: Sequence[int] = (), remarks: bool = False) -> str:
    """A table; the rows numbered in `strong` are set in bold, and `remarks` are a last column that may wrap."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr{' class=strong' if index in strong else ''}>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for index, row in enumerate(rows)
    )
    kind = ' class="remarks"' if remarks else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def page(title: str, lead: str, parts: Sequence[str]) -> str:
    """The whole document."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n"
        f'<p class="lead">{escape(lead)}</p>\n' + "\n".join(parts) + "\n</body></html>\n"
    )
