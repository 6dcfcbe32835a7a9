"""The one door to data: a name or a path in, a benchmark with disjoint train, val and test classes out."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from handful.data.cache import data_root
from handful.data.table import Benchmark
from handful.errors import DataError, InvalidOptionError


def load(name: str | Path, split: str | None = None, root: str | Path | None = None) -> Benchmark:
    """The benchmark called `name`, from the data sets packed under `root`.

    `split` picks one of a benchmark's official class splits where it has several. `root` is the folder that `handful
    data add` packed into: by default HANDFUL_DATA, or the user's cache folder.
    """
    if str(name) == "glyphs":
        if split is not None:
            raise InvalidOptionError(f"'glyphs' has one class split only, but split = '{split}' was asked for.")
        load_glyphs: Callable[[Path | None], Benchmark] = import_module("handful.data.glyphs").load_glyphs
        return load_glyphs(data_root(root))
    raise DataError(f"There is no data set '{name}'. Known: glyphs.")
