"""Run the notebooks that docs/notebooks has as Markdown, and write them with their output as .ipynb beside it.

python -m tools.notebooks
"""

from pathlib import Path

import jupytext
import nbclient

for page in sorted(Path("docs/notebooks").glob("*.md")):
    notebook = jupytext.read(page)
    nbclient.NotebookClient(notebook, timeout=600).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day, which would differ at every run
    jupytext.write(notebook, page.with_suffix(".ipynb"))
