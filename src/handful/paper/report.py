"""The report of an experiment: text and tables as Markdown and as an HTML page with plots, and JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from handful._io import locked, write_atomically
from handful.meta.manifest import Manifest
from handful.paper.plots import beside_picture, curves_of, lines_picture
from handful.paper.published import Column
from handful.paper.results import Cell, Pair, Results, count_key
from handful.paper.verify import counts_bytes
from handful.report.page import Picture, code, figure, heading, page, paragraph, table
from handful.report.plots import curves_picture

HEAD = ("Method · variant", "paper", "ours", "open", "seeds", "difference", "agrees?", "trained")
BEYOND_HEAD = ("Method · variant", "paper", "ours", "open", "seeds", "adds", "trained")
PAIR_HEAD = ("Method", "less", "paper", "ours, paired", "open", "order")
RUN_HEAD = ("Run", "seed", "episodes", "minutes", "data", "processor")
MAY_LACK = ("paper", "seeds", "difference", "agrees?", "order")
"""Columns that are left out if they are empty."""
NONE = "—"
IN_PART = "IN PART"
VERDICTS = {None: NONE, "agrees": "yes", "above": "no, above", "below": "no, below"}
ORDERS = {None: "too close to call", True: "as published", False: "other than published"}
NOTES = (
    "All rows of a column saw the same episodes, known by their hash. 'Ours' has the paper's kind of interval, "
    "1.96 standard errors over episodes that share images: it says how well the mean over these images is known. "
    "'Open' is half the interval over episodes that share no image (Lafargue et al. 2024), which says what other "
    "images of the same classes might have given. 'Seeds' is half the interval over training runs, with their number. "
    "None of them speaks of other classes. The difference is ours less the paper's. Its interval combines both "
    "intervals over episodes, the rounding of the published number and, where there are several training seeds, their "
    "spread, as Student's interval; a complete run agrees if zero lies within. A run is complete when patience or its "
    "last episode ended it, or when less than 0.5% of the summed learning rate of its step schedule is left. Only the "
    "variants `paper` and `authors` count as reproducing the paper, and only with the row's own network."
)
BEYOND = (
    "Beyond the paper, on the same episodes; 'adds' names what differs from the authors' recipe, or from the recipe "
    "that is extended:"
)


# A document is a list of blocks; text is a paragraph


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Lines:
    """A table: a heading, rows, and the numbers of the rows whose runs are complete."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: tuple[int, ...] = ()
    note: str = ""
    """A remark that applies to all rows."""
    remarks: bool = True
    """Whether the last column is text that may wrap."""


@dataclass(frozen=True)
class Shown:
    """A picture with its caption, and its file; without a file it only appears in the page."""

    picture: Picture
    caption: str
    file: str = ""


Block = str | Heading | Lines | Shown


def markdown(title: str, blocks: Sequence[Block]) -> str:
    """The document in Markdown."""
    return "\n\n".join(filter(None, [f"# {title}", *map(_markdown, blocks)])) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"## {block.text}"
    if isinstance(block, Lines):
        rows = [_markdown_row(block.head), "|" + " --- |" * len(block.head), *map(_markdown_row, block.rows)]
        return "\n".join(rows)
    if isinstance(block, Shown):
        return f"![{block.picture.text}]({block.file})\n\n{block.caption}" if block.file else ""
    return block


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "/").replace("*", "\\*") for cell in cells) + " |"


def html(title: str, lead: str, blocks: Sequence[Block], command: str) -> str:
    """The document as one self-contained page, ending with the command to repeat it."""
    return page(title, lead, [*map(_html, blocks), heading("How to repeat it"), code([command])])


def _html(block: Block) -> Markup:
    if isinstance(block, Heading):
        return heading(block.text)
    if isinstance(block, Lines):
        return table(block.head, block.rows, strong=block.strong, remarks=block.remarks)
    return figure(block.picture, block.caption) if isinstance(block, Shown) else paragraph(block)


