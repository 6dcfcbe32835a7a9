"""An open project of the studio: changes are saved and learnt at once, and images are embedded in the background."""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from handful._io import digest
from handful.classifier.examples import State
from handful.classifier.file import write_file
from handful.classifier.inputs import Picture
from handful.classifier.onnx import export
from handful.errors import HandfulError, InvalidOptionError
from handful.serve.decode import small_picture
from handful.serve.standalone import standalone_page
from handful.serve.studio_changes import Step, add
from handful.serve.studio_embedding import TITLES, Embeddings
from handful.serve.studio_model import (
    REJECTIONS,
    USUAL_REJECTION,
    Page,
    answered,
    learnt,
    needs_of,
    shown,
    sorted_pile,
)
from handful.serve.studio_store import Facts, Project, file_name

BATCH = 8
"""Images embedded between two progress reports, and between two checks whether to stop."""
SHOWN = 60
"""Images of the pile that are sent to a page; the others follow as these are labelled."""
FEW = 5
"""Classes with fewer images than this are listed as needing more."""
Json = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """What the background work is doing, and how far it has got."""

    done: int = 0
    total: int = 0
    text: str = ""


class Session:
    """A project with its classifier. All public methods may be called from any thread.

    `tell` is called with the name and data of an event, from any thread.
    """

    def __init__(self, project: Project, tell: Callable[[str, Json], None]) -> None:
        self.project = project
        self.tell = tell
        self.stopped = False
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._embeddings = Embeddings(project)
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
        self._threads: list[threading.Thread] = []
        project.sweep()
        self._activate()
        self.start(Session._work)
        self._wake.set()

    def __repr__(self) -> str:
        return f"Session({self.project!r}, {self._embeddings!r})"

    def start(self, work: Callable[[Session], None]) -> None:
        """Run work in a separate thread, which has to check `stopped` regularly."""
        self._threads.append(threading.Thread(target=work, args=(self,), name="studio", daemon=True))
        self._threads[-1].start()

    def close(self, patience: float = 30.0) -> None:
        """Stop the background work and close the project, without waiting longer than this for a batch."""
        self.stopped = True
        self._wake.set()
        for thread in self._threads:
            thread.join(patience)
        self.project.close()

    # -------------------------------------------------------------------------------------------------------- changes

    def do(self, make: Callable[..., Step], *arguments: Any) -> None:
        """Apply a change of `studio_changes` to the current project."""
        with self._lock:
            step = make(self.project, *arguments)
            if not step.batch or step.batch != self._last_batch:
                self._before = self._accuracy()
            self._last_batch = step.batch
            if self.project.change(step.title, step.facts, step.batch):
                self._changed()

    def add_image(self, content: bytes, name: str, label: str | None, batch: str = "") -> Json:
        """Add an image to a class or to the pile; returns the class that it was already in, if any."""
        small, item = small_picture(name, content), digest(content)
        with self._lock:
            known = self.project.items().get(item)
            if known is None or label is not None:
                self.project.keep(item, content, small)
                self.do(add, item, name, label, batch)
        return {"id": item, "known": None if known is None else known["label"]}

    def choose_embedding(self, name: str) -> None:
        """Use another embedding as soon as it has embedded all images."""
        with self._lock:
            self._embeddings.require(name)
            self._set(f"Switch the embedding to {name}", {"embedding": name})

    def compare(self, name: str) -> None:
        """Estimate in the background what accuracy another embedding would have."""
        with self._lock:
            self._embeddings.require(name)
            self._wanted = [*(each for each in self._wanted if each != name), name]
        self._wake.set()

    def cancel(self) -> None:
        """Stop the background work: remove images that are not embedded yet, and drop a switch or comparison."""
        with self._lock:
            self._wanted = []
            active = self._embeddings.active
            if active and self._embeddings.chosen != active:
                self._set("Keep the embedding", {"embedding": active})
            missing = [item for item in self.project.items() if item not in self._embeddings.features]
            if missing:
                self._set(f"Leave out {len(missing)} images", dict.fromkeys((f"item/{each}" for each in missing), None))

    def _set(self, title: str, facts: Facts) -> None:
        self.do(lambda project: Step(title, facts))

    def undo(self) -> str | None:
        """Undo the last change exactly."""
        return self._travelled(self.project.undo)

    def redo(self) -> str | None:
        """Redo the change that was undone last."""
        return self._travelled(self.project.redo)

    def _travelled(self, move: Callable[[], Any]) -> str | None:
        with self._lock:
            self._before, self._last_batch = self._accuracy(), ""
            step = move()
            self._changed()
        return None if step is None else str(step.title)

    def _changed(self) -> None:
        self._activate()
        self._refresh()
        self._wake.set()
        self.tell("changed", {"revision": self._revision})

    # ----------------------------------------------------------------------------------------------------- classifier

    def _activate(self) -> None:
        if self._embeddings.activate():
            self._model = None
            self._refresh()

    def _refresh(self) -> None:
        """Update the classifier to the current labels."""
        self._embeddings.recall()
        items, features = self.project.items(), self._embeddings.features
        labels = {item: each["label"] for item, each in items.items() if each["label"] is not None and item in features}
        before, self._model = self._model, learnt(self._model, labels, features, lambda item: items[item]["name"])
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

        A page that gives its session and last revision only gets the images that changed `since`.
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
                    "share": self.project.facts.get("reject", USUAL_REJECTION),
                    "shares": list(REJECTIONS),
                    "thresholds": [] if self._shown is None else self._shown["thresholds"],
                },
                "undo": self.project.undoable(),
                "redo": self.project.redoable(),
                "embedding": self._embedding(),
                "progress": self.progress(),
            }

    def _sorted(self, pile: list[str]) -> list[Json]:
        """The pile, sorted by what to label next; the order is computed once per classifier and pile."""
        ready = {item: self._embeddings.features[item] for item in pile if item in self._embeddings.features}
        model, known, found = self._pile
        if model is not self._model or known != [*ready]:
            found = sorted_pile(self._model, ready)
            self._pile = self._model, [*ready], found
        return found + [{"id": item} for item in pile if item not in ready]

    def progress(self) -> Json:
        """The progress of the background work."""
        progress = self._progress
        return {"done": progress.done, "total": progress.total, "text": progress.text}

    def _item(self, item: str, value: Json) -> Json:
        ready = item in self._embeddings.features
        found: Json = {"id": item, "n": value["n"], "name": value["name"], "label": value["label"], "ready": ready}
        if self._shown is not None and item in self._shown["guesses"]:
            found["guess"] = self._shown["guesses"][item]
            if item in self._shown["doubtful"] and not value.get("sure"):
                found["guess"], found["doubt"] = self._shown["doubtful"][item]
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
        chosen, active = self._embeddings.chosen, self._embeddings.active
        if self._shown is not None:
            self._compared[active] = self._shown["score"]
        options = [
            {"name": name, "title": TITLES.get(name, name), "estimate": self._compared.get(name)}
            for name in self._embeddings.names()
        ]
        return {"chosen": chosen, "active": active, "options": options}

    def answer(self, content: bytes, name: str = "image") -> Json:
        """The answer for an image: probabilities, unknown score and nearest examples."""
        with self._lock:
            model, active = self._model, self._embeddings.active
        if model is None:
            raise InvalidOptionError("Show it images of at least two classes first.")
        return answered(model, self._embeddings.look(active, [Picture(name, content)])[0])

    def save(self, path: Path) -> None:
        """Write the classifier to a .handful file with thumbnails, an .onnx file or an .html page."""
        with self._lock:
            model, embedder = self._model, self._embeddings.embedder(self._embeddings.active or "characters")
        if model is None:
            raise InvalidOptionError("There is nothing to take away yet: show it images of at least two classes.")
        if path.suffix == ".onnx":
            export(path, model, embedder)
        elif path.suffix == ".html":
            share = self.project.facts.get("reject", USUAL_REJECTION)
            page = standalone_page(self.project.name, model, embedder, share)
            path.write_text(page, encoding="utf-8")
        else:
            pictures = (self.project.small(each.digest) for each in model.sources)
            thumbnails = [file.read_bytes() if file.exists() else b"" for file in pictures]
            sources = tuple(map(lambda each, data: replace(each, thumbnail=data), model.sources, thumbnails))
            write_file(path, replace(model, sources=sources), embedder, thumbnails=True)

    # ------------------------------------------------------------------------------------------------ background work

    def _work(self) -> None:
        while not self.stopped:
            self._wake.wait()
            self._wake.clear()
            try:
                while not self.stopped and self._step():
                    pass
            except (HandfulError, OSError, RuntimeError, sqlite3.Error) as error:
                if self.stopped:  # the project was closed during the batch; the next session embeds it again
                    return
                self.tell("failed", {"message": str(error)})
                with self._lock:
                    self._wanted = []
            self._report(Progress())

    def _step(self) -> bool:
        """Embed one batch of missing images; returns False if there are none."""
        with self._lock:
            if not self.project.items():
                return False
            if self._embeddings.chosen == "auto":
                self._choose()
            name = chosen = self._embeddings.chosen
            missing = self._embeddings.missing(name)
            if not missing and self._wanted:
                name = self._wanted[0]
                missing = self._embeddings.missing(name)
                if not missing:
                    self._compare_now(name)
                    return True
            if not missing:
                return False
            some = missing[:BATCH]
            pictures = [self._embeddings.picture(item) for item in some]
        self._advance(name, len(missing))
        rows = dict(zip(some, self._embeddings.look(name, pictures), strict=True))
        self.project.keep_features(self._embeddings.embedder(name).digest, rows)
        with self._lock:
            if name == self._embeddings.active:
                self._embeddings.features |= rows
            if name == chosen:
                self._changed()
        return True

    def _choose(self) -> None:
        complaint = self._embeddings.choose()
        if complaint:
            self.tell("failed", {"message": complaint})
        self._activate()

    def _advance(self, name: str, missing: int) -> None:
        before, active = self._progress, self._embeddings.active
        text = "Looking at the images" if name == active or not active else f"Trying {name}"
        total = max(before.total, before.done + missing) if before.text == text else missing
        self._report(Progress(total - missing, total, text))

    def _report(self, progress: Progress) -> None:
        self._progress = progress
        self.tell("progress", self.progress())

    def _compare_now(self, name: str) -> None:
        items, features = self.project.items(), self._embeddings.known(name)
        labels = {item: value["label"] for item, value in items.items() if value["label"] is not None}
        self._wanted = [each for each in self._wanted if each != name]
        found = learnt(None, labels, features, lambda item: items[item]["name"])
        if found is not None:
            self._compared[name] = shown(found)["score"]
        self._revision += 1
        self.tell("changed", {"revision": self._revision})
