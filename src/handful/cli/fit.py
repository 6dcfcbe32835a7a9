"""`handful fit`: a classifier from a folder of images, in one file."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from handful.cli.machine import Device, prepare
from handful.cli.updating import learn
from handful.errors import InvalidOptionError

if TYPE_CHECKING:
    from handful.classifier import FewShotClassifier


@dataclass(frozen=True)
class Fit:
    """Learn to classify your own images, from one folder per class with a handful of images each."""

    folder: Positional[Path]
    """Folder with one subfolder per class, or with such folders in train/ and test/; or a CSV file of path,label."""
    out: Annotated[Path, arg(aliases=["-o"])]
    """File to write, for example birds.handful."""
    embedding: str = "auto"
    """auto (chosen by looking at the images), characters, photographs, photographs-large, the path of a handful train
    run, timm:NAME, hf:NAME, open_clip:NAME/WEIGHTS or onnx:FILE; joined with +, or auto:A,B to choose by
    leave-one-out."""
    learner: Literal["ridge", "logistic", "softmax", "prototypes"] = "ridge"
    """Learner to fit on the features."""
    lam: float | Literal["auto"] = "auto"
    """Regularisation strength, or auto to choose it by leave-one-out."""
    balance: bool = True
    """Treat all classes as equally likely, however many images each has."""
    keep_going: bool = False
    """Report unreadable images and learn from the others; the exit code is then 1."""
    thumbnails: bool = True
    """Keep small pictures in the file and in your cache folder, for handful inspect."""
    cache: bool = True
    """Keep the features of images in your cache folder, so that they are computed only once."""
    force: bool = False
    """Overwrite the file if it exists."""
    device: Device = "auto"
    """Device of the embedding."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""
    scheduler: str = ""
    """Fit by Dask, without keeping the examples in the file: tcp://HOST:PORT, or local:N for N processes."""
    shards: Path | None = None
    """With --scheduler, the folder for features; by default beside the file. All workers must see it."""

    def run(self) -> int:
        """Fit, save, and print the classes and the estimated accuracy."""
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import labelled_pictures

        if self.out.exists() and not self.force:
            raise InvalidOptionError(f"{self.out} exists. Add --force to replace it, or use handful add to learn more.")
        if self.scheduler:
            from handful.cli.distributed import fit_by_dask

            if self.learner != "ridge":
                raise InvalidOptionError("With --scheduler the learner is ridge: only its sums merge exactly.")
            return fit_by_dask(
                self.folder, self.out, self.shards, self.scheduler, self.embedding, self.lam, self.balance
            )
        engine = prepare(self.device, self.threads)
        found = labelled_pictures(self.folder, None)
        for remark in found.remarks:
            print(remark)
        if found.folder is not None and found.folder != self.folder:
            print(f"Learning from {found.folder}; handful test {self.out} {self.folder} measures on the other part")
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
        clf.save(self.out, thumbnails=self.thumbnails)
        self._report(clf)
        return 1 if failed else 0

    def _report(self, clf: FewShotClassifier) -> None:
        from handful.classifier.inputs import count_of

        estimate = clf.estimate()
        counts = ", ".join(f"{each.label} ({each.images})" for each in estimate.classes)
        print(textwrap.fill(f"Classes: {counts}", 100, subsequent_indent="  ", break_on_hyphens=False))
        images = count_of(len(clf.labels_), "image")
        print(f"{self.out}: {count_of(len(clf.classes_), 'class')}, {images}, embedding {clf.embedding_}")
        print(f"Accuracy: {estimate.score}")
        if estimate.doubtful:
            most = estimate.doubtful[0]
            verb = "looks" if len(estimate.doubtful) == 1 else "look"
            print(f"{count_of(len(estimate.doubtful), 'label')} {verb} doubtful, first that of {most.name}")
        print(f"Next: handful predict {self.out} IMAGES..., handful inspect {self.out}")
