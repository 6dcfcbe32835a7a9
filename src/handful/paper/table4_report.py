"""The report of table 4: seconds here beside the paper's, and both as multiples of one row, since machines differ."""

from __future__ import annotations

import json
from pathlib import Path

from handful._io import write_atomically
from handful.meta.manifest import machine, now, versions
from handful.paper.plots import OURS, PAPER, panels, svg
from handful.paper.published import SOURCE
from handful.paper.table4 import EPISODES, POOL, TimedResult
from handful.paper.tables import Lines, markdown
from handful.report.page import Picture, code, figure, heading, page, paragraph, table

TITLE = "Table 4: the time to solve 10,000 episodes of 10 images"
UNIT = "R2-D2 (32C)"
HEAD = ("Method", "paper", "by episode", "images once", "paper, ratio", "ours, ratio", "timed")


def lines_of(results: list[TimedResult]) -> Lines:
    """The table in words; times relative to R2-D2 with 32 channels where that row was timed."""
    unit = next((result for result in results if result.label == UNIT), None)
    rows = []
    for result in results:
        relative = (
            (f"{result.published / unit.published:.2f}", f"{result.by_episode.seconds / unit.by_episode.seconds:.2f}")
            if unit
            else ("—", "—")
        )
        timings = [timing for timing in (result.by_episode, result.images_once) if timing is not None]
        once = str(result.images_once) if result.images_once else "—"
        timed = "; ".join(timing.basis for timing in timings)
        rows.append((result.label, f"{result.published:.0f} s", str(result.by_episode), once, *relative, timed))
    return Lines(TITLE, HEAD, tuple(rows))


def ratio_picture(results: list[TimedResult]) -> Picture:
    """The paper's times and ours, each as a multiple of one row (of the first, where that row was not timed)."""
    unit = next((result for result in results if result.label == UNIT), results[0])
    canvas, (place,) = panels(1, height=1.1 + 0.3 * len(results))
    rows = range(len(results))
    paper = [result.published / unit.published for result in results]
    ours = [result.by_episode.seconds / unit.by_episode.seconds for result in results]
    place.scatter(paper, [y - 0.1 for y in rows], marker="D", s=24, color=PAPER, label="the paper")
    place.scatter(ours, [y + 0.1 for y in rows], marker="o", s=30, color=OURS, label="here")
    place.set_yticks(rows, [result.label for result in results])
    place.set_ylim(len(results) - 0.5, -0.5)
    place.set_xscale("log")
    place.set_xlabel(f"time, as a multiple of {unit.label}", fontsize=9)
    canvas.legend(loc="outside lower center", ncols=2, frameon=False)
    return svg(canvas, TITLE)


def write_timing(results: list[TimedResult], out: Path, command: str) -> list[Path]:
    """Write table4.json, table4.md and table4.html; their paths."""
    here = machine()
    told = (
        f"{EPISODES:,} 5-way 1-shot episodes with one query a class, noise images of 84 x 84, untrained networks, on "
        f"{here['processor']} with {here['threads']} threads; the paper used one GTX 1080. 'Images once' embeds a "
        f"split of {POOL:,} images and solves all episodes from their features; MAML adapts the network itself to each "
        f"episode, so that nothing can be shared. Compare the ratios to {UNIT}, by episode, for machines differ."
    )
    lines = lines_of(results)
    facts = {
        "title": TITLE,
        "source": f"{SOURCE}, table 4",
        "created": now(),
        "command": command,
        "machine": here,
        "versions": versions(),
        "rows": [result.as_json() for result in results],
    }
    body = [table(lines.head, lines.rows, remarks=True), paragraph(told)]
    body += [figure(ratio_picture(results), f"Time by episode as a multiple of {UNIT}; logarithmic.")]
    body += [heading("Do it again"), code([command])]
    texts = {
        "json": json.dumps(facts, indent=1),
        "md": f"# {TITLE}\n\n{markdown(lines)}\n\n{told}\n\nRepeat it with `{command}`.\n",
        "html": page(TITLE, f"Measured on this machine beside the published times ({SOURCE}, table 4).", body),
    }
    paths = []
    for kind, text in texts.items():
        paths.append(out / f"table4.{kind}")
        write_atomically(paths[-1], text.encode())
    return paths
