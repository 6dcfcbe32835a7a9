"""`handful predict`: label images and print, sort or watch them."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tyro.conf import Positional

from handful._io import replacing
from handful.cli.distributed import require_together
from handful.cli.machine import note, prepare
from handful.errors import DataError, InvalidOptionError
from handful.meta.config import Device

if TYPE_CHECKING:
    from io import BufferedReader

    from handful.classifier import FewShotClassifier
    from handful.classifier.answers import Answer

AT_ONCE = 32
SINGLE = (
    "top", "min_confidence", "reject", "false_rejection", "move_to", "copy_to", "watch", "json", "csv", "device",
    "threads",
)  # fmt: skip
"""Options that do not work with --scheduler."""
POLL = 1.0
"""Seconds between two scans of a watched folder."""
LONGEST_PATH, MOST_PATHS = 1 << 16, 64 << 20
"""Most bytes of one path on standard input, and of all paths if they are needed at once."""


@dataclass(frozen=True)
class Predict:
    """Label images with a classifier written by handful fit; the exit code is 1 if an image cannot be read."""

    classifier: Positional[Path]
    """File written by handful fit."""
    images: Positional[tuple[str, ...]] = ()
    """Images or folders of images; with - or none, paths come from standard input, separated by newlines or NUL."""
    top: int = 0
    """Number of classes to print, most probable first; by default one, or all with --json."""
    min_confidence: float = 0.0
    """Label images as unsure if their best class has a lower probability than this."""
    reject: bool = False
    """Label images as unknown if they look like none of the classes."""
    false_rejection: float = 0.05
    """Share of images of known classes that --reject may call unknown."""
    move_to: Path | None = None
    """Folder to move the images to, as FOLDER/LABEL/IMAGE."""
    copy_to: Path | None = None
    """Folder to copy the images to, as FOLDER/LABEL/IMAGE."""
    watch: Path | None = None
    """Folder to watch: label the images in it, then those that arrive, until Ctrl-C."""
    json: bool = False
    """Print one JSON object per line, with the probabilities of all classes."""
    csv: bool = False
    """Print comma-separated values with a header line."""
    device: Device = "auto"
    """Device to compute the embedding on."""
    threads: int = 0
    """Number of threads; 0 for one per core."""
    scheduler: str = ""
    """Predict with Dask, if the classifier was fitted with Dask: tcp://HOST:PORT, or local:N for N processes."""
    parquet: Path | None = None
    """With --scheduler, the folder for the results."""

    def run(self) -> int:
        """Print one line per image, in order, then a summary."""
        from handful.classifier import FewShotClassifier

        self._check()
        if self.scheduler:
            from handful.cli.distributed import predict_by_dask

            return predict_by_dask(self.classifier, self._paths(MOST_PATHS)[0], self.parquet, self.scheduler)
        engine = prepare(self.device, self.threads)
        clf = FewShotClassifier.load(self.classifier, device=str(engine.device))
        if self.reject:
            clf.unknown_threshold(self.false_rejection)  # raises an error before any image is read
        session = _Session(self, clf)
        if self.watch is not None:
            note(f"Watching {self.watch} for images; press Ctrl-C to stop")
            with suppress(KeyboardInterrupt):
                for some in _arrivals(self.watch, self.move_to or self.copy_to):
                    session.label(some)
        else:
            paths, total = self._paths()
            for some in _batches(paths, total):
                session.label(some)
        session.summarise()
        return 1 if session.failed else 0

    def _check(self) -> None:
        if self.json and self.csv:
            raise InvalidOptionError("Choose one of --json and --csv.")
        if self.move_to is not None and self.copy_to is not None:
            raise InvalidOptionError("Choose one of --move-to and --copy-to.")
        if not 0 <= self.min_confidence <= 1:
            raise InvalidOptionError(f"--min-confidence is a probability from 0 to 1, but got {self.min_confidence}.")
        if self.top < 0:
            raise InvalidOptionError(f"--top is a number of classes, but got {self.top}.")
        if self.watch is not None and (self.images or not self.watch.is_dir()):
            raise InvalidOptionError(f"--watch needs an existing folder and no other images, but got {self.watch}.")
        target = self.move_to or self.copy_to
        if self.watch is not None and target is not None and self.watch.resolve().is_relative_to(target.resolve()):
            raise InvalidOptionError(
                f"{self.watch} lies in {target}, so all its images would count as sorted already. Choose another "
                f"folder for the sorted images, for example {self.watch / 'sorted'}."
            )
        require_together(self, SINGLE, "parquet")

    def _paths(self, most: float = math.inf) -> tuple[Iterable[str], int | None]:
        """The paths of the images, and how many there are, if known; at most `most` bytes from standard input."""
        if self.images and self.images != ("-",):
            from handful.classifier.inputs import listed_pictures

            found = listed_pictures(self.images)
            for remark in found.remarks:
                note(remark)
            return [picture.name for picture in found.pictures], len(found.pictures)
        if sys.stdin.isatty():
            raise InvalidOptionError("There are no images to label. Give some, or pipe in their paths, one per line.")
        return _piped(cast("BufferedReader", sys.stdin.buffer), most), None


