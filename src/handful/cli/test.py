"""`handful test` and `handful inspect`: how accurate a classifier is on new images, and what would improve it."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from handful.cli.fit import learn
from handful.cli.machine import note, prepare
from handful.errors import DataError
from handful.meta.config import Device

if TYPE_CHECKING:
    from handful.classifier import FewShotClassifier
    from handful.classifier.answers import Answer


MOST_CONFUSIONS = 10


@dataclass(frozen=True)
class Test:
    """Test a classifier on labelled images: accuracy, each class, confusions, and whether its estimate was right."""

    classifier: Positional[Path]
    """File written by handful fit."""
    folder: Positional[Path]
    """Folder with one subfolder per class (or such folders in test/), or a CSV file with path,label."""
    csv: Path | None = None
    """Also write a CSV file with one row per image: path, label, predicted, probability."""
    json: bool = False
    """Print the results as one JSON object."""
    keep_going: bool = False
    """Report unreadable images and test on the others; the exit code is then 1."""
    device: Device = "auto"
    """Device to compute the embedding on."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Label the images, compare with their labels and print the results."""
        from handful._io import write_atomically
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import labelled_pictures

        engine = prepare(self.device, self.threads)
        clf = FewShotClassifier.load(self.classifier, device=str(engine.device))
        found = labelled_pictures(self.folder, None, "test")
        for remark in found.remarks:
            note(remark)
        rows: list[tuple[str, Answer]] = []

        def ask(images: Any, labels: Any) -> None:
            answers = clf.answer(images, top=1, nearest_examples=0)
            rows.extend((str(label), answer) for label, answer in zip(labels, answers, strict=True))

        failed = learn(ask, found, self.keep_going)
        results = _measured(clf, rows)
        if self.csv is not None:
            write_atomically(self.csv, _table(rows).encode(errors="surrogateescape"))
        print(
            json.dumps(results, ensure_ascii=False) if self.json else _told(results, str(found.folder or self.folder))
        )
        return 1 if failed else 0


def _measured(clf: FewShotClassifier, rows: list[tuple[str, Answer]]) -> dict[str, Any]:
    known = {str(label) for label in clf.classes_}
    tested = [(label, answer) for label, answer in rows if label in known]
    if not tested:
        raise DataError(
            f"None of the labels ({', '.join(sorted({label for label, _ in rows})[:5])}) is a class of this classifier "
            f"({', '.join(sorted(known)[:5])}). Rename the folders, or test another classifier."
        )
    images = Counter(label for label, _ in tested)
    right = Counter(label for label, answer in tested if str(answer.label) == label)
    wrong = Counter((label, str(answer.label)) for label, answer in tested if str(answer.label) != label)
    accuracy = sum(right.values()) / len(tested)
    low, high = clf.score_estimate_.interval(len(tested))
    return {
        "accuracy": accuracy,
        "balanced_accuracy": sum(right[label] / images[label] for label in images) / len(images),
        "images": len(tested),
        "estimate": clf.score_estimate_.to_json(),
        "expected": None if math.isnan(low) else [low, high],
        "as_expected": None if math.isnan(low) else low <= accuracy <= high,
        "classes": {label: {"images": images[label], "right": right[label]} for label in sorted(images)},
        "confusions": [[label, taken_for, count] for (label, taken_for), count in wrong.most_common()],
        "unknown_labels": dict(Counter(label for label, _ in rows if label not in known)),
    }


def _told(results: dict[str, Any], where: str) -> str:
    from handful.classifier.inputs import count_of

    lines = [f"{where}: {100 * results['accuracy']:.1f}% of {count_of(results['images'], 'image')} right"]
    if len({each["images"] for each in results["classes"].values()}) > 1:
        lines.append(f"Classes weighted equally: {100 * results['balanced_accuracy']:.1f}%")
    if results["expected"] is not None:
        low, high = (100 * end for end in results["expected"])
        verdict = "as expected" if results["as_expected"] else "not as expected, so these images differ"
        estimated = 100 * results["estimate"]["accuracy"]
        lines.append(
            f"The estimate was {estimated:.1f}%, or {low:.1f} to {high:.1f}% on "
            f"{count_of(results['images'], 'image')}: {verdict}"
        )
    width = max(len(label) for label in results["classes"])
    for label, each in results["classes"].items():
        share = 100 * each["right"] / each["images"]
        lines.append(f"  {label:<{width}}  {each['right']:>4} of {each['images']:<4}  {share:5.1f}%")
    if results["confusions"]:
        lines.append("Most often confused:")
        for label, taken_for, count in results["confusions"][:MOST_CONFUSIONS]:
            lines.append(f"  {label} mistaken for {taken_for}: {count}")
    if results["unknown_labels"]:
        told = ", ".join(f"{label} ({count})" for label, count in results["unknown_labels"].items())
        lines.append(f"Not counted, because the classifier does not have these classes: {told}")
    return "\n".join(lines)


def _table(rows: list[tuple[str, Answer]]) -> str:
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["path", "label", "predicted", "probability"])
    writer.writerows([answer.image, label, answer.label, round(answer.probability, 6)] for label, answer in rows)
    return table.getvalue()


@dataclass(frozen=True)
class Inspect:
    """Write an HTML page about a classifier: examples, accuracy, confusions, doubtful labels, what to label next."""

    classifier: Positional[Path]
    """File written by handful fit."""
    out: Annotated[Path | None, arg(aliases=["-o"])] = None
    """Page to write; by default next to the classifier, with the extension .html."""
    unlabelled: Path | None = None
    """Folder of unlabelled images; the page shows which are most worth labelling."""
    suggest: int = 12
    """Number of unlabelled images to show."""
    threads: int = 0
    """Number of threads; 0 for one per core."""

    def run(self) -> int:
        """Write the page, then print a summary and the page's address."""
        from handful._io import write_atomically
        from handful.classifier import FewShotClassifier
        from handful.classifier.inputs import listed_pictures
        from handful.classifier.page import inspection_page

        prepare("cpu", self.threads)
        clf = FewShotClassifier.load(self.classifier)
        found = listed_pictures([] if self.unlabelled is None else [self.unlabelled])
        for remark in found.remarks:
            note(remark)
        target = self.out or self.classifier.with_suffix(".html")
        page = inspection_page(clf, self.classifier.name, found.pictures, self.suggest)
        write_atomically(target, page.encode(errors="xmlcharrefreplace"))
        print(f"{self.classifier}: {len(clf.classes_)} classes, {len(clf.labels_)} images")
        print(f"Accuracy: {clf.score_estimate_}")
        if clf.score_estimate_.examples:
            print(clf.explain(k=3))
        print(f"Page: {target.resolve().as_uri()}")
        return 0