def write_files(out: Path, contents: Mapping[str, str | bytes]) -> list[Path]:
    """Write files by name into a folder; returns their paths."""
    for name, content in contents.items():
        write_atomically(out / name, content.encode() if isinstance(content, str) else content)
    return [out / name for name in contents]


# The report of an experiment


def write_report(results: Results, out: Path) -> list[Path]:
    """Write the per-episode counts, JSON, Markdown, HTML and, if there is one, a picture; returns their paths."""
    experiment = results.experiment
    name, blocks = experiment.name, report_blocks(results)
    scored = ((cell.column.title, score) for cell in results.cells for score in cell.scores)
    counts = counts_bytes((count_key(column, score), score.measurement.counts) for column, score in scored)
    kept = {"file": f"{name}.counts.safetensors", "sha256": hashlib.sha256(counts).hexdigest()}
    pictures = {block.file: block.picture.data for block in blocks if isinstance(block, Shown) and block.file}
    end = f"Repeat it with `{results.command}` (made {results.created})."
    lead = f"Source: {experiment.source}. Made {results.created}."
    contents: dict[str, str | bytes] = {
        kept["file"]: counts,
        f"{name}.json": json.dumps({**results.as_json(), "counts": kept}, indent=1, allow_nan=False),
        **pictures,
        f"{name}.md": markdown(experiment.title, [*blocks, end]),
        f"{name}.html": html(experiment.title, lead, blocks, results.command),
    }
    with locked(out / name):  # two commands of a queue may report the same experiment
        return write_files(out, contents)


def report_blocks(results: Results) -> list[Block]:
    """Summary, picture, tables by column, runs, and what was not done."""
    experiment = results.experiment
    blocks: list[Block] = [summary(results), f"The paper: {experiment.claim} ({experiment.source}.)"]
    picture = lines_picture(results) if experiment.axis else beside_picture(results)
    if picture is not None:
        blocks.append(Shown(picture, _caption(results), f"{experiment.name}.svg"))
    for column in experiment.columns:
        blocks += _column_blocks(results, column)
    curves = curves_of(results)
    if 0 < len(curves) <= 8:
        blocks.append(
            Shown(curves_picture(curves, "validation accuracy, %"), "How the runs learnt: validation scores.")
        )
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    machine = results.machine
    tested = f"Tested with {versions} on {machine['processor']}, {machine['threads']} threads, GPU {machine['gpu']}."
    blocks += [Heading("Runs"), run_lines(results), tested, NOTES]
    return blocks + ([Heading("Not done"), *results.missing] if results.missing else [])


def _caption(results: Results) -> str:
    if not results.experiment.axis:
        diamonds = "Diamonds are the paper's numbers, dots are ours" if _published(results) else "Dots are our results"
        return f"{diamonds}; hollow dots are from runs in part."
    part = [cell for cell in results.cells if not cell.complete]
    hollow = f" {len(part)} of {len(results.cells)} points (hollow) are from runs TRAINED IN PART." if part else ""
    return f"Bands are 95% intervals over test episodes.{hollow}"


def _published(results: Results) -> bool:
    """Whether the paper gives any number for these rows."""
    return any(number is not None for row in results.experiment.rows for number in row.numbers)


def _column_blocks(results: Results, column: Column) -> list[Block]:
    if (drawn := results.drawn(column)) is None:
        return []
    lines, beyond, pairs = (make(results, column) for make in (column_lines, beyond_lines, pair_lines))
    blocks: list[Block] = [Heading(column.title)]
    if lines:
        blocks += [lines.note, lines] if lines.note else [lines]
    blocks.append(f"{drawn}; {len(drawn.apart.rows)} episodes without common images.")
    blocks += [BEYOND, beyond] if beyond else []
    return blocks + (["Paired differences on these episodes, in points:", pairs] if pairs else [])


