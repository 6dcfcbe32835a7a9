"""`handful fit`, `handful add` and `handful forget`: teach a classifier from folders of images."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from handful._io import locked
from handful.cli.distributed import require_together
from handful.cli.machine import note, prepare
from handful.errors import DataError, InvalidOptionError
from handful.meta.config import Device

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from handful.classifier import FewShotClassifier
    from handful.classifier.inputs import Labelled


@dataclass(frozen=True)
class Fit:
    """Learn to classify your own images, from a folder with a handful of images for each class."""

    folder: Positional[Path]
    """Folder with one subfolder per class (or such folders in train/ and test/), or a CSV file with path,label."""
    out: Annotated[Path, arg(aliases=["-o"])]
    """File to write, for example birds.handful."""
    embedding: str = "auto"
    """auto looks at the images and chooses between characters and photographs-large.
    Or name one: characters, photographs, photographs-large, a run folder, timm:NAME, hf:NAME,
    open_clip:NAME/WEIGHTS or onnx:FILE.
    Join several with +, or choose by leave-one-out with auto:A,B."""
    learner: Literal["ridge", "logistic", "softmax", "prototypes"] = "ridge"
    """Learner to fit on the features."""
    lam: float | Literal["auto"] = "auto"
    """Regularisation strength, or auto to choose it by leave-one-out."""
    balance: bool = True
    """Treat all classes as equally likely, however many images each one has."""
    keep_going: bool = False
    """Report unreadable images and learn from the others; the exit code is then 1."""
    thumbnails: bool = True
    """Store thumbnails in the file and in your cache folder, for handful inspect."""
    cache: bool = True
    """Store image features in your cache folder, so that they are computed only once."""
    force: bool = False
    """Overwrite the file if it exists."""
    device: Device = "auto"
    """Device to compute the embedding on."""
    threads: int = 0
    """Number of threads; 0 for one per core."""
    scheduler: str = ""
    """Fit with Dask, without storing the examples in the file: tcp://HOST:PORT, or local:N for N processes."""
    shards: Path | None = None
    """With --scheduler, a folder for features that all workers can read; by default next to the file."""

    def run(self) -> int:
        """Fit, save, and print the classes and the estimated accuracy."""
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import labelled_pictures

        if self.out.exists() and not self.force:
            raise InvalidOptionError(f"{self.out} exists. Replace it with --force, or extend it with handful add.")
        require_together(self, ("keep_going", "thumbnails", "cache", "device", "threads"), "shards")
        if self.scheduler:
            from handful.cli.distributed import fit_by_dask

            if self.learner != "ridge":
                raise InvalidOptionError(
                    f"--scheduler works with --learner ridge only, because other learners cannot be merged exactly, "
                    f"but got {self.learner}."
                )
            return fit_by_dask(
                self.folder, self.out, self.shards, self.scheduler, self.embedding, self.lam, self.balance
            )
        engine = prepare(self.device, self.threads)
        found = labelled_pictures(self.folder, None)
        for remark in found.remarks:
            print(remark)
        if found.folder is not None and found.folder != self.folder:
            print(f"Learning from {found.folder}; to measure on the rest: handful test {self.out} {self.folder}")
        clf = FewShotClassifier(
            self.embedding,
            self.learner,
            self.lam,
            balance=self.balance,
            cache=self.cache,
            device=str(engine.device),
            thumbnails=self.thumbnails,
        )
        failed = learn(clf.fit, found, self.keep_going)
        with updating(self.out):
            clf.save(self.out, thumbnails=self.thumbnails)
        self._report(clf)
        return 1 if failed else 0

    def _report(self, clf: FewShotClassifier) -> None:
        from handful.classifier.inputs import count_of

        estimate = clf.estimate()
        counts = ", ".join(f"{each.label} ({each.images})" for each in estimate.classes)
        print(textwrap.fill(f"Classes: {counts}", 100, subsequent_indent="  ", break_on_hyphens=False))
        images = count_of(len(clf.labels_), "image")
        names = self.embedding.removeprefix("auto:")
        chosen = "" if names == self.embedding else f", chosen from {names}"
        print(f"{self.out}: {count_of(len(clf.classes_), 'class')}, {images}, embedding {clf.embedding_}{chosen}")
        copies = clf.learnt_.repeated
        if copies:
            print(f"Exact copies of other images left out: {len(copies):,}, for example {copies[0]}")
        if estimate.duplicates:
            alike, first = sum(len(each.indices) for each in estimate.duplicates), estimate.duplicates[0].names
            print(
                f"Near duplicates held out together: {count_of(alike, 'image')}, for example {first[0]} and {first[1]}"
            )
        print(f"Accuracy: {estimate.score}")
        if estimate.doubtful:
            most = estimate.doubtful[0]
            verb = "looks" if len(estimate.doubtful) == 1 else "look"
            print(f"{count_of(len(estimate.doubtful), 'label')} {verb} doubtful, most of all that of {most.name}")
        print(f"Next: handful predict {self.out} IMAGES..., handful inspect {self.out}")


