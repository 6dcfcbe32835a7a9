"""What a command that trains shows where there is no terminal."""

from __future__ import annotations

import pytest

from handful.cli.progress import watched
from handful.meta.train import Progress


def test_a_log_gets_a_line_a_validation(capsys: pytest.CaptureFixture[str]) -> None:
    silent = Progress(1, 2.0, 0.5, 0.1, scores=None, improved=(), seconds=1.0)
    scores = {"1-shot": 0.25, "mean": 0.5}
    validated = Progress(2, 2.0, 0.5, 0.1, scores=scores, improved=("mean",), seconds=2.0)
    steps = [silent, validated]
    assert list(watched("cifar-fs/r2d2", 2, iter(steps))) == steps
    assert capsys.readouterr().out == (
        "cifar-fs/r2d2: episode       2  validation 1-shot 25.00%  mean 50.00%  best so far\n"
    )
