"""Every example script runs and says what it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def output(name: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_learn_a_task_names_drawings_after_one_example_of_each() -> None:
    shown = output("learn_a_task.py", "--episodes", "40")
    assert "of 50 drawings named after one example of each" in shown
    assert "5-way 1-shot" in shown


@pytest.mark.slow
def test_descending_through_ridge_lowers_the_left_out_error() -> None:
    errors = [float(each) for each in re.findall(r"error ([\d.]+)", output("differentiate_through_ridge.py"))]
    assert errors[-1] < 0.9 * errors[0]


@pytest.mark.slow
def test_a_learner_of_ones_own_is_trained_and_evaluated_like_all_others() -> None:
    before, after = map(float, re.findall(r"([\d.]+)% ±", output("a_learner_of_your_own.py", "--episodes", "40")))
    assert after > before + 5


def test_every_example_is_run_by_a_test() -> None:
    tested = set(re.findall(r'"(\w+\.py)"', Path(__file__).read_text()))
    assert {path.name for path in EXAMPLES.glob("*.py")} <= tested
