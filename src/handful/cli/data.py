"""`handful data` and `handful cache`: the data sets and image features that are stored on this machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitSubcommandPrefixes, Positional, arg, subcommand

from handful.errors import InvalidOptionError


@dataclass(frozen=True)
class List:
    """List all data sets: whether they are installed, classes, images, size, licence, and how to get them."""

    data: Path | None = None
    """Folder of the packed data sets; HANDFUL_DATA or your cache folder by default."""

    def run(self) -> int:
        """Print a line for each data set, known or packed."""
        from handful._io import data_root
        from handful.data.add import catalogue

        root = data_root(self.data)
        print(f"Data sets in {root}:")
        for entry in catalogue(root):
            print(f"  {entry}")
        return 0


@dataclass(frozen=True)
class Add:
    """Download a benchmark, or use files that you have, and pack it for fast access."""

    name: Positional[str]
    """omniglot (also adds omniglot-nearest), cifar-fs, mini-imagenet, or a name for your own folder."""
    from_: Annotated[tuple[Path, ...], arg(name="from")] = ()
    """Archives or folders to use; by default the benchmark is downloaded."""
    split: str | None = None
    """For your own folder: classes for train/val/test as counts (64/16/20) or fractions (0.64/0.16/0.2)."""
    size: int = 84
    """For your own folder: image size in pixels per side."""
    grey: bool = False
    """For your own folder: pack one grey channel instead of colour."""
    min_images: int = 2
    """For your own folder: refuse classes with fewer images than this."""
    seed: int = 0
    """For your own folder: seed that assigns the classes to train, val and test."""
    mirror: tuple[str, ...] = ()
    """URLs of folders to try before the official ones."""
    timeout: float = 30.0
    """Seconds to wait for a server that does not respond."""
    data: Path | None = None
    """Folder of the packed data sets; HANDFUL_DATA or your cache folder by default."""

    def run(self) -> int:
        """Add the data set and print what it contains."""
        import sys

        from handful._io import data_root
        from handful.data.add import add, describe
        from handful.data.sources.folder import FolderOptions

        options = FolderOptions(self.size, self.grey, self.split, self.seed, self.min_images)
        root, progress = data_root(self.data), sys.stderr.isatty()
        added = add(self.name, root, self.from_, options, self.mirror, self.timeout, progress)
        for each in (added, *added.companions):
            for note in each.notes:
                print(note)
            print(f"{each.header.name} {'is packed' if each.is_new else 'was already packed'}: {describe(each.header)}")
            print(each.path)
        return 0


@dataclass(frozen=True)
class Check:
    """Check a packed data set: read every byte and compare with its hash."""

    name: Positional[str]
    """Name of the data set."""
    data: Path | None = None
    """Folder of the packed data sets; HANDFUL_DATA or your cache folder by default."""

    def run(self) -> int:
        """Check the data set; raises an error if it is damaged."""
        import sys

        from handful._io import data_root
        from handful.data.add import describe
        from handful.data.loading import found_store
        from handful.data.store import check_store

        header = check_store(found_store(self.name, data_root(self.data)), progress=sys.stderr.isatty())
        print(f"{self.name} is intact: {describe(header)}, sha256 {header.content}")
        return 0


@dataclass(frozen=True)
class Show:
    """Write a contact sheet with a few images of a few classes."""

    name: Positional[str]
    """Name of the data set, or path of your own folder."""
    out: Path | None = None
    """PNG file to write; NAME.png by default."""
    part: Literal["train", "val", "test"] = "train"
    """Which classes to show."""
    split: str | None = None
    """Which split of the data set to use, if it has several."""
    classes: int = 12
    """Number of classes, one per row."""
    images: int = 10
    """Number of images per class."""
    data: Path | None = None
    """Folder of the packed data sets; HANDFUL_DATA or your cache folder by default."""

    def run(self) -> int:
        """Draw the contact sheet and print where it is."""
        from handful._io import replacing, write_errors
        from handful.data import load
        from handful.report.plots import contact_sheet

        benchmark = load(self.name, split=self.split, root=self.data)
        sheet = contact_sheet(getattr(benchmark, self.part), self.classes, self.images)
        out = self.out or Path(f"{benchmark.name.replace('/', '-')}.png")
        with write_errors(out), replacing(out) as temporary:
            sheet.save(temporary, format="PNG")
        print(f"Written to {out}")
        return 0


@dataclass(frozen=True)
class Remove:
    """Delete a packed data set and any remaining downloaded files."""

    name: Positional[str]
    """Name of the data set."""
    data: Path | None = None
    """Folder of the packed data sets; HANDFUL_DATA or your cache folder by default."""

    def run(self) -> int:
        """Delete the data set and print how much space that freed."""
        from handful._io import data_root
        from handful.data.add import remove

        print(f"{self.name} is removed: {remove(self.name, data_root(self.data)) / 1e6:.1f} MB freed")
        return 0


DataCommand = (
    Annotated[List, subcommand("list")]
    | Annotated[Add, subcommand("add")]
    | Annotated[Check, subcommand("check")]
    | Annotated[Show, subcommand("show")]
    | Annotated[Remove, subcommand("remove")]
)


@dataclass(frozen=True)
class Data:
    """List, add, check, show and remove data sets."""

    command: OmitSubcommandPrefixes[DataCommand]

    def run(self) -> int:
        """Run the subcommand of `handful data`."""
        return self.command.run()


UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


@dataclass(frozen=True)
class Cache:
    """Show, limit or clear the cache of image features; everything in it can be recomputed."""

    limit: str = ""
    """New size limit, for example 500MB or 2GB; the least recently used features are deleted first."""
    clear: bool = False
    """Delete everything in the cache."""

    def run(self) -> int:
        """Apply the flags, then print what the cache holds."""
        from handful._io import data_root
        from handful.classifier import cache
        from handful.classifier.inputs import count_of

        folder = data_root()
        if self.clear:
            cache.clear(folder)
        if self.limit:
            cache.set_limit(folder, bytes_of(self.limit))
        held = cache.usage(folder)
        print(f"{held.path}: {held.size / 1e6:.1f} MB of at most {held.limit / 1e6:,.0f} MB")
        features, thumbnails = f"{held.features:,} features", count_of(held.thumbnails, "thumbnail")
        print(f"{count_of(held.images, 'image')}: {features}, {thumbnails}")
        return 0


def bytes_of(text: str) -> int:
    """The bytes of a size like 500MB."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if not found:
        raise InvalidOptionError(f"A size must be a number and a unit, such as 500MB or 2GB, but got '{text}'.")
    size = float(found[1]) * UNITS[found[2]]
    if size >= 2**63:
        raise InvalidOptionError(f"{text[:40]} is larger than any disk. Give a smaller limit, such as 2GB.")
    return int(size)
