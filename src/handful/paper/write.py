"""The report of an experiment: JSON with everything, Markdown for reading, an HTML page with plots."""

from __future__ import annotations

import json
from pathlib import Path

from markupsafe import Markup

from handful._io import write_atomically
from handful.paper.counts import counts_bytes, digest
from handful.paper.episode_set import EpisodeSet
from handful.paper.plots import beside_picture, curves_of, lines_picture
from handful.paper.results import Results, count_key
from handful.paper.tables import Lines, beyond_lines, column_lines, manifest_lines, markdown, pair_lines, summary
from handful.report.page import Picture, code, figure, heading, page, paragraph, table
from handful.report.plots import curves_picture

NOTES = (
    "All rows of a column saw the same test episodes, known by their hash. 'Ours' has the paper's kind of interval, "
    "1.96 standard errors over episodes that share images: it says how well the mean over these images is known. "
    "'Open' is half the interval over episodes that share no image (Lafargue et al. 2024), which says what other "
    "images of the same classes might have given. 'Seeds' is half the interval over training runs, with their number. "
    "None of them speaks of other classes. The difference is ours less the paper's, with both intervals over episodes, "
    "the rounding of print and, where there are several training seeds, their standard deviation combined; a complete "
    "run agrees if zero lies within. A run is complete when patience or its last episode ended it, or when less than "
    "0.5% of the summed learning rate of its step schedule is left. Only the variants `paper` and `authors` count as "
    "reproducing the paper, and only with the row's own network."
)
BEYOND = "Beyond the paper, on the same episodes; 'adds' names what differs from the authors' recipe:"


def write_report(results: Results, out: Path) -> list[Path]:
    """Write the per-episode counts, JSON, a picture if there is anything to show, Markdown and HTML; their paths."""
    name = results.experiment.name
    picture = _picture(results)
    scored = ((cell.column.title, score) for cell in results.cells for score in cell.scores)
    counts = counts_bytes((count_key(column, score), score.measurement) for column, score in scored)
    kept = {"file": f"{name}.counts.safetensors", "sha256": digest(counts)}
    contents = {
        kept["file"]: counts,
        f"{name}.json": json.dumps({**results.as_json(), "counts": kept}, indent=1, allow_nan=False).encode(),
        **({f"{name}.svg": picture.data} if picture is not None else {}),
        f"{name}.md": as_markdown(results, picture).encode(),
        f"{name}.html": as_page(results, picture).encode(),
    }
    for file, content in contents.items():
        write_atomically(out / file, content)
    return [out / file for file in contents]


def _picture(results: Results) -> Picture | None:
    return lines_picture(results) if results.experiment.axis else beside_picture(results)


def as_markdown(results: Results, picture: Picture | None) -> str:
    """The tables and what stands behind them, for reading in a terminal or a repository."""
    experiment = results.experiment
    parts = [f"# {experiment.title}", summary(results), f"The paper: {experiment.claim} ({experiment.source}.)"]
    if picture is not None:
        parts.append(f"![{picture.text}]({experiment.name}.svg)\n\n{_caption(results)}")
    for column in experiment.columns:
        if (drawn := results.drawn(column)) is None:
            continue
        lines, beyond = column_lines(results, column), beyond_lines(results, column)
        parts += [f"## {column.title}", *([lines.note] if lines.note else [])]
        parts += [markdown(lines)] if lines.rows else []
        parts.append(f"{_told(drawn)}.")
        parts += [BEYOND, markdown(beyond)] if beyond else []
        if (pairs := pair_lines(results, column)) is not None:
            parts += ["Paired differences on these episodes, in points:", markdown(pairs)]
    parts += ["## Runs", markdown(manifest_lines(results)), _computed(results), NOTES]
    if results.missing:
        parts += ["## Not done", "\n".join(f"- {line}" for line in results.missing)]
    return "\n\n".join([*parts, f"Repeat it with `{results.command}` (made {results.created})."]) + "\n"


def as_page(results: Results, picture: Picture | None) -> str:
    """One self-contained page: pictures, tables, runs, and what to type."""
    experiment = results.experiment
    parts = [paragraph(f"The paper says: {experiment.claim}")]
    if picture is not None:
        parts.append(figure(picture, f"Accuracy on test classes. {_caption(results)}"))
    for column in experiment.columns:
        if (drawn := results.drawn(column)) is not None:
            lines, beyond = column_lines(results, column), beyond_lines(results, column)
            parts += [heading(column.title), *([paragraph(lines.note)] if lines.note else [])]
            parts += [_html(lines)] if lines.rows else []
            parts += [paragraph(BEYOND), _html(beyond)] if beyond else []
            parts.append(paragraph(f"{_told(drawn)}; {len(drawn.apart.rows)} episodes without common images."))
            if (pairs := pair_lines(results, column)) is not None:
                parts += [paragraph("Paired differences on these episodes, in points:"), _html(pairs)]
    curves = curves_of(results)
    if curves and len(curves) <= 8:
        parts += [heading("How the runs learnt")]
        parts.append(figure(curves_picture(curves, "validation accuracy, %"), "Mean of the validation scores."))
    parts += [heading("What stands behind the numbers"), _html(manifest_lines(results))]
    parts += [paragraph(_computed(results)), paragraph(NOTES)]
    if results.missing:
        parts += [heading("Not done"), *(paragraph(line) for line in results.missing)]
    parts += [heading("Do it again"), code([results.command])]
    lead = f"{summary(results)} Source: {experiment.source}. Made {results.created}."
    return page(experiment.title, lead, parts)


def _told(drawn: EpisodeSet) -> str:
    return f"{drawn.episodes:,} test episodes with {drawn.query} queries a class, hash {drawn.digest[:16]}"


def _computed(results: Results) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    machine = results.machine
    return f"Tested with {versions} on {machine['processor']}, {machine['threads']} threads, GPU {machine['gpu']}."


def _html(lines: Lines) -> Markup:
    return table(lines.head, lines.rows, strong=lines.strong, remarks=lines.head[-1] == "trained")


def _caption(results: Results) -> str:
    if not results.experiment.axis:
        return "Diamonds are the paper's numbers, dots are ours; hollow dots are from runs in part."
    part = [cell for cell in results.cells if not cell.complete]
    told = f" {len(part)} of {len(results.cells)} points (hollow) are from runs TRAINED IN PART." if part else ""
    return f"Bands are 95% intervals over test episodes.{told}"
