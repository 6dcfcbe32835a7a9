"""`load` turns a name or a path into a benchmark with disjoint train, val and test classes.

The module is not called load, because `handful.data.load` is the function.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple
from pathlib import Path

from handful._io import data_root, expanded
from handful.data.add import add
from handful.data.archives import folder_files
from handful.data.sources import DRAWN, SOURCES
from handful.data.sources.folder import FolderOptions
from handful.data.store import SUFFIX, open_benchmark, store_path
from handful.data.table import Benchmark
from handful.errors import DataError, InvalidOptionError


def load(
    name: str | Path,
    split: str | None = None,
    root: str | Path | None = None,
    size: int | None = None,
    seed: int = 0,
    grey: bool = False,
) -> Benchmark:
    """Load the benchmark called `name`, or the folder of class folders at the path `name`.

    `split` chooses one of a benchmark's official class splits ("vinyals" or "lake" for omniglot). For a folder it gives
    the number of classes for train, val and test as counts or fractions such as "64/16/20", assigned by `seed`. A
    folder's images are cropped to `size` pixels per side (84 by default) and packed on first use. `root` is the folder
    of packed data sets: by default HANDFUL_DATA, or the user's cache folder.
    """
    name, folder = str(name), data_root(root)
    if name == DRAWN:
        if split is not None:
            raise InvalidOptionError(f"'glyphs' has only one class split, but got split = '{split}'.")
        from handful.data.sources.glyphs import load_glyphs

        return load_glyphs(folder)
    if Path(name).name == name and store_path(folder, name).is_file():
        return sized(open_benchmark(store_path(folder, name), split), size)
    path = expanded(name)
    if path.is_dir() and name not in SOURCES:
        return load_folder(path, folder, split, size, seed, grey)
    if path.is_file() and path.suffix == SUFFIX:
        return sized(open_benchmark(path, split), size)
    raise absent(name, folder)


def sized(benchmark: Benchmark, size: int | None) -> Benchmark:
    """The benchmark, if its images have the requested size."""
    _, height, width = benchmark.train.image_shape
    if size is not None and (height, width) != (size, size):
        raise InvalidOptionError(
            f"'{benchmark.name}' is packed at {height} x {width} pixels, but got size = {size}. "
            f"Only your own folders can be loaded in any size."
        )
    return benchmark


def load_folder(path: Path, root: Path, split: str | None, size: int | None, seed: int, grey: bool) -> Benchmark:
    """Your own folder, packed in `root` under a name that depends on its files and the options."""
    options = FolderOptions(size=FolderOptions.size if size is None else size, grey=grey, split=split, seed=seed)
    path = path.resolve()
    stem = folder_stem(path, options)
    digest = hashlib.sha256()
    for file, blob in sorted(folder_files(path)):
        try:
            status = Path(blob.path).stat()
        except OSError as error:
            raise DataError(f"{blob.path} cannot be read: {error.strerror}. Remove it from the folder.") from error
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode(errors="surrogateescape"))
    added = add(f"{stem}-{digest.hexdigest()[:12]}", root, [path], options)
    benchmark = open_benchmark(added.path)
    for older in root.glob(f"{stem}-*{SUFFIX}"):
        if older != added.path:
            older.unlink(missing_ok=True)
    return Benchmark(path.name, benchmark.train, benchmark.val, benchmark.test)


def folder_stem(path: Path, options: FolderOptions) -> str:
    """The beginning of the store names of this folder."""
    return f"folder-{hashlib.sha256(repr((str(path), astuple(options))).encode()).hexdigest()[:12]}"


def load_recorded(name: str, split: str | None = None, root: str | Path | None = None) -> Benchmark:
    """The benchmark that a run's recipe names; a folder only if it has been packed on this machine before.

    A recipe may come from someone else, so it must not make us read arbitrary folders.
    """
    path, folder = expanded(name), data_root(root)
    packed = Path(name).name == name and store_path(folder, name).is_file()
    own = name not in (DRAWN, *SOURCES) and not packed and path.is_dir()
    if own and not any(folder.glob(f"{folder_stem(path.resolve(), FolderOptions(split=split))}-*{SUFFIX}")):
        raise DataError(
            f"The run was trained on the folder {path}, which has not been used on this machine. "
            f"If you trust it, give it with --data, or pack it: handful data add NAME --from {path}."
        )
    return load(name, split, root)


def found_store(name: str, root: Path) -> Path:
    """The file of a packed data set; raises if it does not exist."""
    path = store_path(root, name)
    if Path(name).name != name or not path.is_file():
        raise absent(name, root)
    return path


def absent(name: str, root: Path) -> DataError:
    """The error for a missing data set `name`, with the command to get it."""
    if name in SOURCES:
        return DataError(f"'{name}' is not in {root} yet. Get it with: {SOURCES[name].how}.")
    packed = sorted(path.name.removesuffix(SUFFIX) for path in root.glob(f"*{SUFFIX}"))
    known = ", ".join(dict.fromkeys([DRAWN, *SOURCES, *packed]))
    return DataError(
        f"There is no data set '{name}'. Choose one of {known}, or give the path of a folder of class folders."
    )
