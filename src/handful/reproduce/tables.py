"""Results as rows of words, for Markdown and HTML alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from handful.reproduce.experiments import Column
from handful.reproduce.manifest import Manifest
from handful.reproduce.results import Cell, Pair, Results

HEAD = ("Method · variant", "paper", "ours", "open", "seeds", "difference", "agrees?", "trained")
PAIR_HEAD = ("Method", "less", "paper", "ours, paired", "open", "order")
NONE = "—"
IN_PART = "IN PART"
MAY_LACK = ("paper", "seeds", "difference", "agrees?", "order")
"""Columns that are left out where they are empty."""
WORDS = {
    "agrees": "yes",
    "agrees by the open interval only": "by open interval",
    "above": "no, above",
    "below": "no, below",
}


@dataclass(frozen=True)
class Lines:
    """A table in words: a title, a heading, rows, and the numbers of the rows that were trained in full."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: tuple[int, ...] = ()
    note: str = ""
    """What holds for all rows, told once."""


def column_lines(results: Results, column: Column) -> Lines:
    """All rows of one column beside the paper's numbers."""
    cells = [cell for cell in results.cells if cell.column == column]
    strong = tuple(index for index, cell in enumerate(cells) if cell.scores and not cell.shortfall)
    rows, note = _told_once([_cell_line(cell, results.sets[column].episodes) for cell in cells])
    return Lines(column.title, *_filled(HEAD, rows), strong, note)


def _told_once(rows: list[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], str]:
    """Where all rows fall short in the same words, each says so in two, and the words stand above the table."""
    words = {row[-1] for row in rows}
    if len(rows) < 3 or len(words) > 1 or not rows[0][-1].startswith(IN_PART):
        return rows, ""
    return [(*row[:-1], IN_PART) for row in rows], f"All rows were trained {words.pop()}."


