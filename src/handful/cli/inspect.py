"""`handful inspect`: a page that shows a classifier and what would make it better."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from handful.cli.machine import prepare


@dataclass(frozen=True)
class Inspect:
    """Write an HTML page: classes with pictures, accuracy, confusion, doubtful labels, what to label next."""

    classifier: Positional[Path]
    """File that handful fit wrote."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Page to write; by default next to the classifier, with the extension .html."""
    unlabelled: Path | None = None
    """Folder of unlabelled images; the page shows which are most worth labelling."""
    suggest: int = 12
    """How many of the unlabelled images to show."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Write the page, and print its address and a summary."""
        from handful._io import write_atomically
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import pictures
        from handful.classifier.page import inspection_page

        prepare("cpu", self.threads)
        clf = FewShotClassifier.load(self.classifier)
        pool = pictures(self.unlabelled) if self.unlabelled is not None else []
        target = self.out or self.classifier.with_suffix(".html")
        write_atomically(
            target, inspection_page(clf, self.classifier.name, pool, self.suggest).encode(errors="xmlcharrefreplace")
        )
        print(f"{self.classifier}: {len(clf.classes_)} classes, {len(clf.labels_)} images")
        print(f"Accuracy: {clf.score_estimate_}")
        print(clf.explain(k=3))
        print(f"Page: {target.resolve().as_uri()}")
        return 0
