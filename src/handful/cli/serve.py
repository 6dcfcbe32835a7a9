"""`handful serve` and `handful studio`: an HTTP service for classifiers, and a web page to teach one."""

from __future__ import annotations

import os
import secrets
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from handful._io import expanded
from handful.cli.machine import prepare
from handful.errors import DataError, InvalidOptionError

if TYPE_CHECKING:
    from handful.serve.studio_shelf import Shelf


TOKEN = "HANDFUL_TOKEN"


@dataclass(frozen=True)
class Serve:
    """Serve classifiers over HTTP: predictions, updates, accuracy, health, metrics and an OpenAPI description."""

    classifiers: Positional[tuple[Path, ...]]
    """Files written by handful fit; each is served under its name without the extension."""
    host: str = "127.0.0.1"
    """Address to listen on. If it is not local, clients need a token: HANDFUL_TOKEN, or one that is printed."""
    port: int = 8000
    """Port to listen on; 0 for any free port."""
    learn: bool = False
    """Let clients add, relabel and forget examples; this updates the files."""
    names: tuple[str, ...] = ()
    """Other host names of the service that clients may use, for example that of a proxy."""
    queue: int = 512
    """Images that may wait at the same time; further requests get a 503."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Serve until stopped by a signal."""
        from handful.serve import require_packages

        require_packages("serve")
        from handful.serve.api import application
        from handful.serve.guard import Limits, access, is_loopback
        from handful.serve.launch import address_of, listening, run
        from handful.serve.models import Service, load_models
        from handful.serve.worker import Worker

        if not self.classifiers:
            raise InvalidOptionError("There is no classifier to serve. Give a file: handful serve model.handful")
        if self.queue < 1:
            raise InvalidOptionError(f"--queue must be at least 1, but got {self.queue}.")
        prepare("cpu", self.threads)
        given = os.environ.get(TOKEN, "")
        token = given or ("" if is_loopback(self.host) else secrets.token_urlsafe(32))
        limits, worker = Limits(), Worker(self.queue)
        models = load_models(self.classifiers, worker, self.learn)
        app = application(Service(models, worker, limits), access(self.host, self.names, token))
        with listening(self.host, self.port) as bound:
            address = address_of(bound)
            for name, model in models.items():
                clf = model.now
                print(f"{address}/models/{name}: {len(clf.classes_)} classes, {len(clf.labels_)} images")
            if token and not given:
                print(f"Token: {token}")
            print(f"Description: {address}/openapi.json", flush=True)
            run(app, bound, limits)
        return 0


@dataclass(frozen=True)
class Studio:
    """Teach a classifier in the browser: drop images, see the accuracy at once, and download the classifier."""

    source: Positional[Path | None] = None
    """Folder of class folders, or a .handful file, to start from; without one, the page lists your projects."""
    projects: Path | None = None
    """Folder for projects; by default HANDFUL_STUDIO, or a folder in your user data folder."""
    port: int = 0
    """Port on 127.0.0.1; 0 for any free port."""
    browser: bool = True
    """Open the page in the browser."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Serve until Ctrl-C."""
        from handful.serve import require_packages

        require_packages("studio")
        from handful.serve.launch import address_of, listening, run
        from handful.serve.studio import Studio as Application
        from handful.serve.studio_shelf import Shelf

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
    """The folder for projects: HANDFUL_STUDIO, or a folder in the user data folder."""
    chosen = os.environ.get("HANDFUL_STUDIO")
    if chosen:
        return expanded(chosen).absolute()
    from platformdirs import user_data_path

    try:
        return user_data_path("handful", appauthor=False) / "studio"
    except RuntimeError as error:
        raise DataError(
            "There is no home folder to keep projects in. Name a folder with --projects or HANDFUL_STUDIO."
        ) from error


def _opened(shelf: Shelf, source: Path) -> str:
    """The name of the project for a folder or file; opening the same one again gives the same project."""
    from handful.serve.studio_import import open_source

    if not (source.is_dir() or source.is_file()):  # a pipe is neither
        raise InvalidOptionError(f"There is no folder or file {source}.")
    return open_source(shelf, source)
