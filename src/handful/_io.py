"""Files on disk: bounded reads, atomic writes, tensors with a checksum, locks, the cache folder, digests."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Union, get_args, get_origin, get_type_hints

from handful.errors import CheckpointError, DataError, InvalidOptionError

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be deleted anyway
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from torch import Tensor

TEMPORARY = ".tmp"
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
MEGABYTE = 1 << 20
MOST_TENSORS, MOST_HEADER, MOST_JSON = 4096 * MEGABYTE, 100 * MEGABYTE, 16 * MEGABYTE
"""Larger files of tensors, headers of such files and other JSON files are refused."""
DEPTH = 32
"""The deepest nesting of lists and objects in JSON that handful reads; it writes at most six levels."""


# ------------------------------------------------------------------------------------------------------------- writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file next to `path` that replaces it if the block succeeds and is deleted if it fails.

    A reader sees the old file or the new one, never a mix. The name is unique, so two threads may write the same file
    at once. The new file gets the mode of the old one and is never readable by more people while it is written. A link
    stays a link: the file that it points to is replaced.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise InvalidOptionError(f"{path} is a folder. Give the path of a file to write.")
    if target.exists() and not target.is_file():  # otherwise /dev/null would become a plain file for everyone
        raise InvalidOptionError(
            f"{path} is a device, a pipe or a socket, which would be replaced. Give the path of a file to write."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep_files(target)
    temporary, handle, mode = _create_beside(target)
    try:
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
        os.close(handle)


def write_atomically(path: Path, payload: bytes) -> None:
    """Write bytes to a temporary file in the same folder, flush them to disk, then rename it."""
    with replacing(path) as temporary:
        temporary.write_bytes(payload)


def sweep(path: Path) -> None:
    """Delete temporary files and folders of `path` that a killed process left; the caller must hold the lock."""
    _sweep_files(path)
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*{TEMPORARY}"):
        shutil.rmtree(stale, ignore_errors=True)


def sweep_folder(folder: Path) -> None:
    """Delete all temporary files that killed processes left in a folder."""
    for stale in folder.glob(f".*{TEMPORARY}"):
        _remove_stale(stale)


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError while `path` is written into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # raised by a decompressor because of its input, not by the disk
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


def _create_beside(target: Path) -> tuple[Path, int, int | None]:
    """An empty file readable only by those who may read `target`, its open and locked handle, and the mode of `target`.

    The lock shows that the writing process is alive, and ends with it.
    """
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except OSError:
        mode = None
    flags, access = os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode | stat.S_IWUSR
    while True:
        temporary = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
        handle = os.open(temporary, flags, access)
        _lock(handle, wait=True)  # another process may have locked it first, to delete it as stale
        if os.fstat(handle).st_nlink:
            return temporary, handle, mode
        os.close(handle)


def _sweep_files(target: Path) -> None:
    for stale in target.parent.glob(f".{glob.escape(target.name)}.*{TEMPORARY}"):
        _remove_stale(stale)


def _remove_stale(temporary: Path) -> None:
    """Delete a temporary file unless a living process is writing it."""
    with suppress(OSError):
        handle = os.open(temporary, os.O_RDWR | getattr(os, "O_NONBLOCK", 0))
        try:
            if _lock(handle):
                temporary.unlink(missing_ok=True)
                _unlock(handle)
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool:
    """Lock an open file; returns False if locks are not supported or, unless we `wait`, if someone else holds it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _unlock(handle: int) -> None:
    """Release a lock before its file is closed, because a process forked in between would keep it."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_UN)


def _flush(path: Path, mode: int) -> None:
    """Flush a file, or the names in a folder, to disk, so that they survive a power failure."""
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
    """All bytes of a regular file of at most `most` bytes; the caller puts the file's name in front of the error."""
    with open_regular(path) as file:
        small = os.fstat(file.fileno()).st_size <= most
        content = file.read(most + 1) if small else b""
    if not small or len(content) > most:
        raise DataError(f"is larger than the {most / MEGABYTE:.0f} MB that such a file may have")
    return content


