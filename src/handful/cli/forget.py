"""`handful forget`: take images or a class out of a classifier, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.cli.updating import images, label_from, updating
from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class Forget:
    """Unlearn images or a whole class, as if they had never been seen: the file keeps no trace of them."""

    classifier: Positional[Path]
    """File that handful fit wrote; it is replaced when all went well."""
    images: tuple[Path, ...] = ()
    """Images to forget, found by their content or by the path under which they were learnt."""
    label: str = ""
    """Class to forget, with all its images."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Update the file and say what changed."""
        prepare("cpu", self.threads)
        if bool(self.images) == bool(self.label):
            raise InvalidOptionError("Say what to forget: --images IMAGES... or --label NAME, one of the two.")
        with updating(self.classifier):
            self._update()
        return 0

    def _update(self) -> None:
        from handful.classifier import FewShotClassifier

        clf = FewShotClassifier.load(self.classifier)
        pictured = clf.has_thumbnails_
        before = len(clf.labels_)
        if self.label:
            clf.forget(label=label_from(self.label, clf.classes_))
        for image in self.images:
            clf.forget(image=image)
        clf.save(self.classifier, thumbnails=pictured)
        print(f"{self.classifier}: {images(before - len(clf.labels_))} forgotten, {len(clf.labels_)} left")
        print(f"Accuracy: {clf.score_estimate_}")