@dataclass(frozen=True)
class Add:
    """Add images of known or new classes to a classifier; the result equals fitting all images at once."""

    classifier: Positional[Path]
    """File written by handful fit; it is replaced only if everything succeeds."""
    images: Positional[tuple[str, ...]] = ()
    """Images or folders of images of one class; or, without --label, one folder of class folders or one CSV file."""
    label: str = ""
    """Class of these images."""
    keep_going: bool = False
    """Report unreadable images and learn from the others; the exit code is then 1."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Update the file and print what changed."""
        if not self.images:
            raise InvalidOptionError("There is nothing to add. Give images, or a folder of images.")
        if not self.label and not (len(self.images) == 1 and self._labelled(self.images[0])):
            raise InvalidOptionError("The images have no label. Add --label NAME, or give one folder of class folders.")
        prepare("cpu", self.threads)
        with updating(self.classifier):
            return self._update()

    def _labelled(self, given: str) -> bool:
        return os.path.isdir(given) or given.lower().endswith(".csv")

    def _update(self) -> int:
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import count_of, labelled_pictures, listed_pictures
        from handful.classifier.labels import label_from

        clf = FewShotClassifier.load(self.classifier)
        pictured = clf.has_thumbnails_
        classes, before = set(clf.classes_), len(clf.labels_)
        if self.label:
            found = listed_pictures(self.images)
            found = replace(found, labels=[label_from(self.label, clf.classes_)] * len(found.pictures))
        else:
            found = labelled_pictures(Path(self.images[0]), None)
        for remark in found.remarks:
            print(remark)
        failed = learn(clf.partial_fit, found, self.keep_going)
        clf.save(self.classifier, thumbnails=pictured)
        new = [str(name) for name in clf.classes_ if name not in classes]
        print(f"{self.classifier}: {count_of(len(clf.labels_) - before, 'image')} added, {len(clf.labels_)} in total")
        if clf.learnt_.repeated:
            print(clf.learnt_)
        if new:
            print(f"New {'class' if len(new) == 1 else 'classes'}: {', '.join(new)}")
        print(f"Accuracy: {clf.score_estimate_}")
        return 1 if failed else 0


@dataclass(frozen=True)
class Forget:
    """Remove images or a whole class, as if the classifier had never seen them; file and cache keep no trace."""

    classifier: Positional[Path]
    """File written by handful fit; it is replaced only if everything succeeds."""
    images: tuple[Path, ...] = ()
    """Images to forget, matched by content, or otherwise by the path they had when they were added."""
    label: str = ""
    """Class to forget, with all of its images."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Update the file and print what changed."""
        prepare("cpu", self.threads)
        if bool(self.images) == bool(self.label):
            raise InvalidOptionError("Say what to forget: either --images IMAGES... or --label NAME.")
        with updating(self.classifier):
            self._update()
        return 0

    def _update(self) -> None:
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import count_of

        clf = FewShotClassifier.load(self.classifier)
        pictured = clf.has_thumbnails_
        before = len(clf.labels_)
        if self.label:
            clf.forget(label=known_label(self.label, clf.classes_))
        for image in self.images:
            clf.forget(image=image)
        clf.save(self.classifier, thumbnails=pictured)
        print(f"{self.classifier}: {count_of(before - len(clf.labels_), 'image')} forgotten, {len(clf.labels_)} left")
        print(f"Accuracy: {clf.score_estimate_}")


@contextmanager
def updating(path: Path) -> Iterator[None]:
    """Lock the classifier's file from reading it until it has been replaced; the lock ends with the process.

    Links to the same file share one lock. On a file system without locks, updates do not wait for each other.
    """

    def waiting() -> None:
        note(f"handful: another command is changing {path}; waiting for it")

    with ExitStack() as stack:
        with suppress(OSError, RuntimeError):  # if links loop or the file is missing, reading it raises the error
            real = path.resolve()
            if real.is_file():
                stack.enter_context(locked(real, waiting))
        yield


def learn(act: Callable[[Any, Any], object], found: Labelled, keep_going: bool) -> int:
    """Call `act` with images and labels; returns the number of unreadable images that `keep_going` left out."""
    import numpy as np

    from handful.classifier.inputs import UnreadableImagesError

    try:
        act(found.pictures, found.labels)
        return 0
    except UnreadableImagesError as error:
        if not keep_going:
            raise DataError(f"{error} Add --keep-going to continue without unreadable images.") from error
        for reason in error.reasons.values():
            note(f"handful: {reason}")
        kept = [position for position in range(len(found.pictures)) if position not in error.reasons]
        if not kept:
            raise DataError("None of the images can be read.") from error
        act([found.pictures[position] for position in kept], np.asarray(found.labels)[kept])
        return len(error.reasons)


def known_label(text: str, classes: NDArray[Any]) -> Any:
    """The class that a command-line argument names; the error for an unknown one suggests the closest."""
    names = {str(known): known.item() for known in classes}
    if text in names:
        return names[text]
    near = get_close_matches(text, names, 1, 0.5)
    hint = f"Did you mean '{near[0]}'?" if near else f"The classes are {', '.join(list(names)[:10])}."
    raise InvalidOptionError(f"There is no class '{text}'. {hint}")