def column_lines(results: Results, column: Column) -> Lines | None:
    """All rows of one column that reproduce the paper, next to its numbers; None if there are none.

    If all rows fall short in the same way, the rows say so briefly and the table's note gives the details.
    """
    cells = [cell for cell in results.reproducing if cell.column == column]
    rows = [_cell_line(cell, results.episodes(column)) for cell in cells]
    words = {row["trained"] for row in rows}
    if len(rows) < 3 or len(words) > 1 or not rows[0]["trained"].startswith(IN_PART):
        return _lines(HEAD, rows, cells)
    return _lines(HEAD, [{**row, "trained": IN_PART} for row in rows], cells, f"All rows were trained {words.pop()}.")


def beyond_lines(results: Results, column: Column) -> Lines | None:
    """The rows of a column whose recipes go beyond the paper, with what they add; None if there are none."""
    cells = [cell for cell in results.beyond if cell.column == column]
    return _lines(BEYOND_HEAD, [_cell_line(cell, results.episodes(column)) for cell in cells], cells)


def pair_lines(results: Results, column: Column) -> Lines | None:
    """Paired differences from the reference row; None if there are not at least two methods."""
    return _lines(PAIR_HEAD, [_pair_line(pair, results.episodes(column)) for pair in results.against_reference(column)])


def _lines(
    head: tuple[str, ...], rows: list[dict[str, str]], cells: Sequence[Cell] = (), note: str = ""
) -> Lines | None:
    """Rows by the names of the heading, without optional columns that are empty."""
    kept = [name for name in head if name not in MAY_LACK or any(row[name] != NONE for row in rows)]
    strong = tuple(index for index, cell in enumerate(cells) if cell.complete)
    words = tuple(tuple(row[name] for name in kept) for row in rows)
    return Lines(tuple(kept), words, strong, note, head[-1] == "trained") if rows else None


def _cell_line(cell: Cell, episodes: int) -> dict[str, str]:
    line = dict.fromkeys((*HEAD, *BEYOND_HEAD), NONE)
    line |= {"paper": str(cell.published)} if cell.published is not None else {}
    if not cell.scores:
        return line | {HEAD[0]: cell.label, "trained": "not run"}
    ours, comparison = cell.ours, cell.comparison
    transductive = ", transductive" if "transductive" in cell.scores[0].measurement.limits else ""
    return {
        **line,
        HEAD[0]: f"{cell.label}{transductive}{_fewer(ours.closed.n, episodes)}",
        "ours": str(ours.closed),
        "open": f"± {100 * ours.opened.half:.2f}",
        "seeds": f"± {100 * ours.over_seeds.half:.2f} ({len(cell.scores)})" if len(cell.scores) > 1 else NONE,
        "difference": f"{comparison.difference:+.2f} ± {comparison.half:.2f}" if comparison else NONE,
        "agrees?": VERDICTS[cell.verdict],
        "adds": "; ".join(cell.additions) or NONE if not cell.reproduces else NONE,
        "trained": _trained(cell),
    }


def _fewer(n: int, episodes: int) -> str:
    return f", first {n:,} episodes" if n < episodes else ""


def _trained(cell: Cell) -> str:
    """Whether the runs are complete, why, and what was changed in them, without repetition for several seeds."""
    manifests = [score.manifest for score in cell.scores]
    part = [each for each in manifests if not each.completion.complete]
    words = [each.changes for each in manifests if each.changes]
    words += [each.completion.why for each in part or manifests]
    how = IN_PART if part else "CHANGED" if any(each.altered for each in manifests) else "complete"
    return f"{how}: {'; '.join(dict.fromkeys(words))}"


def _pair_line(pair: Pair, episodes: int) -> dict[str, str]:
    order = ORDERS[pair.same_order] + (", but too close by the open interval" if pair.loose else "")
    return {
        "Method": f"{pair.first}{_fewer(pair.closed.n, episodes)}",
        "less": pair.second,
        "paper": NONE if pair.published is None else f"{pair.published:+.1f}",
        "ours, paired": f"{100 * pair.closed.mean:+.2f} ± {100 * pair.closed.half:.2f}",
        "open": f"{100 * pair.opened.mean:+.2f} ± {100 * pair.opened.half:.2f}",
        "order": NONE if pair.published is None else order,
    }


