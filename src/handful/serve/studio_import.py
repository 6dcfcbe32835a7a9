"""A folder of images or a .handful file becomes a project of the studio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from handful._io import digest, write_atomically
from handful.classifier.file import read_file
from handful.classifier.inputs import Matrix, Picture
from handful.data.decode import extensions
from handful.errors import DataError, HandfulError
from handful.serve.decode import blank_picture
from handful.serve.studio_changes import Step
from handful.serve.studio_embedding import OPENED
from handful.serve.studio_session import Session
from handful.serve.studio_shelf import Shelf
from handful.serve.studio_store import class_name


def open_source(shelf: Shelf, source: Path) -> str:
    """The project of a folder or .handful file: an existing one, or else a new, empty one."""
    whole = str(source.resolve())
    for summary in shelf.list():
        if summary.source == whole:
            return summary.identity
    if source.is_file():
        read_file(source, None)  # raises before a project is created if the file is not a classifier
    return shelf.create(source.stem or "Project", {"source": whole, "import": whole})


def take_over(session: Session) -> None:
    """Import the source given on the command line, if anything is left.

    After a crash the next start continues, and after an error it tries again.
    """
    source = session.project.facts.get("import")
    if source is None:
        return
    try:
        if Path(source).is_dir():
            _take_folder(session, Path(source))
        else:
            _take_model(session, Path(source))
    except (HandfulError, OSError) as error:
        session.tell("failed", {"message": str(error)})
        return
    if not session.stopped:
        session.project.settle({"import": None})


def _take_folder(session: Session, folder: Path) -> None:
    """Add the images of class folders to their classes, and loose ones to the pile."""
    readable = extensions()
    for file in sorted(folder.rglob("*")):
        parts = file.relative_to(folder).parts
        if file.suffix.lower() not in readable or any(part.startswith(".") for part in parts) or not file.is_file():
            continue
        if session.stopped:
            return
        try:
            label = class_name(parts[0]) if len(parts) > 1 else None
            session.add_image(Picture(str(file)).read(), file.name, label, f"import {folder}")
        except (HandfulError, OSError) as error:
            session.tell("failed", {"message": str(error)})


def _take_model(session: Session, path: Path) -> None:
    """Import the examples of a .handful file: their features, names and thumbnails."""
    state, embedder = read_file(path, None)
    if embedder is None:
        raise DataError(f"{path} was made from features, so the studio has no images to show.")
    project = session.project
    write_atomically(project.folder / OPENED, path.read_bytes())
    after: dict[str, Any] = {"embedding": "file"}
    rows: dict[str, Matrix] = {}
    for number, source in enumerate(state.sources):
        label = class_name(str(state.classes[state.codes[number]]))
        row = state.features[number] + state.origin
        item = source.digest or digest(row.tobytes())
        rows[item] = row
        project.keep_small(item, source.thumbnail or blank_picture())
        after.setdefault(f"class/{label}", {"n": 1 + int(state.codes[number])})
        after[f"item/{item}"] = {"name": Path(source.name).name or f"example {number}", "label": label, "n": number}
    project.keep_features(embedder.digest, rows)
    session.do(lambda _: Step(f"Open {path.name}", after))
