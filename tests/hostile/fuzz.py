"""Damaged and hostile files of every kind that handful reads: whatever happens is a result or one of our errors.

    python -m tests.hostile.fuzz                    the 2,800 cases of the test suite, from seed 0
    python -m tests.hostile.fuzz --minutes 60       new cases for an hour
    python -m tests.hostile.fuzz --kind image --case 1234:7   one case again

Each kind has a few good files. A case damages one of them (bits, blocks, lengths, splices) or, where the file holds
JSON, puts a hostile value into it and repairs the checksum, so that the damage reaches the code behind it. A case may
take SECONDS of processor time and MEGABYTES beyond what the process had when it began.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import io
import json
import os
import random
import resource
import signal
import sqlite3
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load, save

from handful import FewShotClassifier
from handful._io import CHECKSUM, FACTS, write_tensors
from handful.classifier.answers import ScoreEstimate
from handful.classifier.cache import FILE, Store
from handful.classifier.distributed import LinearClassifier, load_linear
from handful.classifier.heads import LinearMap
from handful.classifier.inputs import labelled_pictures
from handful.classifier.shards import write_index
from handful.data.archives import open_tree
from handful.data.decode import Decoding, decode, formats
from handful.data.sources.folder import FolderOptions, read_folder
from handful.data.store import MAGIC, PREFIX, Header, check_store, open_benchmark, write_store
from handful.errors import DataError, HandfulError
from handful.meta.checkpoint import write_checkpoint
from handful.meta.manifest import MANIFEST, read_sessions
from handful.meta.run import RECIPE, load_model, read_recipe
from handful.paper.queue import read_queue
from handful.paper.verify import verify
from handful.serve.studio_store import FILE as PROJECT
from handful.serve.studio_store import Project
from tests.hostile.runs import RECIPE_OF_A_TINY_RUN

MEGABYTES, SECONDS = 2048, 20.0
HERE = Path(__file__).parent.parent
MANIFEST_OF_A_RUN = (HERE / "formats/run-0.1/manifest.json").read_bytes()
CONTENT = json.loads(MANIFEST_OF_A_RUN)["content"]
REPORT = HERE.parent / "results/reproduce/short/table3.json"
COUNTS = REPORT.with_suffix(".counts.safetensors")
CASES = {
    "classifier": 500, "checkpoint": 250, "store": 250, "recipe": 250, "manifest": 150, "archive": 300, "image": 600,
    "cache": 100, "shard": 60, "linear": 60, "project": 80, "report": 80, "queue": 60, "table": 60,
}  # fmt: skip
"""Cases in the test suite."""


class OutOfTimeError(BaseException):
    """A case took too long; no reader may catch it."""


# -------------------------------------------------------------------------------------------------------------- damage


def flipped(data: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        if damaged:
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def shortened(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def overwritten(data: bytes, draw: random.Random) -> bytes:
    at, size = draw.randrange(len(data) + 1), draw.choice((1, 4, 8, 64, 4096))
    filling = draw.choice((b"\0", b"\xff", b"[", b"9", b"\x7f", draw.randbytes(1)))
    return data[:at] + filling * size + data[at + size :]


def inserted(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + draw.randbytes(draw.choice((1, 7, 512))) + data[at:]


def repeated(data: bytes, draw: random.Random) -> bytes:
    start, size = draw.randrange(len(data) + 1), draw.choice((1, 16, 512, 5000))
    return data[: start + size] + data[start : start + size] + data[start + size :]


def number_changed(data: bytes, draw: random.Random) -> bytes:
    """An extreme whole number in the place of some bytes, in either order."""
    size = draw.choice((2, 4, 8))
    value = draw.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), 2 ** (8 * size - 1) - 1, draw.getrandbits(8)))
    at = draw.randrange(max(1, min(len(data), 600)))
    return data[:at] + value.to_bytes(size, draw.choice(("little", "big"))) + data[at + size :]


DAMAGE = (flipped, flipped, shortened, overwritten, inserted, repeated, number_changed, number_changed)
HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63 - 1, 2**64, 10**400, 1e308, -0.0, float("inf"), float("nan"), "", "auto", "\0",
    "\ud800", "\x1b[2J", "x" * 100_000, "../../etc/passwd", "/", [], [[]], {}, [0] * 10_000,
    {"a": {"b": {}}}, [1.5, "x"],
)  # fmt: skip


def hostile_json(value: Any, draw: random.Random) -> Any:
    """The value with one part replaced, removed, repeated or wrapped in many lists."""
    value = copy.deepcopy(value)
    holder, key = value, None
    while isinstance(holder, dict | list) and holder:
        inner = draw.choice(list(holder)) if isinstance(holder, dict) else draw.randrange(len(holder))
        if key is not None and draw.random() < 0.4:
            break
        parent, key = holder, inner
        holder = holder[inner]
    if key is None:
        return draw.choice(HOSTILE)
    chance = draw.random()
    if chance < 0.1:
        del parent[key]
    elif chance < 0.15:
        deep: Any = 0
        for _ in range(draw.choice((40, 900))):
            deep = [deep]
        parent[key] = deep
    elif chance < 0.3 and isinstance(parent[key], int | float):
        parent[key] = parent[key] * draw.choice((-1, 2, 1000, 10**6, 0.5))
    else:
        parent[key] = draw.choice(HOSTILE)
    return value


def hostile_text(text: bytes, draw: random.Random) -> bytes:
    return json.dumps(hostile_json(json.loads(text), draw)).encode("utf-8", "surrogatepass")


def hostile_tensors(data: bytes, draw: random.Random) -> bytes:
    """A safetensors file with a hostile fact or tensor, and a checksum that fits."""
    length = int.from_bytes(data[:8], "little")
    facts = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][FACTS])
    facts.pop(CHECKSUM, None)
    tensors = load(data)
    if draw.random() < 0.6:
        facts = hostile_json(facts, draw)
    else:
        name = draw.choice(sorted(tensors))
        tensors[name] = hostile_tensor(tensors[name], draw)
    if draw.random() < 0.2:
        tensors.pop(draw.choice(sorted(tensors)))
    if not isinstance(facts, dict):
        return save(tensors, metadata={FACTS: json.dumps(facts)})
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder) / "x", tensors, facts)
        return (Path(folder) / "x").read_bytes()


def hostile_tensor(tensor: torch.Tensor, draw: random.Random) -> torch.Tensor:
    changes: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t[:0], lambda t: t.flatten()[:1], lambda t: t.double(), lambda t: t.to(torch.int32), lambda t: t.T,
        lambda t: torch.full_like(t, -1), lambda t: t[None], lambda t: torch.cat([t, t]),
        lambda t: torch.full_like(t, float("nan")) if t.is_floating_point() else t + 2**40,
        lambda t: t * 1e300 if t.is_floating_point() else -t,
    ]  # fmt: skip
    try:
        return draw.choice(changes)(tensor).contiguous()
    except (RuntimeError, IndexError, TypeError):
        return torch.zeros(3)


def hostile_project(data: bytes, draw: random.Random) -> bytes:
    """A project of the studio with a hostile fact, step or row of features."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])  # in memory there is no write-ahead log
        table, column = draw.choice((("facts", "value"), ("facts", "value"), ("history", "changes")))
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        number, text = draw.choice(rows)
        if draw.random() < 0.2:
            connection.execute("UPDATE features SET row = ?", (draw.choice((b"", b"123", "text", 5, b"\xff" * 24)),))
        else:
            changed = hostile_text(text.encode(), draw).decode("utf-8", "replace")
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, number))
        connection.commit()
        return connection.serialize()