@dataclass
class _Session:
    """One run of the command: prints the answers, sorts the images into folders and counts the labels."""

    options: Predict
    clf: FewShotClassifier
    counts: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    moved: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.monotonic)

    def label(self, paths: list[str]) -> None:
        """Print one line for each image, in order."""
        answers, reasons = self._answers(paths)
        for position, path in enumerate(paths):
            first = not self.counts and not self.failed
            if position in reasons:
                self.failed += 1
                self._print_error(path, reasons[position], first)
                continue
            answer = next(answers)
            label = self._label(answer)
            self.counts[label] += 1
            self._print(answer, label, first)
            self._file(path, label)
        sys.stdout.flush()

    def _answers(self, paths: list[str]) -> tuple[Iterator[Answer], dict[int, str]]:
        """The answers for the readable images, and for each of the others the reason why it cannot be read."""
        from handful.classifier.inputs import UnreadableImagesError

        options, reasons = self.options, {}
        top = options.top or (len(self.clf.classes_) if options.json else 1)
        rejection = options.false_rejection if options.reject else None
        good = paths
        try:
            found = self.clf.answer(good, top=top, nearest_examples=0, false_rejection=rejection)
        except UnreadableImagesError as error:
            reasons = error.reasons
            good = [path for position, path in enumerate(paths) if position not in reasons]
            found = self.clf.answer(good, top=top, nearest_examples=0, false_rejection=rejection) if good else []
        return iter(found), reasons

    def _label(self, answer: Answer) -> str:
        if answer.rejected:
            return "unknown"
        return "unsure" if answer.probability < self.options.min_confidence else str(answer.label)

    def _print(self, answer: Answer, label: str, first: bool) -> None:
        if self.options.json:
            row = answer.to_json() | {"unsure": label == "unsure"}
            print(json.dumps(row, ensure_ascii=False))
        elif self.options.csv:
            rest = [each for choice in answer.top[1:] for each in (choice.label, round(choice.probability, 6))]
            self._row(
                [answer.image, label, round(answer.probability, 6), round(answer.unknown_score, 6), "", *rest], first
            )
        else:
            others = "".join(f"\t{each.label}\t{percent(each.probability)}" for each in answer.top[1:])
            # the probability only compares the known classes, so it is meaningless for an image of none of them
            sure = "-" if answer.rejected else percent(answer.probability)
            print(f"{_on_one_line(str(answer.image))}\t{label}\t{sure}{others}")

    def _print_error(self, path: str, reason: str, first: bool) -> None:
        if self.options.json:
            print(json.dumps({"image": path, "error": reason}, ensure_ascii=False))
        elif self.options.csv:
            self._row([path, "", "", "", reason], first)
        else:
            print(f"{_on_one_line(path)}\terror: {_on_one_line(reason)}")

    def _row(self, cells: list[Any], first: bool) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if first:
            more = [name for rank in range(2, self.options.top + 1) for name in (f"label{rank}", f"probability{rank}")]
            writer.writerow(["image", "label", "probability", "unknown_score", "error", *more])
        writer.writerow(cells)

    def _file(self, path: str, label: str) -> None:
        root, moves = self.options.move_to or self.options.copy_to, self.options.move_to is not None
        if root is None or path in self.moved:
            return
        try:
            folder = root / _folder_name(label)
            folder.mkdir(parents=True, exist_ok=True)
            if Path(path).parent.resolve() != folder.resolve():  # otherwise it was sorted before
                _put(Path(path), folder / Path(path).name, moves)
        except OSError as error:
            raise DataError(f"Cannot put {path} into {root}: {error.strerror or error}.") from error
        if moves:
            self.moved.add(path)

    def summarise(self) -> None:
        """Print to standard error how many images got each label, if there were at least two images."""
        from handful.classifier.inputs import count_of

        total = sum(self.counts.values()) + self.failed
        if total < 2:
            return
        most = ", ".join(f"{label} ({count:,})" for label, count in self.counts.most_common(10))
        more = f", {len(self.counts) - 10} other labels" if len(self.counts) > 10 else ""
        bad = f"; {count_of(self.failed, 'image')} could not be read" if self.failed else ""
        seconds = time.monotonic() - self.started
        note(f"{count_of(total, 'image')} in {seconds:.1f} s: {most}{more}{bad}")


