"""Add data sets to the cache (find or download the files, then pack them once), list them and remove them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from handful._io import expanded, locked, sweep, write_errors
from handful.data.archives import Tree, open_tree
from handful.data.download import fetch
from handful.data.sources import DRAWN, SOURCES
from handful.data.sources.folder import FolderOptions, read_folder
from handful.data.sources.source import Contents, Source
from handful.data.store import SUFFIX, Header, read_header, store_path, write_store
from handful.errors import DataError, InvalidOptionError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class Added:
    """A data set that is now in the cache."""

    path: Path
    header: Header
    is_new: bool
    notes: tuple[str, ...] = ()
    companions: tuple[Added, ...] = ()
    """Data sets that were packed from the same files."""


def add(
    name: str,
    root: Path,
    paths: Sequence[Path] = (),
    options: FolderOptions | None = None,
    mirrors: Sequence[str] = (),
    timeout: float = 30.0,
    progress: bool = False,
) -> Added:
    """Pack the data set `name` into `root`, from `paths` or from a download.

    A name in the registry is read as that benchmark, any other name as a folder of class folders. If another process is
    adding the same name, this one waits for it. A source's companions are packed along with it, so that both versions
    of Omniglot need one download; adding a companion also adds its source.
    """
    check_name(name)
    lead = next((known.name for known in SOURCES.values() if name in known.companions), name)
    source = SOURCES.get(lead)
    if source is not None and options not in (None, FolderOptions()):
        raise InvalidOptionError(
            f"'{name}' has its own size and splits; size and split only apply to your own folders."
        )
    if not 0 < timeout < float("inf"):
        raise InvalidOptionError(f"The timeout must be a positive number of seconds, but got {timeout:g}.")
    others = [member for member in (lead, *(source.companions if source else ())) if member != name]
    with holding(store_path(root, lead)):
        for member in (name, *others):
            sweep(store_path(root, member))
        packed = {member: found for member in (name, *others) if (found := already(member, root))}
        missing = [member for member in (name, *others) if member not in packed]
        if missing:
            downloads = root / "downloads" / lead
            paths = paths or downloaded(lead, source, downloads, mirrors, timeout, progress)
            packed |= pack_all(missing, root, paths, source, options or FolderOptions(), progress)
            shutil.rmtree(downloads, ignore_errors=True)
    return replace(packed[name], companions=tuple(packed[member] for member in others))


def pack_all(
    names: Sequence[str],
    root: Path,
    paths: Sequence[Path],
    source: Source | None,
    options: FolderOptions,
    progress: bool,
) -> dict[str, Added]:
    """Pack several data sets from the same files; the caller must hold the lock."""
    first = store_path(root, names[0])
    with write_errors(first):
        scratch = tempfile.TemporaryDirectory(dir=root, prefix=f".{first.name}.", suffix=".tmp")
    with scratch as folder:
        trees = [tree for path in paths for tree in open_trees(path, source, Path(folder))]
        return {name: pack(name, root, paths, trees, options, progress) for name in names}


@contextmanager
def holding(target: Path) -> Iterator[None]:
    """Hold the lock of a store; raises a clear error if the folder is not writable."""
    with ExitStack() as stack:
        with write_errors(target):
            stack.enter_context(locked(target))
        yield


def already(name: str, root: Path) -> Added | None:
    """The data set with this name if it is already packed; raises if it is damaged."""
    target = store_path(root, name)
    return Added(target, read_header(target)[0], is_new=False) if target.exists() else None


def pack(
    name: str, root: Path, paths: Sequence[Path], trees: Sequence[Tree], options: FolderOptions, progress: bool
) -> Added:
    """Write the store `name` from the files of `trees`."""
    target = store_path(root, name)
    contents = SOURCES[name].read(trees) if name in SOURCES else read_folder(trees, options)
    header = write_store(target, header_of(name, contents, paths), contents.pixels(), progress)
    return Added(target, header, is_new=True, notes=contents.notes)


def check_name(name: str) -> None:
    """Raise if a name is taken or cannot be a file name."""
    if not NAME.fullmatch(name):
        raise InvalidOptionError(f"The name of a data set may have letters, digits, '_' and '-', but got '{name}'.")
    if name == DRAWN:
        raise InvalidOptionError(f"'{DRAWN}' is drawn by handful itself, so it does not have to be added.")


def downloaded(
    name: str, source: Source | None, folder: Path, mirrors: Sequence[str], timeout: float, progress: bool
) -> list[Path]:
    """The source's files, fetched into `folder`."""
    if source is None:
        raise DataError(
            f"There is no benchmark called '{name}' to download. Known: {', '.join(SOURCES)}. "
            f"To add your own folder: handful data add {name} --from PATH."
        )
    if not source.remotes:
        raise DataError(f"{name} cannot be downloaded ({source.licence}). {source.how}.")
    return [fetch(remote, folder, mirrors, timeout, progress) for remote in source.remotes]


def open_trees(path: Path, source: Source | None, scratch: Path) -> list[Tree]:
    """The tree at `path` and, if it is a folder, the trees of the source's archives inside it."""
    path = expanded(path).absolute()
    inside = [path / name for name in source.archives] if source and path.is_dir() else []
    return [open_tree(path, scratch), *(open_tree(archive, scratch) for archive in inside if archive.is_file())]


def header_of(name: str, contents: Contents, paths: Sequence[Path]) -> Header:
    """The header of a store with these contents."""
    return Header(
        name=name,
        classes=contents.classes,
        counts=contents.counts,
        shape=contents.shape,
        splits=contents.splits,
        groups=contents.groups,
        source=", ".join(path.name for path in paths),
    )


def remove(name: str, root: Path) -> int:
    """Delete the data set's store and unfinished downloads; returns the number of bytes freed."""
    check_name(name)
    target, downloads = store_path(root, name), root / "downloads" / name
    doomed = [target] if target.exists() else []
    doomed += [path for path in downloads.rglob("*") if path.is_file()]
    if not doomed:
        raise DataError(f"There is no data set '{name}' in {root}.")
    freed = sum(path.stat().st_size for path in doomed)
    try:
        target.unlink(missing_ok=True)
        shutil.rmtree(downloads, ignore_errors=True)
    except OSError as error:
        raise DataError(f"Cannot remove {target}: {error.strerror}.") from error
    return freed


@dataclass(frozen=True)
class CatalogueEntry:
    """One data set: a description of its state, its licence, and how to get it if it is missing."""

    name: str
    state: str
    licence: str
    how: str = ""

    def __str__(self) -> str:
        line = f"{self.name:<16} {self.state}; licence: {self.licence}"
        return f"{line}; get it: {self.how}" if self.how else line


def catalogue(root: Path) -> list[CatalogueEntry]:
    """The drawn data set, the known benchmarks, then everything else that is packed in `root`."""
    drawn = CatalogueEntry(DRAWN, "built in: characters of invented alphabets, 28 x 28 grey", "that of handful")
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
    """A description of a packed store, or the remark that it is damaged."""
    try:
        return f"there: {title}{describe(read_header(store_path(root, name))[0])}"
    except DataError:
        return f"damaged (handful data remove {name}, then add it again)"


def describe(header: Header) -> str:
    """A description of a data set: classes, images, image size, disk space and class splits."""
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
