"""What there is: every benchmark that handful knows and every data set that is packed, a line each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from handful.data.sources.registry import DRAWN, SOURCES
from handful.data.store import SUFFIX, Header, read_header, store_path
from handful.errors import DataError


@dataclass(frozen=True)
class CatalogueEntry:
    """One data set: its state in words, its licence, and how to get it where it is not there."""

    name: str
    state: str
    licence: str
    how: str = ""

    def __str__(self) -> str:
        told = f"{self.name:<16} {self.state}; licence: {self.licence}"
        return f"{told}; get it: {self.how}" if self.how else told


def catalogue(root: Path) -> list[CatalogueEntry]:
    """The drawn data set, the known benchmarks, then whatever else is packed below `root`."""
    drawn = CatalogueEntry(DRAWN, "always there: characters of invented alphabets, 28 x 28 grey", "that of handful")
    known = [source_entry(name, root) for name in SOURCES]
    own = sorted(path.name.removesuffix(SUFFIX) for path in root.glob(f"*{SUFFIX}"))
    return [drawn, *known, *(CatalogueEntry(name, state(name, root), "yours") for name in own if name not in SOURCES)]


def source_entry(name: str, root: Path) -> CatalogueEntry:
    """One of the known benchmarks."""
    source = SOURCES[name]
    if store_path(root, name).exists():
        return CatalogueEntry(name, state(name, root, f"{source.title.partition(': ')[0]}, "), source.licence)
    return CatalogueEntry(name, f"not there: {source.title}", source.licence, source.how)


def state(name: str, root: Path, title: str = "") -> str:
    """What a packed store holds, or that it is damaged."""
    try:
        return f"there: {title}{describe(read_header(store_path(root, name))[0])}"
    except DataError:
        return f"damaged (handful data remove {name}, then add it again)"


def describe(header: Header) -> str:
    """Classes, images, their size, room on disk and class splits in words."""
    height, width, channels = header.shape
    megabytes = header.n_images * header.image_bytes / 1e6
    splits = ", ".join(
        f"{name} {'/'.join(str(sum(n for _, n in ranges)) for ranges in scheme.values())}"
        for name, scheme in header.splits.items()
    )
    return (
        f"{len(header.classes):,} classes, {header.n_images:,} images of {height} x {width} "
        f"{'grey' if channels == 1 else 'colour'}, {megabytes:.1f} MB, split {splits}"
    )