def run_lines(results: Results) -> Lines:
    """The runs behind the numbers, one row each, with all recipe names that they serve."""
    runs: dict[Path, list[Manifest]] = {}
    for cell in results.cells:
        for score in cell.scores:
            runs.setdefault(score.folder, []).append(score.manifest)
    return Lines(RUN_HEAD, tuple(_run_line(manifests) for manifests in runs.values()), remarks=False)


def _run_line(manifests: list[Manifest]) -> tuple[str, ...]:
    manifest = manifests[0]
    machine = manifest.sessions[-1].machine if manifest.sessions else None
    return (
        " = ".join(dict.fromkeys(each.name for each in manifests)),
        str(manifest.recipe.seed),
        f"{manifest.episodes:,} of {manifest.planned:,}",
        minutes_of(manifest),
        f"{manifest.data} {manifest.content[:12]}",
        _processors(machine) if machine else NONE,
    )


def _processors(machine: Mapping[str, str | int]) -> str:
    """The processor and the number of threads; older records do not have the number of processes."""
    processes = machine.get("processes", 1)
    every = f"{processes} processes x " if processes != 1 else ""
    return f"{machine['processor']} x {every}{machine['threads']}"


def minutes_of(manifest: Manifest) -> str:
    """The minutes of training of a run, as far as they were recorded."""
    known = f"{manifest.seconds / 60:.1f}"
    if not manifest.untimed:
        return known
    return "not recorded" if not manifest.seconds else f"{known} and more not recorded"


def summary(results: Results) -> str:
    """A few sentences on how many numbers agree, and how many methods are in the published order."""
    if not _published(results):
        compare = ": compare the shape with what it says" if results.experiment.axis else ""
        return f"The paper gives no numbers for these rows{compare}."
    compared = [cell for cell in results.cells if cell.comparison is not None]
    changed = [cell for cell in compared if cell.changed]
    part = [cell for cell in compared if not cell.complete and not cell.changed]
    beyond = [cell for cell in results.beyond if cell.scores]
    sentences = [_agreement(compared)]
    sentences += [f"{_numbers(part)} from runs in part allow no verdict yet."] if part else []
    sentences += (
        [f"{_numbers(changed)} from runs with another network or schedule allow no verdict."] if changed else []
    )
    sentences += [f"{_numbers(beyond)} beyond the paper are listed apart."] if beyond else []
    return " ".join([*sentences, *_order(results)])


def _agreement(compared: list[Cell]) -> str:
    whole = [cell.comparison for cell in compared if cell.complete and cell.comparison]
    if not whole:
        return "No published number has been compared with a complete run yet."
    counts = {word: sum(each.verdict == word for each in whole) for word in ("agrees", "above", "below")}
    loosely = sum(each.verdict != "agrees" and each.within_open for each in whole)
    said = (
        f"Of {_numbers(whole, 'published ')} compared with complete runs, {counts['agrees']} agree, "
        f"{counts['above']} lie above and {counts['below']} below."
    )
    said += f" Of those that do not agree, {loosely} lie within the open interval." if loosely else ""
    one = any(len(cell.scores) == 1 for cell in compared)
    return said + (" With one training seed the verdict knows nothing of the spread between trainings." if one else "")


def _numbers(counted: Sequence[object], kind: str = "") -> str:
    return f"{len(counted)} {kind}{'number' if len(counted) == 1 else 'numbers'}"


def _order(results: Results) -> list[str]:
    """How many methods are on the published side of their reference row."""
    pairs = [pair for column in results.experiment.columns for pair in results.against_reference(column)]
    pairs = [pair for pair in pairs if pair.published]
    if not pairs:
        return []
    known = [pair.same_order for pair in pairs]
    loose = sum(pair.loose for pair in pairs)
    more = f", {loose} more by the open interval" if loose else ""
    return [
        f"Order of methods: of {len(known)} published differences from a reference row, {known.count(True)} have the "
        f"published sign here, {known.count(False)} the other, {known.count(None)} are too close to call{more}."
    ]
