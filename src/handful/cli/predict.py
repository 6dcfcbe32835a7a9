"""`handful predict`: labels for images, for people or for scripts."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from handful.cli.machine import prepare
from handful.errors import HandfulError, InvalidOptionError

if TYPE_CHECKING:
    from handful.classifier import FewShotClassifier

AT_ONCE = 32


@dataclass(frozen=True)
class Predict:
    """Label images with a classifier that handful fit wrote."""

    classifier: Positional[Path]
    """File that handful fit wrote."""
    images: Positional[tuple[str, ...]] = ()
    """Images or folders of images; with - or none, paths are read from standard input, one per line."""
    json: bool = False
    """Print one JSON object per line, with the probabilities of all classes."""
    csv: bool = False
    """Print comma-separated values with a header line."""
    reject: bool = False
    """Label images as unknown if they look like none of the classes."""
    false_rejection: float = 0.05
    """Share of images of known classes that --reject may call unknown."""
    keep_going: bool = False
    """Report unreadable images and continue; the exit code is then 1."""
    threads: int = 0
    """Threads to compute with; 0 for all cores."""

    def run(self) -> int:
        """Print one line per image, in order, a few images at a time."""
        from handful.classifier import FewShotClassifier

        if self.json and self.csv:
            raise InvalidOptionError("Choose one of --json and --csv.")
        prepare("cpu", self.threads)
        clf = FewShotClassifier.load(self.classifier)
        threshold = clf.unknown_threshold(self.false_rejection) if self.reject else None
        failed, first, paths = False, True, self._paths()
        while some := list(islice(paths, AT_ONCE)):
            for row in self._rows(clf, some, threshold):
                failed |= "error" in row
                self._print(row, clf, first)
                first = False
            sys.stdout.flush()
        return 1 if failed else 0

    def _paths(self) -> Iterator[str]:
        if self.images and self.images != ("-",):
            from handful.classifier.inputs import pictures

            for given in self.images:
                yield from (picture.name for picture in pictures(given))
            return
        if sys.stdin.isatty():
            raise InvalidOptionError("Give images to label, or pipe in their paths, one per line.")
        for line in sys.stdin:
            if path := line.rstrip("\r\n"):
                yield path

    def _rows(self, clf: FewShotClassifier, paths: list[str], threshold: float | None) -> Iterator[dict[str, Any]]:
        try:
            probabilities, foreign = clf.predict_proba(paths), clf.unknown_score(paths)
        except HandfulError as error:
            if not self.keep_going:
                raise
            if len(paths) == 1:
                yield {"image": paths[0], "error": str(error)}
                return
            for path in paths:
                yield from self._rows(clf, [path], threshold)
            return
        for path, each, score in zip(paths, probabilities, foreign, strict=True):
            known = threshold is None or score <= threshold
            yield {
                "image": path,
                "label": clf.classes_[each.argmax()].item() if known else None,
                "probability": round(float(each.max()), 6),
                "unknown_score": round(float(score), 6),
                "probabilities": {str(name): round(float(p), 6) for name, p in zip(clf.classes_, each, strict=True)},
            }

    def _print(self, row: dict[str, Any], clf: FewShotClassifier, first: bool) -> None:
        if self.json:
            print(json.dumps(row, ensure_ascii=False))
        elif self.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            if first:
                writer.writerow(["image", "label", "probability", "unknown_score", "error"])
            label = "unknown" if row.get("label", "") is None else row.get("label", "")
            fields = (row.get("probability", ""), row.get("unknown_score", ""), row.get("error", ""))
            writer.writerow([row["image"], label, *fields])
        elif "error" in row:
            print(f"{row['image']}\terror: {row['error']}")
        else:
            label = "unknown" if row["label"] is None else row["label"]
            print(f"{row['image']}\t{label}\t{100 * row['probability']:.1f}%")
