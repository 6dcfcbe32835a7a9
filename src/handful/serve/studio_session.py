"""An open project of the studio: its classifier follows every change, and images are embedded in the background."""

from __future__ import annotations

import io
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from PIL import Image

from handful._io import digest, write_atomically
from handful.classifier.embedder import ALIASES, PACKAGED, AnyEmbedder, automatic, choose_embedder
from handful.classifier.examples import State
from handful.classifier.features import embed
from handful.classifier.file import read_file, write_file
from handful.classifier.inputs import Matrix, Picture, pixels_of
from handful.classifier.onnx import export
from handful.data.decode import Decoding, extensions, upright
from handful.errors import DataError, HandfulError, InvalidOptionError
from handful.serve.standalone import standalone_page
from handful.serve.studio_model import REJECTIONS, Page, answered, learnt, needs_of, shown, sorted_pile
from handful.serve.studio_store import LONGEST_NAME, Project, Shelf, class_name, file_name

BATCH = 8
"""Images embedded between two reports of progress, and between two looks whether to stop."""
MOST_IMAGES = 5000
SMALL = Decoding(192, 192, channels=3, fit="crop")
LARGE = 1200
"""Longest side, in pixels, of an image that is opened."""
SHOWN = 60
"""Images of the pile that a page gets; the others follow as these are labelled."""
FEW = 5
"""Classes with fewer images than this are asked for more."""
TITLES = {
    "characters": "Drawings: comes with handful, fast",
    "photographs": "Photographs: EfficientNet-Lite0",
    "photographs-large": "Photographs: two networks, slower and usually better",
    "file": "The embedding of the opened file",
}
OPENED = "opened.handful"
"""The copy of the file that a project was made from."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """How far the background work is, and what it does."""

    done: int = 0
    total: int = 0
    text: str = ""


class Session:
    """A project with its classifier. All public methods may be called from any thread.

    `tell` is called, from any thread, with the name of an event and what belongs to it.
    """

    def __init__(self, project: Project, tell: Callable[[str, Json], None]) -> None:
        self.project = project
        self._tell = tell
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopped = False
        self._embedders: dict[str, AnyEmbedder] = {}
        self._active = ""
        self._features: dict[str, Matrix] = {}
        self._model: State | None = None
        self._shown: Json | None = None
        self._compared: dict[str, Json] = {}
        self._wanted: list[str] = []
        self._progress = Progress()
        self._before: float | None = None
        self._last_batch = ""
        self._revision = self._learnt = 0
        self._page = Page()
        self._pile: tuple[State | None, list[str], list[Json]] = (None, [], [])
        self._token = secrets.token_hex(4)
        project.sweep()
        self._activate()
        self._worker = threading.Thread(target=self._work, name="studio", daemon=True)
        self._worker.start()
        self._wake.set()
        if "import" in project.facts:
            threading.Thread(target=self._import, args=(Path(project.facts["import"]),), daemon=True).start()

    def __repr__(self) -> str:
        return f"Session({self.project!r}, embedding={self._active or 'none yet'!r})"

    def close(self, patience: float = 30.0) -> None:
        """Stop the background work and close the project; a batch that takes longer than this is not waited for."""
        self._stopped = True
        self._wake.set()
        self._worker.join(patience)
        self.project.close()

    # -------------------------------------------------------------------------------------------------------- changes

    def add_image(self, content: bytes, name: str, label: str | None, batch: str = "") -> Json:
        """Add an image to a class or, without one, to the pile; an image that is already here is only relabelled."""
        small = small_picture(name, content)
        item = digest(content)
        with self._lock:
            items = self.project.items()
            if item not in items and len(items) >= MOST_IMAGES:
                raise InvalidOptionError(f"A project has at most {MOST_IMAGES} images.")
            known = items.get(item)
            if known is not None and label is None:
                return {"id": item, "known": known["label"]}
            self.project.keep(item, content, small)
            after = self._class_facts(label)
            if known is None:
                number = 1 + max((each["n"] for each in items.values()), default=0)
                after[f"item/{item}"] = {"name": name[-LONGEST_NAME * 2 :], "label": label, "n": number}
            else:
                after[f"item/{item}"] = {**known, "label": label}
            where = f"“{label}”" if label is not None else "the pile"
            self._change(f"Add images to {where}" if batch else f"Add an image to {where}", after, batch)
        return {"id": item, "known": None if known is None else known["label"]}

    def label(self, items: Sequence[str], label: str | None) -> None:
        """Move images to a class (a new one if there is none of that name), or to the pile."""
        with self._lock:
            known, after = self._known(items), self._class_facts(label)
            for item, value in known.items():
                after[f"item/{item}"] = {"name": value["name"], "label": label, "n": value["n"]}
            what = "1 image" if len(known) == 1 else f"{len(known)} images"
            self._change(f"Move {what} to {f'“{label}”' if label is not None else 'the pile'}", after)

    def confirm(self, items: Sequence[str]) -> None:
        """Say that labels are right, so that they are not called doubtful again."""
        with self._lock:
            after = {f"item/{item}": {**value, "sure": True} for item, value in self._known(items).items()}
            self._change("Confirm a label", after)

    def delete(self, items: Sequence[str]) -> None:
        """Delete images."""
        with self._lock:
            known = self._known(items)
            what = "an image" if len(known) == 1 else f"{len(known)} images"
            self._change(f"Delete {what}", dict.fromkeys((f"item/{item}" for item in known), None))

    def add_class(self, name: str) -> None:
        """A new, empty class."""
        with self._lock:
            self._change(f"Add the class “{class_name(name)}”", self._class_facts(name))

    def rename_class(self, old: str, new: str) -> None:
        """Rename a class; the name of another class joins the two."""
        with self._lock:
            name, value = class_name(new), self._class(old)
            if name == old:
                return
            after: Json = {f"class/{old}": None, f"class/{name}": self.project.facts.get(f"class/{name}", value)}
            for item, each in self.project.items().items():
                if each["label"] == old:
                    after[f"item/{item}"] = {**each, "label": name}
            self._change(f"Rename “{old}” to “{name}”", after)

    def delete_class(self, name: str) -> None:
        """Delete a class with its images."""
        with self._lock:
            self._class(name)
            after: Json = {f"class/{name}": None}
            after |= {f"item/{item}": None for item, each in self.project.items().items() if each["label"] == name}
            self._change(f"Delete the class “{name}”", after)

    def rename(self, name: str) -> None:
        """Rename the project."""
        with self._lock:
            self._change(f"Rename the project to “{class_name(name)}”", {"name": class_name(name)})

    def reject(self, share: float) -> None:
        """The share of known images that may be called unknown."""
        if share not in REJECTIONS:
            raise InvalidOptionError(f"The share to reject is one of {', '.join(map(str, REJECTIONS))}.")
        with self._lock:
            self._change("Change when an image is none of these", {"reject": share}, "reject")

    def choose_embedding(self, name: str) -> None:
        """Use another embedding, as soon as all images have been embedded by it."""
        with self._lock:
            self._check_embedding(name)
            self._change(f"Switch the embedding to {name}", {"embedding": name})

    def compare(self, name: str) -> None:
        """Estimate, in the background, what accuracy another embedding would have."""
        with self._lock:
            self._check_embedding(name)
            self._wanted = [*(each for each in self._wanted if each != name), name]
        self._wake.set()

    def cancel(self) -> None:
        """Stop the background work: images not yet embedded are removed, and a switch or comparison is dropped."""
        with self._lock:
            self._wanted = []
            chosen = self.project.facts.get("embedding", "auto")
            if self._active and chosen != self._active:
                self._change("Keep the embedding", {"embedding": self._active})
            missing = [item for item in self.project.items() if item not in self._features]
            if missing:
                self._change(f"Cancel {len(missing)} images", dict.fromkeys((f"item/{each}" for each in missing), None))

    def undo(self) -> str | None:
        """Take back the last change, exactly."""
        return self._travelled(self.project.undo)

    def redo(self) -> str | None:
        """Repeat the change that was undone last."""
        return self._travelled(self.project.redo)

    def _travelled(self, move: Callable[[], Any]) -> str | None:
        with self._lock:
            self._before, self._last_batch = self._accuracy(), ""
            step = move()
            self._changed()
        return None if step is None else str(step.title)

    def _change(self, title: str, after: Mapping[str, Any], batch: str = "") -> None:
        if not batch or batch != self._last_batch:
            self._before = self._accuracy()
        self._last_batch = batch
        if self.project.change(title, after, batch):
            self._changed()

    def _changed(self) -> None:
        self._activate()
        self._refresh()
        self._wake.set()
        self._tell("changed", {"revision": self._revision})

    def _class_facts(self, label: str | None) -> Json:
        """What makes sure that a class exists."""
        if label is None or f"class/{class_name(label)}" in self.project.facts:
            return {}
        order = [value["n"] for key, value in self.project.facts.items() if key.startswith("class/")]
        return {f"class/{class_name(label)}": {"n": 1 + max(order, default=0)}}

    def _class(self, name: str) -> Json:
        value: Json | None = self.project.facts.get(f"class/{name}")
        if value is None:
            raise InvalidOptionError(f"There is no class “{name}”.")
        return value

    def _known(self, items: Sequence[str]) -> dict[str, Json]:
        here = self.project.items()
        unknown = [item for item in items if item not in here]
        if unknown or not items:
            raise InvalidOptionError("That image is not in the project any more.")
        return {item: here[item] for item in items}

    # ----------------------------------------------------------------------------------------------------- classifier

    def embeddings(self) -> list[str]:
        """The embeddings that can be chosen here."""
        return [*_installed(), *(["file"] if (self.project.folder / OPENED).exists() else [])]

    def _check_embedding(self, name: str) -> None:
        if name not in self.embeddings():
            raise InvalidOptionError(f"The embedding is one of {', '.join(self.embeddings())}, but got {name[:40]!r}.")
        whole = [item for item in self.project.items() if not self.project.image(item).exists()]
        if name != "file" and whole:
            raise InvalidOptionError(
                f"{len(whole)} images came with a .handful file, which holds their features and not the images "
                f"themselves, so another embedding cannot see them. Delete them, or start from the images."
            )

    def _embedder(self, name: str) -> AnyEmbedder:
        if name not in self._embedders:
            if name == "file":
                _, found = read_file(self.project.folder / OPENED, None)
                if found is None:
                    raise DataError("This file was made from features, so it has no embedding for images.")
                self._embedders[name] = found
            else:
                self._embedders[name] = choose_embedder(name, ())
        return self._embedders[name]

    def _missing(self, name: str) -> list[str]:
        items = self.project.items()
        done = self._features if name == self._active else self.project.features(self._embedder(name).digest, [*items])
        return [item for item in items if item not in done]

    def _activate(self) -> None:
        """Take up the chosen embedding if every image has features of it, or if there is none in use yet."""
        name = self.project.facts.get("embedding", "auto")
        if name in ("auto", self._active) or (self._active and self._missing(name)):
            return
        self._active = name
        self._features = self.project.features(self._embedder(name).digest, [*self.project.items()])
        self._model = None
        self._refresh()

    def _refresh(self) -> None:
        """Make the classifier that of the labels."""
        items = self.project.items()
        back = [item for item in items if item not in self._features]
        if back and self._active:  # an undone deletion, or images of another embedding
            self._features |= self.project.features(self._embedder(self._active).digest, back)
        labels = {i: v["label"] for i, v in items.items() if v["label"] is not None and i in self._features}
        names = {item: value["name"] for item, value in items.items()}
        before, self._model = self._model, learnt(self._model, labels, self._features, names)
        if self._model is not before or self._model is None:
            self._shown = None if self._model is None else shown(self._model)
            self._learnt += 1
        self._revision += 1
        self._page.turn(self._revision, {item: self._item(item, value) for item, value in items.items()})

    def _accuracy(self) -> float | None:
        return None if self._shown is None else self._shown["score"]["accuracy"]

    # -------------------------------------------------------------------------------------------------- what it shows

    def state(self, session: str = "", since: int | None = None) -> Json:
        """Everything that the page shows, as plain values.

        A page that names its session and the revision that it has seen gets only the images that changed `since`.
        """
        with self._lock:
            partial = since is not None and session == self._token
            pile = [item for item, value in self.project.items().items() if value["label"] is None]
            return {
                "session": self._token,
                "revision": self._revision,
                **self._page.since(since if partial and since is not None else None),
                "learnt": self._learnt,
                "id": self.project.identity,
                "name": self.project.name,
                "file": file_name(self.project.name),
                "classes": self._classes(),
                "pile": self._sorted(pile)[:SHOWN],
                "unlabelled": len(pile),
                "estimate": self._estimate(),
                "duplicates": [] if self._shown is None else self._shown["duplicates"],
                "rejection": {
                    "share": self.project.facts.get("reject", 0.05),
                    "shares": list(REJECTIONS),
                    "thresholds": [] if self._shown is None else self._shown["thresholds"],
                },
                "undo": self.project.undoable(),
                "redo": self.project.redoable(),
                "embedding": self._embedding(),
                "progress": self.progress(),
            }

    def _sorted(self, pile: list[str]) -> list[Json]:
        """The pile, what to label next first; its order is computed once per classifier and pile."""
        ready = {item: self._features[item] for item in pile if item in self._features}
        model, known, found = self._pile
        if model is not self._model or known != [*ready]:
            found = sorted_pile(self._model, ready)
            self._pile = self._model, [*ready], found
        return found + [{"id": item} for item in pile if item not in ready]

    def progress(self) -> Json:
        """How far the background work is."""
        progress = self._progress
        return {"done": progress.done, "total": progress.total, "text": progress.text}

    def _item(self, item: str, value: Json) -> Json:
        ready = item in self._features
        found: Json = {"id": item, "n": value["n"], "name": value["name"], "label": value["label"], "ready": ready}
        if self._shown is not None and item in self._shown["guesses"]:
            found["guess"] = self._shown["guesses"][item]
            if item in self._shown["doubtful"] and not value.get("sure"):
                found["doubt"] = self._shown["doubtful"][item]["probability"]
                found["guess"] = str(self._shown["doubtful"][item]["looks_like"])
        return found

    def _classes(self) -> list[Json]:
        known, needs = ({}, {}) if self._shown is None else (self._shown["classes"], self._shown["needs"])
        counts = Counter(value["label"] for value in self.project.items().values())
        classes = []
        for name in self.project.classes():
            count = counts[name]
            tested, right = (known[name]["tested"], known[name]["right"]) if name in known else (0, 0)
            need = needs_of(needs, name, count, FEW)
            classes.append({"name": name, "count": count, "tested": tested, "right": right, "needs": need})
        return classes

    def _estimate(self) -> Json | None:
        if self._shown is None:
            return None
        now = self._accuracy()
        return {**self._shown["score"], "moved": None if self._before is None or now is None else now - self._before}

    def _embedding(self) -> Json:
        if self._shown is not None:
            self._compared[self._active] = self._shown["score"]
        options = [
            {"name": name, "title": TITLES.get(name, name), "estimate": self._compared.get(name)}
            for name in self.embeddings()
        ]
        return {"chosen": self.project.facts.get("embedding", "auto"), "active": self._active, "options": options}

    def answer(self, content: bytes, name: str = "image") -> Json:
        """What the classifier says about an image: probabilities, how unknown it is, and the nearest examples."""
        with self._lock:
            model, active = self._model, self._active
        if model is None:
            raise InvalidOptionError("Show it images of at least two classes first.")
        return answered(
            model, embed([Picture(name, content)], self._embedder(active), None, thumbnails=False).features[0]
        )

    def save(self, path: Path) -> None:
        """Write the classifier to a .handful file with small pictures of the examples, a .onnx file or a .html page."""
        with self._lock:
            model, active = self._model, self._active
        if model is None:
            raise InvalidOptionError("There is nothing to take away yet: show it images of at least two classes.")
        if path.suffix == ".onnx":
            export(path, model, self._embedder(active))
            return
        if path.suffix == ".html":
            page = standalone_page(self.project.name, model, self._embedder(active))
            path.write_text(page, encoding="utf-8")
            return
        sources = tuple(replace(each, thumbnail=_bytes(self.project.small(each.digest))) for each in model.sources)
        write_file(path, replace(model, sources=sources), self._embedder(active), thumbnails=True)

    def large_picture(self, item: str) -> bytes:
        """An image for looking at, decoded and encoded again: the browser never sees the bytes that were given."""
        file = self.project.image(item)
        if not file.exists():
            return _bytes(self.project.small(item))
        image = upright(file.read_bytes(), Decoding(LARGE // 2, LARGE // 2))
        image.thumbnail((LARGE, LARGE))
        out = io.BytesIO()
        image.save(out, "JPEG", quality=88)
        return out.getvalue()

    # ------------------------------------------------------------------------------------------------ background work

    def _work(self) -> None:
        while not self._stopped:
            self._wake.wait()
            self._wake.clear()
            try:
                while not self._stopped and self._step():
                    pass
            except (HandfulError, OSError, RuntimeError, sqlite3.Error) as error:
                if self._stopped:  # the project was closed during the batch, which the next session embeds again
                    return
                self._tell("failed", {"message": str(error)})
                with self._lock:
                    self._wanted = []
            self._report(Progress())

    def _step(self) -> bool:
        """Embed one batch of what is missing; False if nothing is."""
        with self._lock:
            if not self.project.items():
                return False
            if self.project.facts.get("embedding", "auto") == "auto":
                self._choose()
            chosen = self.project.facts["embedding"]
            name, missing = chosen, self._missing(chosen)
            if not missing and self._wanted:
                name = self._wanted[0]
                missing = self._missing(name)
                if not missing:
                    self._compare_now(name)
                    return True
            if not missing:
                return False
            items = self.project.items()
            some = [Picture(items[item]["name"], self.project.image(item).read_bytes()) for item in missing[:BATCH]]
        self._advance(name, len(missing))
        done = embed(some, self._embedder(name), None, thumbnails=False)
        rows = dict(zip(missing[:BATCH], done.features, strict=True))
        self.project.keep_features(self._embedder(name).digest, rows)
        with self._lock:
            if name == self._active:
                self._features |= rows
            if name == chosen:
                self._changed()
        return True

    def _advance(self, name: str, missing: int) -> None:
        before = self._progress
        text = "Looking at the images" if name == self._active or not self._active else f"Trying {name}"
        total = max(before.total, before.done + missing) if before.text == text else missing
        self._report(Progress(total - missing, total, text))

    def _report(self, progress: Progress) -> None:
        self._progress = progress
        self._tell("progress", self.progress())

    def _choose(self) -> None:
        items = self.project.items()
        pictures = [
            Picture(each["name"], self.project.image(item).read_bytes()) for item, each in [*items.items()][:12]
        ]
        try:
            name = automatic(pictures)
        except DataError as error:
            name = "characters"
            self._tell("failed", {"message": f"{error} Until then the embedding for drawings is used."})
        self.project.settle({"embedding": name})
        self._activate()

    def _compare_now(self, name: str) -> None:
        items = self.project.items()
        features = self.project.features(self._embedder(name).digest, [*items])
        labels = {item: value["label"] for item, value in items.items() if value["label"] is not None}
        names = {item: value["name"] for item, value in items.items()}
        self._wanted = [each for each in self._wanted if each != name]
        found = learnt(None, labels, features, names)
        if found is not None:
            self._compared[name] = shown(found)["score"]
        self._revision += 1
        self._tell("changed", {"revision": self._revision})

    # -------------------------------------------------------------------------------------------------------- opening

    def _import(self, source: Path) -> None:
        """Take over the folder or file that the command line named; after a crash the next start goes on."""
        try:
            if source.is_dir():
                self._import_folder(source)
            else:
                self._import_model(source)
        except (HandfulError, OSError) as error:
            self._tell("failed", {"message": str(error)})
        self.project.settle({"import": None})

    def _import_folder(self, folder: Path) -> None:
        """Add the images of class folders to their classes, and loose ones to the pile."""
        readable = extensions()
        files = [
            file
            for file in sorted(folder.rglob("*"))
            if file.suffix.lower() in readable
            and file.is_file()
            and not any(part.startswith(".") for part in file.relative_to(folder).parts)
        ]
        for file in files:
            if self._stopped:
                return
            parts = file.relative_to(folder).parts
            try:
                label = class_name(parts[0]) if len(parts) > 1 else None
                self.add_image(Picture(str(file)).read(), file.name, label, f"import {folder}")
            except (HandfulError, OSError) as error:
                self._tell("failed", {"message": str(error)})

    def _import_model(self, path: Path) -> None:
        """Take over the examples of a .handful file: their features, names and small pictures."""
        state, embedder = read_file(path, None)
        if embedder is None:
            raise DataError(f"{path} was made from features, so the studio has no images to show.")
        write_atomically(self.project.folder / OPENED, path.read_bytes())
        after: Json = {"embedding": "file"}
        rows: dict[str, Matrix] = {}
        for number, source in enumerate(state.sources):
            label = class_name(str(state.classes[state.codes[number]]))
            row = state.features[number] + state.origin
            item = source.digest or digest(row.tobytes())
            rows[item] = row
            self.project.keep_small(item, source.thumbnail or _blank())
            after.setdefault(f"class/{label}", {"n": 1 + int(state.codes[number])})
            after[f"item/{item}"] = {"name": Path(source.name).name or f"example {number}", "label": label, "n": number}
        self.project.keep_features(embedder.digest, rows)
        with self._lock:
            self._change(f"Open {path.name}", after)


@cache
def _installed() -> tuple[str, ...]:
    """The embeddings by name; asked once, because looking for packages costs a millisecond."""
    named = ["characters"]
    if find_spec(PACKAGED["photographs"].package) is not None:
        named.append("photographs")
    if all(find_spec(which.package) is not None for which in PACKAGED.values()):
        named += ALIASES
    return tuple(named)


def open_source(shelf: Shelf, source: Path) -> str:
    """The project of a folder or a .handful file: the one it became before or else a new one, which begins empty."""
    whole = str(source.resolve())
    for summary in shelf.list():
        if summary.source == whole:
            return summary.identity
    if source.is_file():
        read_file(source, None)  # what is no classifier is refused before a project is made of it
    return shelf.create(source.stem or "Project", {"source": whole, "import": whole})


def small_picture(name: str, content: bytes) -> bytes:
    """A small JPEG of an image file; what cannot be read as an image is refused by name."""
    pixels = pixels_of(Picture(name), content, SMALL)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=85)
    return out.getvalue()


def _blank() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (32, 32), (160, 160, 160)).save(out, "JPEG")
    return out.getvalue()


def _bytes(file: Path) -> bytes:
    return file.read_bytes() if file.exists() else b""