def hostile_store(data: bytes, draw: random.Random) -> bytes:
    _, length, _ = PREFIX.unpack(data[: PREFIX.size])
    body = hostile_text(data[PREFIX.size : PREFIX.size + length], draw)
    head = PREFIX.pack(MAGIC, len(body), zlib.crc32(body)) + body
    return head + b"\0" * (-len(head) % 4096) + data[4096:]


# ---------------------------------------------------------------------------------------------------------- good files


def picture(kind: str, mode: str = "RGB", **options: Any) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (20, 24, 4), dtype=np.uint8)
    image = Image.fromarray(pixels).convert("RGB").convert(mode) if mode != "I;16" else Image.new(mode, (24, 20), 999)
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def images() -> list[bytes]:
    made = [picture("PNG", mode) for mode in ("RGB", "L", "P", "RGBA", "1", "I;16")]
    made += [
        picture("JPEG"),
        picture("JPEG", "CMYK"),
        picture("JPEG", progressive=True),
        picture("WEBP", lossless=True),
    ]
    made += [picture("GIF"), picture("BMP"), picture("PPM"), picture("TGA"), picture("ICO"), picture("PCX")]
    made += [picture("TIFF", compression=kind) for kind in ("raw", "tiff_lzw", "tiff_deflate", "jpeg", "packbits")]
    made += [picture(kind) for kind in ("AVIF", "JPEG2000", "HEIF") if kind in formats() and kind in Image.SAVE]
    return [*made, picture("TIFF", "F"), picture("TIFF", "I;16")]