def _filled(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Heading and rows without the columns that may lack and do."""
    kept = [place for place, name in enumerate(head) if name not in MAY_LACK or any(row[place] != NONE for row in rows)]
    picked = [tuple(row[place] for place in kept) for row in (head, *rows)]
    return picked[0], tuple(picked[1:])


def _cell_line(cell: Cell, episodes: int) -> tuple[str, ...]:
    paper = NONE if cell.published is None else str(cell.published)
    name = f"{cell.row.label} · {cell.variant}" if cell.variant else cell.row.label
    if not cell.scores:
        return (name, paper, NONE, NONE, NONE, NONE, NONE, "not run")
    comparison = cell.comparison
    difference = f"{comparison.difference:+.2f} ± {comparison.closed:.2f}" if comparison else NONE
    verdict = WORDS[comparison.verdict] if comparison else NONE
    seeds = f"± {100 * cell.over_seeds.half:.2f} ({len(cell.scores)})" if len(cell.scores) > 1 else NONE
    transductive = ", transductive" if "transductive" in cell.scores[0].measurement.limits else ""
    opened = f"± {100 * cell.opened.half:.2f}"
    fewer = f", first {cell.closed.n:,} episodes" if cell.closed.n < episodes else ""
    return (f"{name}{transductive}{fewer}", paper, str(cell.closed), opened, seeds, difference, verdict, _trained(cell))


def _trained(cell: Cell) -> str:
    if cell.shortfall:
        return f"{IN_PART}: {cell.shortfall.replace('trained for ', '')}"
    return f"in full: {', '.join(f'{score.manifest.episodes:,}' for score in cell.scores)} episodes"


def pair_lines(results: Results, column: Column) -> Lines | None:
    """Paired differences against the reference row, where there are two methods."""
    pairs = results.against_reference(column)
    if not pairs:
        return None
    episodes = results.sets[column].episodes
    return Lines(column.title, *_filled(PAIR_HEAD, [_pair_line(pair, episodes) for pair in pairs]))


def _pair_line(pair: Pair, episodes: int) -> tuple[str, ...]:
    published = NONE if pair.published is None else f"{pair.published:+.1f}"
    words = {None: "too close to call", True: "as published", False: "other than published"}
    order = NONE if pair.published is None else words[pair.same_order]
    if pair.same_order is not None and not pair.firm:
        order = f"{order}, but too close by the open interval"
    ours = f"{100 * pair.closed.mean:+.2f} ± {100 * pair.closed.half:.2f}"
    opened = f"± {100 * pair.opened.half:.2f}"
    fewer = f", first {pair.closed.n:,} episodes" if pair.closed.n < episodes else ""
    return (f"{pair.first}{fewer}", pair.second, published, ours, opened, order)


MANIFEST_HEAD = ("Run", "seed", "episodes", "minutes", "data", "processor")


def manifest_lines(results: Results) -> Lines:
    """What stands behind the numbers, a row a run, with all names under which it serves."""
    runs: dict[Path, list[Manifest]] = {}
    for cell in results.cells:
        for score in cell.scores:
            runs.setdefault(score.folder, []).append(score.manifest)
    rows = []
    for manifest, *others in runs.values():
        names = dict.fromkeys(each.name for each in (manifest, *others))
        session = manifest.sessions[-1] if manifest.sessions else None
        rows.append(
            (
                " = ".join(names),
                str(manifest.recipe.seed),
                f"{manifest.episodes:,} of {manifest.planned:,}",
                minutes_told(manifest),
                f"{manifest.data} {manifest.content[:12]}",
                f"{session.machine['processor']} x {session.machine['threads']}" if session else NONE,
            )
        )
    return Lines("Runs", MANIFEST_HEAD, tuple(rows))


def minutes_told(manifest: Manifest) -> str:
    """The minutes of a run's training, as far as they were recorded."""
    known = f"{manifest.seconds / 60:.1f}"
    if not manifest.untimed:
        return known
    return "not recorded" if not manifest.seconds else f"{known} and more not recorded"


def summary(results: Results) -> str:
    """How many numbers agree, in a sentence."""
    if all(cell.published is None for cell in results.cells):
        return "The paper prints no numbers for this: compare the shape with what it says."
    compared = [cell for cell in results.cells if cell.comparison is not None]
    part = [cell for cell in compared if cell.shortfall]
    whole = [cell.comparison for cell in compared if not cell.shortfall and cell.comparison]
    counts = {word: sum(each.verdict == word for each in whole) for word in ("agrees", "above", "below")}
    loosely = len(whole) - sum(counts.values())
    told = (
        f"Of {len(whole)} numbers from runs trained in full, {counts['agrees']} agree with the paper, {loosely} agree "
        f"by the open interval only, {counts['above']} lie above and {counts['below']} below."
    )
    in_part = f" {len(part)} numbers are from runs trained in part, which prove nothing yet." if part else ""
    told = told if whole else "No published number has been compared with a run trained in full yet."
    return told + in_part + _order(results)


def _order(results: Results) -> str:
    """How many methods stand on the published side of the row that they are compared with, in a sentence."""
    pairs = [pair for column in results.experiment.columns for pair in results.against_reference(column)]
    pairs = [pair for pair in pairs if pair.published]
    if not pairs:
        return ""
    known = [pair.same_order for pair in pairs]
    loose = sum(pair.same_order is not None and not pair.firm for pair in pairs)
    told = f", {loose} more by the open interval" if loose else ""
    return (
        f" Order of methods: of {len(known)} printed differences from a reference row, {known.count(True)} "
        f"have the published sign here, {known.count(False)} the other, {known.count(None)} are too close to call"
        f"{told}."
    )


def markdown(lines: Lines) -> str:
    """A table in Markdown."""
    body = [_markdown_row(lines.head), "|" + " --- |" * len(lines.head), *map(_markdown_row, lines.rows)]
    return "\n".join(body)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("*", "\\*") for cell in cells) + " |"
