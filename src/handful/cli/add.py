"""`handful add`: add images of known or new classes to a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.cli.updating import learn, updating
from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class Add:
    """Add images of known or new classes to a classifier; the result equals fitting all images at once."""

    classifier: Positional[Path]
    """File that handful fit wrote; it is replaced only if everything succeeds."""
    images: Positional[tuple[Path, ...]] = ()
    """Images or folders of images, all of one class; or, without --label, one folder of class folders or CSV file."""
    label: str = ""
    """Class of these images."""
    keep_going: bool = False
    """Report unreadable images and learn from the others; the exit code is then 1."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Update the file and print what changed."""
        if not self.images:
            raise InvalidOptionError("Give the images to add, or a folder of them.")
        if not self.label and not (len(self.images) == 1 and self._labelled(self.images[0])):
            raise InvalidOptionError("Say what the images show with --label, or give one folder of class folders.")
        prepare("cpu", self.threads)
        with updating(self.classifier):
            return self._update()

    def _labelled(self, given: Path) -> bool:
        return given.is_dir() or given.suffix.lower() == ".csv"

    def _update(self) -> int:
        from handful.classifier import FewShotClassifier
        from handful.classifier.examples import label_from
        from handful.classifier.inputs import Labelled, count_of, labelled_pictures, pictures

        clf = FewShotClassifier.load(self.classifier)
        pictured = clf.has_thumbnails_
        classes, before = set(clf.classes_), len(clf.labels_)
        if self.label:
            images = [picture for given in self.images for picture in pictures(given)]
            found = Labelled(images, [label_from(self.label, clf.classes_)] * len(images))
        else:
            found = labelled_pictures(self.images[0], None)
        for remark in found.remarks:
            print(remark)
        failed = learn(clf.partial_fit, found, self.keep_going)
        clf.save(self.classifier, thumbnails=pictured)
        new = [str(name) for name in clf.classes_ if name not in classes]
        print(f"{self.classifier}: {count_of(len(clf.labels_) - before, 'image')} added, {len(clf.labels_)} in all")
        if clf.learnt_.repeated:
            print(clf.learnt_)
        if new:
            print(f"New {'class' if len(new) == 1 else 'classes'}: {', '.join(new)}")
        print(f"Accuracy: {clf.score_estimate_}")
        return 1 if failed else 0
