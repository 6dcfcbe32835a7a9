"""`handful studio`: a page in the browser where a classifier is shown images and learns at once."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.errors import InvalidOptionError

if TYPE_CHECKING:
    from handful.serve.studio_store import Shelf


@dataclass(frozen=True)
class Studio:
    """Teach a classifier in the browser: drop images, see at once how good it is, take it with you."""

    source: Positional[Path | None] = None
    """Folder of class folders, or a .handful file, to begin with; without one, the list of your projects."""
    projects: Path | None = None
    """Folder of the projects; by default that of the user's data, or HANDFUL_STUDIO."""
    port: int = 0
    """Port on 127.0.0.1; 0 for a free one."""
    browser: bool = True
    """Open the page in the browser."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Serve until Ctrl-C."""
        from handful.serve import require_packages

        require_packages("studio")
        from handful.serve.launch import address_of, listening, run
        from handful.serve.studio import Studio as Application
        from handful.serve.studio_store import Shelf

        prepare("cpu", self.threads)
        shelf = Shelf(self.projects or default_projects())
        shelf.root.mkdir(parents=True, exist_ok=True)
        opened = f"p/{_opened(shelf, self.source)}" if self.source is not None else ""
        with listening("127.0.0.1", self.port) as bound:
            address = f"{address_of(bound)}/{opened}"
            print(f"handful studio: {address}  (Ctrl-C stops it; your work is saved as you go)", flush=True)
            if self.browser:
                webbrowser.open(address)
            studio = Application(shelf)
            run(studio.application(), bound, grace=1, stopping=studio.stop)
        return 0


def default_projects() -> Path:
    """The folder of projects: HANDFUL_STUDIO, else in the user's data folder."""
    chosen = os.environ.get("HANDFUL_STUDIO")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_path

    return user_data_path("handful", appauthor=False) / "studio"


def _opened(shelf: Shelf, source: Path) -> str:
    """The project that a folder or a file becomes; the one it became before, if it did."""
    from handful.serve.studio_session import open_source

    if not source.exists():
        raise InvalidOptionError(f"There is no folder or file {source}.")
    return open_source(shelf, source)
