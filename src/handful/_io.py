"""Files on disk: bounded reads, atomic writes, tensors with a checksum, locks, the cache folder, digests."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from handful.errors import CheckpointError, DataError

if TYPE_CHECKING:
    from torch import Tensor

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MEGABYTE = 1 << 20
MOST_TENSORS, MOST_HEADER, MOST_JSON = 4096 * MEGABYTE, 100 * MEGABYTE, 16 * MEGABYTE
"""Larger files of tensors, headers of such files and other JSON files are refused."""
DEPTH = 32
"""Levels of nested lists and objects in the JSON that handful reads; what it writes has six at most."""


# ------------------------------------------------------------------------------------------------------------- writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place if the block succeeds and is deleted if it fails.

    A reader sees the old file or the new one, never half of it. The name is unique, so that two threads may write the
    same file at once. The new file has the mode of the old one, which is never readable to more people while it is
    written, and a link stays a link: the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        mode = _create_like(target, temporary)
        yield temporary
        _flush(temporary, os.O_RDWR)
        if mode is not None:
            with suppress(OSError):
                temporary.chmod(mode)
        temporary.replace(target)
        with suppress(OSError):  # not every system lets us open folders
            _flush(target.parent, os.O_RDONLY)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, payload: bytes) -> None:
    """Write bytes to a temporary file in the same folder, flush them to disk, then rename it."""
    with replacing(path) as temporary:
        temporary.write_bytes(payload)


def sweep(path: Path) -> None:
    """Delete the temporary files that a killed process left beside `path`; call it only while holding the lock."""
    for stale in path.parent.glob(f".{path.name}.*.tmp"):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while `path` is written into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # a decompressor's complaint about its input, not the disk's
            raise
        if error.errno in FULL:
            free = shutil.disk_usage(path.parent).free if path.parent.is_dir() else 0
            raise DataError(
                f"No room to write {path}: {error.strerror} ({free / 1e6:.0f} MB free there). "
                f"Free some space, or choose another folder with --data or HANDFUL_DATA."
            ) from error
        raise DataError(
            f"Cannot write {path}: {error.strerror or error}. "
            f"Choose a folder that you can write to with --data or HANDFUL_DATA."
        ) from error


def _create_like(target: Path, temporary: Path) -> int | None:
    """Create an empty file that nobody may read who may not read `target`; the mode of `target`, if it exists."""
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mode = None
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode | stat.S_IWUSR))
    return mode


def _flush(path: Path, mode: int) -> None:
    """Have what was written to a file, or the names in a folder, survive a power failure."""
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ------------------------------------------------------------------------------------------------------------- reading


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file for reading, unless it is a pipe or a device, from which a read may never return."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DataError("is not a regular file")
    return os.fdopen(handle, "rb")


def read_bytes(path: str | Path, most: int) -> bytes:
    """All bytes of a regular file that has `most` at most; the caller names the file in front of the complaint."""
    with open_regular(path) as file:
        small = os.fstat(file.fileno()).st_size <= most
        content = file.read(most + 1) if small else b""
    if not small or len(content) > most:
        raise DataError(f"is larger than the {most / MEGABYTE:.0f} MB that such a file may have")
    return content


def parse_json(text: bytes | str) -> Any:
    """JSON that handful may have written: UTF-8, not deeply nested, all numbers finite; a ValueError says what is not.

    Whole numbers fit into 64 bits, so that no tensor library overflows on them.
    """
    try:
        parsed = json.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    level = [parsed]
    for _ in range(DEPTH):
        if not level:
            return parsed
        for each in level:
            if isinstance(each, str):
                each.encode()  # half of a surrogate pair is no text
            elif isinstance(each, int | float) and not (math.isfinite(each) and abs(each) < 2**64):
                raise ValueError(f"its JSON holds the number {str(each)[:24]}")
        inner = [each for each in level if isinstance(each, dict | list)]
        level = [item for each in inner for item in ([*each, *each.values()] if isinstance(each, dict) else each)]
    raise ValueError("its JSON is nested too deeply")


def read_json(path: Path) -> Any:
    """The content of a JSON file; a ValueError or an OSError says what is wrong."""
    try:
        return parse_json(read_bytes(path, MOST_JSON))
    except DataError as error:
        raise ValueError(f"it {error}") from error


# ------------------------------------------------------------------------------------------------------------- tensors

FACTS, CHECKSUM = "handful", "sha256"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and JSON facts to one safetensors file, with a checksum of both; `read_tensors` gives them back."""
    from safetensors.torch import save

    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps({CHECKSUM: _checksum(plain, facts), **facts})
    write_atomically(path, save(plain, metadata={FACTS: text}))


def read_tensors(path: Path, key: str = FACTS) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a file, whole and of one version, even while another process replaces it.

    Its bytes are read once. Files from before there was a checksum have none and are taken as they are. `key` names
    the facts in the file's header.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        with open_regular(path) as file:
            start, metadata = _safetensors_header(file)
            tensors = load(start + file.read())
        if key not in metadata:
            raise ValueError("handful did not write it")
        facts = parse_json(metadata[key])
        expected = facts.pop(CHECKSUM, None)
        if expected is not None and expected != _checksum(tensors, facts):
            raise ValueError("its checksum does not match: some of its bytes have changed since it was written")
    except DataError as error:
        raise CheckpointError(f"{path} {error}.") from error
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file of handful's: {str(error).rstrip('.')}. "
            f"Copy it again from where it came, or make it again."
        ) from error
    return tensors, facts


def _safetensors_header(file: BinaryIO) -> tuple[bytes, dict[str, Any]]:
    """The bytes before the tensors, and the metadata in them; sizes are compared before anything large is read."""
    size, prefix = os.fstat(file.fileno()).st_size, file.read(8)
    length = int.from_bytes(prefix, "little")
    if size > MOST_TENSORS or not 2 <= length <= min(MOST_HEADER, size - 8):
        raise ValueError("it is cut short or of another kind")
    text = file.read(length)
    header = parse_json(text)
    metadata = header.pop("__metadata__", {})
    if 8 + length + max((each["data_offsets"][1] for each in header.values()), default=0) != size:
        raise ValueError("it is cut short or has bytes to spare")
    return prefix + text, metadata


def _checksum(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """SHA-256 of facts and tensors, with their names, types and shapes."""
    import torch

    hasher = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name, value in sorted(tensors.items()):
        hasher.update(f"\0{name} {value.dtype} {tuple(value.shape)}\0".encode())
        hasher.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return hasher.hexdigest()


# --------------------------------------------------------------------------------------------------------------- locks


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock of `path`, which is a file called .NAME.lock beside it; the system drops it if the process dies.

    `waiting` is called once if another process holds the lock.
    """
    from filelock import FileLock, Timeout  # here, because most commands need no lock and the import takes a while

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if waiting is not None:
            waiting()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


# --------------------------------------------------------------------------------------------------- folders, digests


def data_root(root: str | Path | None = None) -> Path:
    """The folder of data sets and caches: `root`, else HANDFUL_DATA, else the user's cache folder for handful."""
    chosen = root or os.environ.get("HANDFUL_DATA")
    if chosen:
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("handful", appauthor=False, opinion=False)


def digest(data: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file, read in blocks; MD5 is for checksums that others publish, not for security."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
