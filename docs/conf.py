"""Sphinx configuration: `make docs` builds the site into build/docs, with warnings as errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.directives.code import CodeBlock

sys.path.insert(0, str(Path(__file__).parent))

from generate import write_commands, write_gallery

from handful import __version__

project, author, release = "handful", "The handful developers", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_site", "**.ipynb"]
suppress_warnings = ["myst.header"]  # reports begin with the level that suits the file on its own

html_theme, html_title = "furo", "handful"
html_static_path = ["_site"]
html_css_files = ["site.css"]
html_show_copyright = html_copy_source = html_show_sourcelink = False

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "show-inheritance": False, "exclude-members": "forward,training"}
copybutton_prompt_text = r"\$ "

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)(#[^)]*)?\)")


def _keep_links_inside(app: Sphinx, docname: str, source: list[str]) -> None:
    """Lead links to results/ to their copies on the site, and show other files of the repository by their paths."""

    def replaced(match: re.Match[str]) -> str:
        words, up, target = match[1], match[2], match[3]
        place = Path(app.srcdir, docname).parent.joinpath(up).resolve()
        if place.is_relative_to(app.srcdir):
            return match[0]
        if target.startswith("results/") and Path(app.srcdir, target).is_file():
            return f"[{words}](/{target})"
        return f"{words} (`{target}`)" if words.strip("`") != target else f"`{target}`"

    source[0] = _OUTSIDE.sub(replaced, source[0])


class CodeCell(CodeBlock):
    """A cell of a notebook, shown as Python."""

    def run(self) -> list[object]:
        """As a code block, whatever the kernel is called."""
        self.arguments = ["python"]
        return super().run()


def _plain(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with code in backticks: keep stars and bars outside the backticks as they are."""
    for number, line in enumerate(lines):
        parts = re.split(r"(`[^`]*`)", line)
        parts[::2] = [re.sub(r"([*|]|_(?!\w))", r"\\\1", part) for part in parts[::2]]
        lines[number] = "".join(parts)


def _skip(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool:
    """Leave out what scikit-learn adds to its estimators."""
    return skip or bool(re.fullmatch(r"set_\w+_request|\w+_metadata_routing", name))


def setup(app: Sphinx) -> None:
    """Generate the pages that follow from the code and the results, and adapt links that lead out of the site."""
    source = Path(app.srcdir)
    write_commands(source / "reference" / "commands.md")
    write_gallery(source.parent / "results", source / "results", source / "gallery.md")
    app.add_directive("code-cell", CodeCell)
    app.connect("autodoc-process-docstring", _plain)
    app.connect("autodoc-skip-member", _skip)
    app.connect("source-read", _keep_links_inside)
