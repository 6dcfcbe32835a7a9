"""Download a file over HTTP: resume partial downloads, verify the checksum, and try the next mirror if one fails."""

from __future__ import annotations

import http.client
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from handful._io import FULL, file_digest, write_errors
from handful.errors import DataError

BLOCK = 1 << 16
ATTEMPTS = 3
MAX_BYTES = 1 << 30
SLOWEST = 1024
"""A mirror is abandoned if it is slower than this many bytes per second for the length of a timeout."""
BUSY, LONGEST_WAIT = (429, 503), 60.0
"""Status codes after which a server is tried again, and the longest delay that it may ask for, in seconds."""


@dataclass(frozen=True)
class Remote:
    """A file on the web: its name, the URLs that serve it, and the MD5 of the authors' copy."""

    name: str
    mirrors: tuple[str, ...]
    md5: str


class MirrorError(Exception):
    """One mirror failed: the reason, and whether the bytes received so far are useless."""

    def __init__(self, reason: str, spoiled: bool = False, again_in: float | None = None) -> None:
        super().__init__(reason)
        self.spoiled = spoiled
        self.again_in = again_in
        """Seconds after which the server asked to be tried again."""


def fetch(
    remote: Remote, folder: Path, mirrors: Sequence[str] = (), timeout: float = 30.0, progress: bool = False
) -> Path:
    """The file in `folder`, complete and with the right checksum; a partial download is kept for the next attempt.

    `mirrors` are URLs of folders that are tried before the file's own URLs. `timeout` limits each wait, in
    seconds; a mirror that sends next to nothing for that long is abandoned.
    """
    target = folder / remote.name
    if target.exists() and file_digest(target, "md5") == remote.md5:
        return target
    reasons = []
    for url in [f"{base.rstrip('/')}/{remote.name}" for base in mirrors] + list(remote.mirrors):
        try:
            with write_errors(target):
                transfer(url, remote, folder, timeout, progress).replace(target)
            return target
        except MirrorError as error:
            reasons.append(f"{url}: {error}")
    raise DataError(
        f"{remote.name} could not be downloaded. {'; '.join(reasons)}. Try again later (the download resumes), or "
        f"get the file in another way and pass it with --from."
    )


def transfer(url: str, remote: Remote, folder: Path, timeout: float, progress: bool) -> Path:
    """All attempts at one mirror; returns the partial file once its checksum is right."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f"{remote.name}.part"
    failure = MirrorError("no answer")
    for _ in range(ATTEMPTS):
        had = size_of(part)
        try:
            receive(url, part, had, timeout, progress)
            failure = MirrorError("the file has a wrong checksum", spoiled=True)
        except MirrorError as error:
            failure = error
        except OSError as error:
            if error.errno in FULL:
                part.unlink(missing_ok=True)
            raise
        if part.exists() and file_digest(part, "md5") == remote.md5:  # even if the server announced another length
            return part
        if failure.spoiled:
            part.unlink(missing_ok=True)
        if failure.again_in is not None:
            time.sleep(min(failure.again_in, LONGEST_WAIT))
        elif size_of(part) <= had and not (failure.spoiled and had):
            break  # no progress, and no wrong beginning to explain it
    raise failure


def size_of(path: Path) -> int:
    """The file's size, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def receive(url: str, part: Path, had: int, timeout: float, progress: bool) -> None:
    """Append the server's data from byte `had` on to `part`, or start over if the server cannot resume."""
    with connect(url, had, timeout) as response:
        start = resumed_at(response, had)
        total = promised(response, start)
        first = next_block(response, start)
        if start == 0 and re.match(rb"\s*<(!doctype|html|\?xml)", first[:64], re.IGNORECASE):
            raise MirrorError("the server sent a web page instead of the file")
        with (
            part.open("r+b" if start else "wb") as file,
            tqdm(total=total, initial=start, unit="B", unit_scale=True, desc=part.stem, disable=not progress) as bar,
        ):
            file.seek(start)
            file.truncate()
            block, received = first, start
            clock, mark = time.monotonic(), start
            while block:
                file.write(block)
                bar.update(len(block))
                received += len(block)
                if received > MAX_BYTES:
                    raise MirrorError(f"the server sends more than {MAX_BYTES >> 20} MB", spoiled=True)
                file.flush()
                if (elapsed := time.monotonic() - clock) > timeout:
                    if received - mark < SLOWEST * elapsed:
                        raise MirrorError(f"the transfer is too slow: {received - mark} bytes in {elapsed:.0f} seconds")
                    clock, mark = time.monotonic(), received
                block = next_block(response, received)
    if total is not None and received < total:
        raise MirrorError(f"the transfer broke off after {received} of {total} bytes")


def connect(url: str, had: int, timeout: float) -> Any:
    """The server's response to a request for the file from byte `had` on."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "handful", "Accept-Encoding": "identity"})
        if had:
            request.add_header("Range", f"bytes={had}-")
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        said = error.headers.get("Retry-After", "") if error.code in BUSY else ""
        raise MirrorError(
            f"the server answered {error.code} {error.reason}",
            spoiled=error.code == 416,
            again_in=float(said) if said.isascii() and said.isdigit() else None,
        ) from error
    except urllib.error.URLError as error:
        raise MirrorError(f"cannot connect ({error.reason})") from error
    except TimeoutError as error:
        raise MirrorError(f"no answer within {timeout:g} seconds") from error
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise MirrorError(f"cannot connect ({error})") from error


def next_block(response: Any, received: int) -> bytes:
    """The next bytes of the body; network errors are reported as failures of the mirror."""
    try:
        block: bytes = response.read1(BLOCK)
        return block
    except TimeoutError as error:
        raise MirrorError(f"the transfer stalled after {received} bytes") from error
    except (http.client.HTTPException, OSError) as error:
        raise MirrorError(f"the transfer broke off after {received} bytes ({error})") from error


def resumed_at(response: Any, had: int) -> int:
    """The byte at which the response begins: `had` if the server resumes, 0 if it sends everything again."""
    if response.status == 200:
        return 0
    content_range = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if response.status == 206 and content_range and int(content_range[1]) == had:
        return had
    raise MirrorError(f"the server answered {response.status} to a request for the rest of the file")


def promised(response: Any, start: int) -> int | None:
    """The length of the whole file according to the server."""
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isascii() and length.isdigit() else None
