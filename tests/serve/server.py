"""A real `handful serve` process on 127.0.0.1, and what to send it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.classifier.drawings import drawing, encoded


@dataclass(frozen=True)
class Server:
    """A running service."""

    process: subprocess.Popen[str]
    address: str
    client: httpx.Client

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@contextmanager
def serving(*words: object, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """`handful serve ... --port 0`, stopped at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "handful", "serve", *map(str, words), "--port", "0", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("Description:"):
            break
    found = re.search(r"Description: (http://\S+)/openapi.json", said)
    if found is None:
        raise AssertionError(f"{said}{process.communicate()[1]}")
    token = re.search(r"Token: (\S+)", said)
    headers = {"Authorization": f"Bearer {token[1]}"} if token else {}
    try:
        with httpx.Client(base_url=found[1], headers=headers, timeout=60) as client:
            yield Server(process, found[1], client)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def png(shape: str = "circle", seed: int = 60) -> bytes:
    """A drawing that the classifier has not seen."""
    return encoded(drawing(shape, seed))


def files(*images: bytes) -> list[tuple[str, tuple[str, bytes]]]:
    """A form with these images."""
    return [("images", (f"{number}.png", image)) for number, image in enumerate(images)]


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
