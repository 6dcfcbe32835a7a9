"""Results as rows of words, for Markdown and HTML alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from handful.meta.manifest import Manifest
from handful.paper.experiments import Column
from handful.paper.results import Cell, Pair, Results

HEAD = ("Method · variant", "paper", "ours", "open", "seeds", "difference", "agrees?", "trained")
BEYOND_HEAD = ("Method · variant", "paper", "ours", "open", "seeds", "adds", "trained")
PAIR_HEAD = ("Method", "less", "paper", "ours, paired", "open", "order")
NONE = "—"
IN_PART = "IN PART"
MAY_LACK = ("paper", "seeds", "difference", "agrees?", "order")
"""Columns that are left out where they are empty."""
WORDS = {None: NONE, "agrees": "yes", "above": "no, above", "below": "no, below"}


@dataclass(frozen=True)
class Lines:
    """A table in words: a title, a heading, rows, and the numbers of the rows whose runs are complete."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: tuple[int, ...] = ()
    note: str = ""
    """What holds for all rows, told once."""


def column_lines(results: Results, column: Column) -> Lines:
    """All rows of one column that reproduce the paper, beside its numbers."""
    cells = [cell for cell in results.reproducing if cell.column == column]
    rows, note = _told_once([_cell_line(cell, results.episodes(column)) for cell in cells])
    return Lines(column.title, *_filled(HEAD, rows), _strong(cells), note)


def beyond_lines(results: Results, column: Column) -> Lines | None:
    """The rows of a column whose recipes go beyond the paper, with what they add; None if there is none."""
    cells = [cell for cell in results.beyond if cell.column == column]
    if not cells:
        return None
    episodes = results.episodes(column)
    rows: list[tuple[str, ...]] = []
    for cell in cells:
        name, paper, ours, opened, seeds, _, _, trained = _cell_line(cell, episodes)
        rows.append((name, paper, ours, opened, seeds, "; ".join(cell.additions) or NONE, trained))
    return Lines(column.title, *_filled(BEYOND_HEAD, rows), _strong(cells))


def _strong(cells: list[Cell]) -> tuple[int, ...]:
    return tuple(index for index, cell in enumerate(cells) if cell.complete)


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
    name = cell.label
    if not cell.scores:
        return (name, paper, NONE, NONE, NONE, NONE, NONE, "not run")
    comparison = cell.comparison
    difference = f"{comparison.difference:+.2f} ± {comparison.half:.2f}" if comparison else NONE
    verdict = WORDS[cell.verdict]
    seeds = f"± {100 * cell.over_seeds.half:.2f} ({len(cell.scores)})" if len(cell.scores) > 1 else NONE
    transductive = ", transductive" if "transductive" in cell.scores[0].measurement.limits else ""
    opened = f"± {100 * cell.opened.half:.2f}"
    fewer = f", first {cell.closed.n:,} episodes" if cell.closed.n < episodes else ""
    return (f"{name}{transductive}{fewer}", paper, str(cell.closed), opened, seeds, difference, verdict, _trained(cell))


def _trained(cell: Cell) -> str:
    """Whether the runs are complete, why, and what was changed in them; the same words of several seeds once."""
    manifests = [score.manifest for score in cell.scores]
    part = [each for each in manifests if not each.completion.complete]
    words = [each.changes for each in manifests if each.changes]
    words += [each.completion.why for each in part or manifests]
    return f"{IN_PART if part else 'complete'}: {'; '.join(dict.fromkeys(words))}"


def pair_lines(results: Results, column: Column) -> Lines | None:
    """Paired differences against the reference row, where there are two methods."""
    pairs = results.against_reference(column)
    if not pairs:
        return None
    episodes = results.episodes(column)
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
    if all(number is None for row in results.experiment.rows for number in row.numbers):
        return "The paper prints no numbers for this: compare the shape with what it says."
    compared = [cell for cell in results.cells if cell.comparison is not None]
    part = [cell for cell in compared if not cell.complete]
    whole = [cell.comparison for cell in compared if cell.complete and cell.comparison]
    counts = {word: sum(each.verdict == word for each in whole) for word in ("agrees", "above", "below")}
    loosely = sum(each.verdict != "agrees" and each.within_open for each in whole)
    told = (
        f"Of {len(whole)} published {_numbers(whole)} compared with complete runs, {counts['agrees']} agree, "
        f"{counts['above']} lie above and {counts['below']} below."
    )
    told += f" Of those that do not agree, {loosely} lie within the open interval." if loosely else ""
    one = any(len(cell.scores) == 1 for cell in compared)
    told += " With one training seed the verdict knows nothing of the spread between trainings." if one else ""
    in_part = f" {len(part)} {_numbers(part)} from runs in part allow no verdict yet." if part else ""
    told = told if whole else "No published number has been compared with a complete run yet."
    beyond = f" {len(results.beyond)} {_numbers(results.beyond)} beyond the paper are listed apart."
    return told + in_part + (beyond if results.beyond else "") + _order(results)


def _numbers(counted: Sequence[object]) -> str:
    return "number" if len(counted) == 1 else "numbers"


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
