"""Every example of the README and the documents runs as it stands, and every link leads somewhere."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from handful.learners.registry import LEARNERS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [path for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))] if "results" not in path.parts]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
SHOWN = re.compile(r"^```sh\n[^`]*^```\n\n```text\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
"""What a page says that the commands above print."""
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.md"))


def script(page: Path) -> str:
    """All examples of a page as one program: what one block defines or writes is there for the next."""
    steps = [
        code if language == "python" else f"import subprocess; subprocess.run(['bash', '-euc', {code!r}], check=True)"
        for language, code in BLOCK.findall(page.read_text())
    ]
    return "\n".join(steps).replace(
        "episodes=200", "episodes=50"
    )  # fewer than a reader would take: the suite stays short


def environment(folder: Path) -> dict[str, str]:
    """With `handful` as a command, whether or not it is installed as one, and a cache folder of its own."""
    command = folder / "bin" / "handful"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m handful "$@"\n')
    command.chmod(0o755)
    return {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder)}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.stem)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copytree(ROOT / "results/reproduce", work / "results/reproduce")  # a page may read a report of the checkout
    with (tmp_path / "output.txt").open("w+") as output:
        example = subprocess.Popen(
            [sys.executable, "-c", script(page)],
            cwd=work,
            env=environment(tmp_path),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code = example.wait(timeout=600)
        with contextlib.suppress(ProcessLookupError):  # what a page started in the background ends with its test
            os.killpg(example.pid, signal.SIGKILL)
        output.seek(0)
        printed = output.read()
    assert code == 0, printed
    for shown in SHOWN.findall(page.read_text()):
        assert shown in printed, f"{page.name} shows another output than its commands print:\n{printed}"


@pytest.mark.slow
@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_a_notebook_runs(page: Path, tmp_path: Path) -> None:
    jupytext, nbclient = pytest.importorskip("jupytext"), pytest.importorskip("nbclient")
    notebook = jupytext.read(page)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert printed
    assert all(output.output_type != "error" for output in printed)


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_a_notebook_and_its_page_are_the_same(page: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    pair = [
        [(cell.cell_type, cell.source) for cell in jupytext.read(each).cells]
        for each in (page, page.with_suffix(".ipynb"))
    ]
    assert pair[0] == pair[1], "Run `make notebooks` and commit what it writes."


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    words = [
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-d",
        tmp_path / "doctrees",
        DOCS,
        tmp_path / "site",
    ]
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = [path for path in (tmp_path / "site").rglob("*.html") if path.stem not in ("genindex", "search")]
    assert len(pages) > 40
    outside = re.compile(r"""<(?:script|link|img)[^>]+(?:src|href)="https?://""")
    assert [page.name for page in pages if outside.search(page.read_text())] == []


def test_links_between_documents_lead_somewhere() -> None:
    generated = {DOCS / "gallery.md", DOCS / "reference" / "commands.md"}
    for path in [*ROOT.glob("*.md"), *PAGES]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            place = DOCS / target[1:] if target.startswith("/") else path.parent / target
            assert place.exists() or place.resolve() in generated, f"{path.name} links to {target}"


def test_the_documents_count_every_learner() -> None:
    words = {14: "Fourteen", 15: "Fifteen", 16: "Sixteen", 17: "Seventeen", 18: "Eighteen"}
    assert f"{words[len(LEARNERS)]} methods" in (ROOT / "README.md").read_text()
    assert f"{words[len(LEARNERS)]} learners" in (ROOT / "CHANGELOG.md").read_text()
