"""Pages of the site that follow from the code and from results/: the commands, and the gallery of results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

GALLERY = {
    "Tables of the paper": "reproduce/**/table*.md",
    "Figures of the paper": "reproduce/**/figure*.md",
    "Appendix A": "reproduce/**/appendix*.md",
    "Other experiments on the benchmarks": "reproduce/**/[!tfa]*.md",
    "Your own images": "*own-images*.md",
    "Learners side by side": "*learner*.md",
    "More from the same weights": "views.md",
    "Embeddings for photographs": "photo-embeddings.md",
    "Model cards": "weights/*.md",
    "What full runs would take": "reproduce-estimates*.md",
}
"""Headings of the gallery, each with the reports that belong below it."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def write_commands(page: Path) -> None:
    """One section per command, in the words of its own `--help`."""
    overview = _help()
    names = re.findall(r"^│\s+• ([a-z]+)\s", overview, flags=re.MULTILINE)
    parts = ["# Commands\n", "What `handful COMMAND --help` prints.\n", _block(overview)]
    parts += [f"## handful {name}\n\n{_block(_help(name))}" for name in dict.fromkeys(names)]
    page.write_text("\n".join(parts))


def write_gallery(results: Path, copies: Path, page: Path) -> None:
    """Copy every report with its plots, and list them all on one page, tables first."""
    shutil.rmtree(copies, ignore_errors=True)
    wanted = (".md", ".svg", ".png", ".json")
    for path in results.rglob("*"):
        if path.suffix in wanted and path.is_file():
            target = copies / path.relative_to(results)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    sections, seen = [], set[Path]()
    for heading, pattern in GALLERY.items():
        reports = [path for path in sorted(copies.glob(pattern)) if path not in seen]
        seen.update(reports)
        if reports:
            sections.append("\n".join([f"## {heading}\n", *(_entry(path, copies) for path in reports)]))
    hidden = sorted(path.relative_to(copies.parent).with_suffix("") for path in copies.rglob("*.md"))
    tree = "\n".join(["```{toctree}", ":hidden:", "", *map(str, hidden), "```"])
    opening = (
        "# Results\n\nEvery table and figure that we measured, next to the published numbers if there are any. "
        "Each report names its command, seed and machine; `handful reproduce verify results/` recomputes those of the "
        "paper.\n"
    )
    page.write_text("\n".join([opening, *sections, tree, ""]))


def _entry(path: Path, copies: Path) -> str:
    """A report's title as a link, and its plot if it has one."""
    title = next((line.lstrip("# ") for line in path.read_text().splitlines() if line.startswith("#")), path.stem)
    place = path.relative_to(copies.parent)
    kind = "" if place.parent.name in ("results", "reproduce") else f" ({place.parent.name})"
    plot = next((each for each in (path.with_suffix(".svg"), path.with_suffix(".png")) if each.exists()), None)
    shown = "" if plot is None else f"\n![{title}]({plot.relative_to(copies.parent)})\n"
    return f"### [{title}{kind}](/{place})\n{shown}"


def _help(*words: str) -> str:
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "handful", *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout


def _block(text: str) -> str:
    return f"```text\n{_COLOUR.sub('', text).strip()}\n```\n"
