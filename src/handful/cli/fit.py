"""`handful fit`: a classifier from a folder of images, in one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from handful.cli.machine import prepare
from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class Fit:
    """Learn to classify your own images, from one folder per class with a handful of images each."""

    folder: Positional[Path]
    """Folder with one subfolder per class."""
    out: Annotated[Path, arg(aliases=["-o"])]
    """File to write, for example birds.handful."""
    embedding: str = "auto"
    """auto (chosen by looking at the images), characters, photographs, or the path of a handful train run."""
    learner: Literal["ridge", "logistic", "softmax", "prototypes"] = "ridge"
    """Learner to fit on the features."""
    lam: float | Literal["auto"] = "auto"
    """Regularisation strength, or auto to choose it by leave-one-out."""
    balance: bool = True
    """Treat all classes as equally likely, however many images each has."""
    thumbnails: bool = True
    """Keep small pictures in the file, for handful inspect."""
    cache: bool = True
    """Keep the features of images in your cache folder, so that they are computed only once."""
    force: bool = False
    """Overwrite the file if it exists."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Fit, save, and print the estimated accuracy."""
        from handful.classifier import FewShotClassifier

        if self.out.exists() and not self.force:
            raise InvalidOptionError(f"{self.out} exists. Add --force to replace it, or use handful add to learn more.")
        prepare("cpu", self.threads)
        clf = FewShotClassifier(self.embedding, self.learner, self.lam, balance=self.balance, cache=self.cache)
        clf.fit(self.folder)
        clf.save(self.out, thumbnails=self.thumbnails)
        print(f"{self.out}: {len(clf.classes_)} classes, {len(clf.labels_)} images, embedding {clf.embedding_}")
        print(f"Accuracy: {clf.score_estimate_}")
        suspects = clf.explain(k=99).suspects
        if suspects:
            print(f"{len(suspects)} labels look doubtful; the most doubtful is that of {suspects[0].name}")
        print(f"Next: handful predict {self.out} IMAGES..., handful inspect {self.out}")
        return 0
