"""2,800 damaged and hostile files of every kind, within limits of memory and time; `make fuzz` makes more."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.hostile.fuzz import CASES


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    """What became of each kind's cases, in a process of their own, whose memory is limited."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.fuzz"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 1), f"the process died with {done.returncode}: {done.stderr[-2000:]}"
    return {each["kind"]: each for each in json.loads(done.stdout)["kinds"]}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are set by /proc")
@pytest.mark.parametrize("kind", CASES)
def test_a_hostile_file_gives_a_result_or_one_clear_error(kind: str, outcomes: dict[str, dict[str, Any]]) -> None:
    outcome = outcomes[kind]
    assert not outcome["broken"], outcome["broken"][0]
    assert outcome["result"] + outcome["error"] == CASES[kind]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are set by /proc")
def test_the_cases_reach_both_ends(outcomes: dict[str, dict[str, Any]]) -> None:
    assert sum(CASES.values()) >= 2_000
    assert all(outcome["result"] for outcome in outcomes.values())  # damage that does not matter exists everywhere
    assert all(outcome["error"] for kind, outcome in outcomes.items() if kind != "cache")