def parse_json(text: bytes | str) -> Any:
    """Parse JSON that is UTF-8, not deeply nested and has only finite numbers; otherwise a ValueError says why not.

    Integers must fit into 64 bits, so that no tensor library overflows on them.
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
            if (isinstance(each, int) and abs(each) >= 2**64) or (isinstance(each, float) and not math.isfinite(each)):
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


def from_json(kind: Any, value: Any, name: str) -> Any:
    """A JSON value as the type `kind`, for example a dataclass; a ValueError names the field that does not match.

    Integers are accepted as floats, and lists as tuples; nothing else is converted.
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        for each in inner:
            with suppress(ValueError):
                return from_json(each, value, name)
    elif isinstance(value, dict) and is_dataclass(kind):
        return _dataclass_from(kind, value, name)
    elif isinstance(value, dict) and origin in (dict, Mapping):
        return {key: from_json(inner[1], each, f"{name}.{key}") for key, each in value.items()}
    elif isinstance(value, list | tuple) and origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return tuple(from_json(*each, name) for each in zip(kinds, value, strict=True))
    elif _is_a(kind, value, inner):
        return value
    raise ValueError(f"{name} is {str(value)[:40]!r}, which does not fit {getattr(kind, '__name__', kind)}")


def _is_a(kind: Any, value: Any, choices: tuple[Any, ...]) -> bool:
    if get_origin(kind) is Literal:
        return any(type(value) is type(each) and value == each for each in choices)
    return kind is Any or type(value) is kind or (kind is float and type(value) is int)


def _dataclass_from(kind: Any, value: dict[str, Any], name: str) -> Any:
    hints, known = get_type_hints(kind), {each.name: each for each in fields(kind) if each.init}
    unknown = sorted(str(key)[:40] for key in value.keys() - known.keys())
    if unknown:
        raise ValueError(f"{name} has fields that this version of handful does not know: {', '.join(unknown[:5])}")
    missing = [
        key
        for key, each in known.items()
        if key not in value and each.default is MISSING and each.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"{name} has no {missing[0]}")
    return kind(**{key: from_json(hints[key], each, f"{name}.{key}") for key, each in value.items()})


# ------------------------------------------------------------------------------------------------------------- tensors

FACTS, CHECKSUM = "handful", "sha256"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write tensors and JSON facts to one safetensors file with a checksum of both, for `read_tensors`.

    A file that `read_tensors` would refuse is not written.
    """
    from safetensors.torch import save

    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps({CHECKSUM: _checksum(plain, facts), **facts})
    content = save(plain, metadata={FACTS: text})
    if len(content) > MOST_TENSORS or int.from_bytes(content[:8], "little") > MOST_HEADER:
        raise InvalidOptionError(
            f"{path} was not written, because it could not be read back: it would take {len(content) / MEGABYTE:,.0f} "
            f"MB, {len(text) / MEGABYTE:,.0f} of them for names, but {MOST_TENSORS // MEGABYTE:,} and "
            f"{MOST_HEADER // MEGABYTE:,} MB are the limits."
        )
    write_atomically(path, content)


def read_tensors(path: Path, key: str = FACTS) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a file, complete and from one version even if another process replaces it meanwhile.

    Its bytes are read once. Older files without a checksum are read without checking it. `key` names the facts in the
    file's header.
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
            f"{path} is not a complete safetensors file written by handful: {str(error).rstrip('.')}. "
            f"Copy it again, or create it again."
        ) from error
    return tensors, facts


def _safetensors_header(file: BinaryIO) -> tuple[bytes, dict[str, Any]]:
    """The bytes before the tensors, and the metadata in them; sizes are compared before anything large is read."""
    size, prefix = os.fstat(file.fileno()).st_size, file.read(8)
    length = int.from_bytes(prefix, "little")
    if size > MOST_TENSORS or not 2 <= length <= min(MOST_HEADER, size - 8):
        raise ValueError("it is truncated or of another kind")
    text = file.read(length)
    header = parse_json(text)
    metadata = header.pop("__metadata__", {})
    if 8 + length + max((each["data_offsets"][1] for each in header.values()), default=0) != size:
        raise ValueError("it is truncated or has extra bytes")
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
    """Hold the lock of `path`, a file called .NAME.lock next to it; the system releases it if the process dies.

    `waiting` is called once if another process holds the lock.
    """
    from filelock import FileLock, Timeout  # imported here because most commands need no lock and the import is slow

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
    """The folder for data sets and caches: `root`, or HANDFUL_DATA, or handful's folder in the user cache."""
    chosen = root or os.environ.get("HANDFUL_DATA")
    if chosen:
        return expanded(chosen).absolute()
    from platformdirs import user_cache_path

    try:
        return user_cache_path("handful", appauthor=False, opinion=False)
    except RuntimeError as error:
        raise DataError(
            "There is no home folder for data. Set HANDFUL_DATA to a folder that you can write to."
        ) from error


def expanded(path: str | Path) -> Path:
    """The path with ~ and ~name replaced by home folders."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InvalidOptionError(f"'{path}' names a home folder that does not exist. Give the full path.") from error


def digest(data: bytes | memoryview) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """The digest of a file, read in blocks; MD5 is for checksums that others publish, not for security."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