def archive(kind: str) -> bytes:
    files = {f"top/{name}/{i}.png": picture("PNG", "L") for name in "abcde" for i in range(2)}
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in files.items():
                zipped.writestr(name, data)
        return out.getvalue()
    with tarfile.open(fileobj=out, mode=kind) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def store(folder: Path) -> bytes:
    parts = {"train": ((0, 2),), "val": ((2, 1),), "test": ((3, 1),)}
    header = Header("x", ("a", "b", "c", "d"), (2,) * 4, (8, 8, 1), {"default": parts}, groups=("g", "g", "h", "h"))
    write_store(folder / "x.pack", header, [np.arange(512, dtype=np.uint8).reshape(8, 8, 8, 1) % 251])
    return (folder / "x.pack").read_bytes()


def cache_file(folder: Path) -> bytes:
    with Store(folder / "made") as cache:
        cache.add_features("e" * 64, {f"{i:064x}": np.arange(5.0) + i for i in range(20)})
        cache.add_thumbnail("a" * 64, picture("JPEG"))
    return (folder / "made" / FILE).read_bytes()


def project_file(folder: Path) -> bytes:
    project = Project(folder / "project")
    for number in range(4):
        item, label = f"{number:064x}", ("cat", "dog")[number % 2]
        facts = {f"class/{label}": {"n": number}, f"item/{item}": {"n": number, "label": label, "name": "x.png"}}
        project.change("Add an image", facts)
        project.keep_features("e", {item: np.arange(3.0) + number})
    project.close()
    return (folder / "project" / PROJECT).read_bytes()


def tensors_of(folder: Path, write: Callable[[Path], object]) -> bytes:
    write(folder / "written")
    return (folder / "written").read_bytes()


def linear(path: Path) -> None:
    score = ScoreEstimate(0.5, 0.4, 0.6, 10, weight=11.0)
    LinearClassifier(("a", "b"), LinearMap(np.ones((3, 2)), np.zeros(2)), 1.0, 1.0, score).save(path)


def shard(path: Path) -> None:
    tensors = {"features": torch.ones(4, 3).half(), "codes": torch.tensor([0, 1, 0, 1])}
    write_checkpoint(path, tensors, {"names": list("abcd")})


# ------------------------------------------------------------------------------------------------------------- readers


def read_classifier(path: Path) -> None:
    clf = FewShotClassifier.load(path)
    n_features = clf.n_features_in_ if hasattr(clf, "n_features_in_") else 0
    if n_features:
        clf.predict_proba(np.zeros((1, n_features)))


def read_archive(path: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        tree = open_tree(path, Path(scratch))
        for blob in tree.files.values():
            try:
                blob.read()
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError):
                continue  # packing names the image and says why
        contents = read_folder([tree], FolderOptions(size=8, grey=True))
        for _ in contents.pixels():
            pass


def read_store(path: Path) -> None:
    benchmark = open_benchmark(path)
    for dataset in (benchmark.train, benchmark.val, benchmark.test):
        if len(dataset):
            dataset.inputs(dataset.rows[:2])
    check_store(path)


def read_cache(path: Path) -> None:
    with Store(path.parent) as cache:
        for i in range(20):
            cache.features("e" * 64, f"{i:064x}")
        cache.thumbnail("a" * 64)
        cache.add_features("e" * 64, {"f" * 64: np.arange(5.0)})


def read_image(path: Path) -> None:
    decode(path.read_bytes(), Decoding(8, 8))
    decode(path.read_bytes(), Decoding(8, 8, channels=1, fit="squash"))


def read_shard(path: Path) -> None:
    write_index(path.parent, ["a", "b"], [4], "x", "y").read(0)


def read_linear(path: Path) -> None:
    load_linear(path).predict_proba(np.zeros((1, 3)))


def read_project(path: Path) -> None:
    project = Project(path.parent)
    try:
        project.sweep()
        project.classes(), project.items(), project.undoable()
        project.features("e", [*project.items()])
        project.undo()
        project.redo()
    finally:
        project.close()


def read_report(path: Path) -> None:
    (path.parent / COUNTS.name).write_bytes(COUNTS.read_bytes())
    if complaint := verify(path).complaint:
        raise DataError(complaint)


@dataclass(frozen=True)
class Kind:
    """A kind of file: its name, good examples, what reads it, and a way to damage it that keeps its checksums right."""

    name: str
    seeds: Sequence[bytes]
    read: Callable[[Path], object]
    deep: Callable[[bytes, random.Random], bytes] | None = None


