"""`handful serve` and `handful studio`: classifiers over HTTP, and a page in the browser that teaches one."""

from __future__ import annotations

import os
import secrets
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.errors import InvalidOptionError

if TYPE_CHECKING:
    from handful.serve.studio_store import Shelf


TOKEN = "HANDFUL_TOKEN"


@dataclass(frozen=True)
class Serve:
    """Answer over HTTP: predictions, classes, examples, accuracy, health, metrics, and an OpenAPI description."""

    classifiers: Positional[tuple[Path, ...]]
    """Files that handful fit wrote; each is served under its name without the extension."""
    host: str = "127.0.0.1"
    """Address to listen on. Anything but this machine's own needs a token: HANDFUL_TOKEN, or a new one is printed."""
    port: int = 8000
    """Port to listen on; 0 for any free one."""
    learn: bool = False
    """Let clients add, relabel and forget examples; the files are updated."""
    names: tuple[str, ...] = ()
    """Further host names by which clients may call the service, for example that of a proxy."""
    queue: int = 512
    """Images that may wait at once; requests beyond are answered with 503."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Serve until stopped."""
        from handful.serve import require_packages

        require_packages("serve")
        from handful.serve.api import application
        from handful.serve.guard import Limits, access, is_loopback
        from handful.serve.launch import address_of, listening, run
        from handful.serve.models import Service, load_models
        from handful.serve.worker import Worker

        if not self.classifiers:
            raise InvalidOptionError("Say what to serve: handful serve model.handful")
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
    """Teach a classifier in the browser: drop images, see its accuracy at once, and download the classifier."""

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
    from handful.serve.studio_import import open_source

    if not source.exists():
        raise InvalidOptionError(f"There is no folder or file {source}.")
    return open_source(shelf, source)
