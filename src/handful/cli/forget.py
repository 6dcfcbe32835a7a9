"""`handful forget`: remove images or a class from a classifier, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.cli.updating import known_label, updating
from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class Forget:
    """Remove images or a whole class from a classifier, as if it had never seen them; file and cache keep no trace."""

    classifier: Positional[Path]
    """File that handful fit wrote; it is replaced only if everything succeeds."""
    images: tuple[Path, ...] = ()
    """Images to forget, found by content, or else by the path they had when they were added."""
    label: str = ""
    """Class to forget, with all of its images."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Update the file and print what changed."""
        prepare("cpu", self.threads)
        if bool(self.images) == bool(self.label):
            raise InvalidOptionError("Say what to forget: --images IMAGES... or --label NAME, one of the two.")
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