def kinds(folder: Path) -> dict[str, Kind]:
    formats, run = HERE / "classifier/formats", HERE / "formats/run-0.1"
    classifiers = [
        (formats / f"{name}.handful").read_bytes() for name in ("tall-ridge", "wide-logistic", "wide-updated")
    ]
    classifiers.append(gzip.decompress((formats / "run.handful.gz").read_bytes()))
    recipe = json.dumps({"handful": "0.1", "torch": "2", "recipe": RECIPE_OF_A_TINY_RUN.as_json()}).encode()
    archives = [archive(kind) for kind in ("zip", "w", "w:gz", "w:xz", "w:bz2")]
    checkpoints = [(run / "best-mean.safetensors").read_bytes()]
    members = (
        Kind("a.handful", classifiers, read_classifier, hostile_tensors),
        Kind("a.safetensors", checkpoints, load_model, hostile_tensors),
        Kind("a.pack", [store(folder)], read_store, hostile_store),
        Kind(RECIPE, [recipe], lambda path: read_recipe(path.parent), hostile_text),
        Kind(MANIFEST, [MANIFEST_OF_A_RUN], lambda path: read_sessions(path.parent, CONTENT), hostile_text),
        Kind("a.tar", archives, read_archive),
        Kind("a.png", images(), read_image),
        Kind(FILE, [cache_file(folder)], read_cache),
        Kind("000000.safetensors", [tensors_of(folder, shard)], read_shard, hostile_tensors),
        Kind("a.handful", [tensors_of(folder, linear)], read_linear, hostile_tensors),
        Kind(PROJECT, [project_file(folder)], read_project, hostile_project),
        Kind(REPORT.name, [REPORT.read_bytes()], read_report, hostile_text),
        Kind("jobs", [b"table1 --only 'Proto net'  # first\n\nhandful reproduce table2 --seeds 2\n"], read_queue),
        Kind("a.csv", [b'path,label\na.png,cat\n"b,c.png",dog\n'], lambda path: labelled_pictures(path, None)),
    )
    return dict(zip(CASES, members, strict=True))


# -------------------------------------------------------------------------------------------------------------- running


def damaged(kind: Kind, seed: int, number: int) -> bytes:
    """The file of one case."""
    draw = random.Random(seed * 1_000_003 + number)
    data = draw.choice(kind.seeds)
    if kind.deep is not None and draw.random() < 0.6:
        return kind.deep(data, draw)
    for _ in range(draw.choice((1, 1, 1, 3))):
        data = draw.choice(DAMAGE)(data, draw)
    return data


def attempt(kind: Kind, seed: int, number: int, folder: Path) -> str:
    """Run one case: "result", "error", or a description of what must not happen."""
    path = folder / kind.name
    try:
        path.write_bytes(damaged(kind, seed, number))
    except (TypeError, ValueError, OverflowError, RuntimeError, struct.error):
        return "result"  # the hostile value cannot even be written
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        kind.read(path)
        return "result"
    except HandfulError as error:
        return "error" if str(error).count("\n") == 0 else f"an error of several lines: {error}"
    except OutOfTimeError:
        return f"more than {SECONDS:g} seconds of processor time"
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for left in folder.iterdir():
            left.unlink()


def limit_memory() -> None:
    """Allow MEGABYTES beyond the address space that is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + (MEGABYTES << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def out_of_time(number: int, frame: object) -> None:
    raise OutOfTimeError


def run(kind: str, cases: range, seed: int, folder: Path, known: dict[str, Kind]) -> dict[str, Any]:
    outcomes = {"kind": kind, "result": 0, "error": 0, "broken": []}
    for number in cases:
        outcome = attempt(known[kind], seed, number, folder)
        if outcome in ("result", "error"):
            outcomes[outcome] += 1
        else:
            outcomes["broken"].append(f"--kind {kind} --case {seed}:{number}\n{outcome}")
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0, help="go on with new cases for this long")
    parser.add_argument("--kind", choices=list(CASES), help="only this kind of file")
    parser.add_argument("--case", help="SEED:NUMBER of one case")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    signal.signal(signal.SIGPROF, out_of_time)
    chosen = [given.kind] if given.kind else list(CASES)
    with tempfile.TemporaryDirectory() as good, tempfile.TemporaryDirectory() as bad:
        known = kinds(Path(good))
        limit_memory()
        one = partial(run, folder=Path(bad), known=known)
        if given.case:
            seed, number = map(int, given.case.split(":"))
            results = [one(kind, range(number, number + 1), seed) for kind in chosen]
        else:
            results = [one(kind, range(CASES[kind]), given.seed) for kind in chosen]
        end, seed = time.monotonic() + 60 * given.minutes, int(time.time()) if given.minutes else 0
        while time.monotonic() < end:
            seed += 1
            results += [one(kind, range(50), seed) for kind in chosen]
    broken = [each for result in results for each in result["broken"]]
    total = sum(result["result"] + result["error"] + len(result["broken"]) for result in results)
    sys.stderr.write("".join(f"{each}\n" for each in broken))
    sys.stdout.write(json.dumps({"cases": total, "broken": len(broken), "kinds": results[: len(chosen)]}) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