def _piped(stream: BufferedReader, most: float) -> Iterator[str]:
    """Paths as they arrive, one per line, or NUL-separated (with newlines allowed) if the first chunk has a NUL."""
    piece = stream.read1()
    by_line = b"\0" not in piece
    rest, size, without = b"", 0, 0
    while piece:
        *ended, rest = (rest + piece).split(b"\n" if by_line else b"\0")
        names = list(_names(ended, by_line))
        yield from names
        size, without = size + len(piece), 0 if names else without + len(piece)
        if without > LONGEST_PATH:
            raise DataError(
                f"Standard input has {without:,} bytes in which no path ends. Pipe in paths of images, one per line or "
                f"separated by NUL, not the images themselves."
            )
        if size > most:
            raise DataError(
                f"Standard input has more than {most / (1 << 20):.0f} MB of paths. Pipe them in several parts, "
                f"each with its own --parquet."
            )
        piece = stream.read1()
    yield from _names([rest], by_line)


def _names(paths: Iterable[bytes], by_line: bool) -> Iterator[str]:
    for path in paths:
        if name := os.fsdecode(path.rstrip(b"\r") if by_line else path):
            yield name


def _batches(paths: Iterable[str], total: int | None) -> Iterator[list[str]]:
    """The paths in batches, with a progress bar if the lines themselves do not go to the terminal."""
    from tqdm import tqdm

    rest = iter(paths)
    hidden = True if sys.stdout.isatty() else None
    with tqdm(total=total, desc="Labelling", unit="image", delay=1, disable=hidden, leave=False) as bar:
        while some := list(islice(rest, AT_ONCE)):
            yield some
            bar.update(len(some))


def _arrivals(folder: Path, sorted_into: Path | None) -> Iterator[list[str]]:
    """The images of a folder, then new ones once they have stopped growing; images already sorted are skipped."""
    from handful.classifier.inputs import images_below

    done: dict[Path, tuple[int, int]] = {}
    sizes: dict[Path, tuple[int, int]] = {}
    while True:
        seen = {}
        for path in images_below(folder):
            with suppress(OSError):  # moved or deleted meanwhile
                if sorted_into is None or not path.resolve().is_relative_to(sorted_into.resolve()):
                    seen[path] = (path.stat().st_size, path.stat().st_mtime_ns)
        new = [path for path, size in seen.items() if sizes.get(path) == size and done.get(path) != size]
        done |= {path: seen[path] for path in new}
        sizes = seen
        for start in range(0, len(new), AT_ONCE):
            yield [str(path) for path in new[start : start + AT_ONCE]]
        time.sleep(POLL)


def _on_one_line(name: str) -> str:
    """A file name with newlines and tabs escaped, for tab-separated output."""
    return name.replace("\n", "\\n").replace("\t", "\\t")


def percent(probability: float) -> str:
    """A probability as text, which never rounds to 100% or 0%."""
    if probability >= 0.9995:
        return ">99.9%"
    return "<0.1%" if probability < 0.0005 else f"{100 * probability:.1f}%"


def _folder_name(label: str) -> str:
    """A label as a safe folder name, because the classifier may come from someone else."""
    name = "".join("-" if character in '/\\:*?"<>|\0' else character for character in label).strip()
    return os.fsdecode(os.fsencode(name.lstrip("."))[:200]).strip() or "-"  # file systems count bytes


def _put(path: Path, target: Path, moves: bool) -> None:
    """Copy or move a file to `target`, or to a numbered name if that is taken; no name ever holds half a file."""
    target = _reserved(target, path.stat().st_mode)
    try:
        if moves and _renamed(path, target):
            return
        with replacing(target) as temporary:
            shutil.copy2(path, temporary)
    except BaseException:
        if path.exists():  # otherwise it was moved, and the interruption came after that
            target.unlink()
        raise
    if moves:
        path.unlink()


def _reserved(target: Path, mode: int) -> Path:
    """An empty file of this name, or of the first free one with a number, which no other process can take."""
    number, free = 1, target
    while True:
        try:
            os.close(os.open(free, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            number += 1
            free = target.with_name(f"{target.stem} ({number}){target.suffix}")
        else:
            free.chmod(stat.S_IMODE(mode))
            return free


def _renamed(path: Path, target: Path) -> bool:
    """Whether the file could be renamed, which is impossible between two disks."""
    try:
        path.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True
