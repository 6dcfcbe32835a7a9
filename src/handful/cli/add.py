"""`handful add`: add images of known or new classes to a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.cli.updating import images, label_from, updating
from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class Add:
    """Add images of known or new classes to a classifier; the result equals fitting all images at once."""

    classifier: Positional[Path]
    """File that handful fit wrote; it is replaced only if everything succeeds."""
    images: Positional[tuple[Path, ...]]
    """Images or folders of images, all of one class; or, without --label, one folder of class folders."""
    label: str = ""
    """Class of these images."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Update the file and print what changed."""
        prepare("cpu", self.threads)
        if not self.label and (len(self.images) != 1 or not self.images[0].is_dir()):
            raise InvalidOptionError("Say what the images show with --label, or give one folder of class folders.")
        with updating(self.classifier):
            self._update()
        return 0

    def _update(self) -> None:
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import pictures

        clf = FewShotClassifier.load(self.classifier)
        pictured = clf.has_thumbnails_
        classes, before = set(clf.classes_), len(clf.labels_)
        if self.label:
            found = [picture.name for given in self.images for picture in pictures(given)]
            clf.partial_fit(found, [label_from(self.label, clf.classes_)] * len(found))
        else:
            clf.partial_fit(self.images[0])
        clf.save(self.classifier, thumbnails=pictured)
        new = [str(name) for name in clf.classes_ if name not in classes]
        print(f"{self.classifier}: {images(len(clf.labels_) - before)} added, {len(clf.labels_)} in all")
        if new:
            print(f"New classes: {', '.join(new)}")
        print(f"Accuracy: {clf.score_estimate_}")
