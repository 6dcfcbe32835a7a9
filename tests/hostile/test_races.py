"""A reader sees one version, whole, while another process replaces the file as fast as it can."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

from handful._io import read_json, read_tensors, write_atomically, write_tensors

READS = 100_000 if "HANDFUL_FUZZ" in os.environ else 10_000


def _write(path: Path, number: int) -> None:
    size = 1 + 37 * number % 200  # so that one version's header does not fit another's tensors
    write_tensors(path, {"a": torch.full((size,), float(number)), "b": torch.zeros(number % 5)}, {"number": number})
    write_atomically(path.with_suffix(".json"), b"[" + b",".join([b"%d" % number] * size) + b"]")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the writer is a copy of this process")
def test_every_read_beside_a_writing_process_is_of_one_version(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    _write(path, 0)
    writer = os.fork()
    if writer == 0:
        number = 0
        while os.getppid() != 1:  # ends with the test, however that ends
            number += 1
            _write(path, number)
        os._exit(0)
    try:
        seen = set()
        for _ in range(READS // 2):
            tensors, facts = read_tensors(path)
            number = facts["number"]
            assert tensors["a"].tolist() == [float(number)] * (1 + 37 * number % 200)
            assert len(tensors["b"]) == number % 5
            seen.add(number)
            numbers = read_json(path.with_suffix(".json"))
            assert set(numbers) == {numbers[0]}
            assert len(numbers) == 1 + 37 * numbers[0] % 200
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
    assert len(seen) > 10
