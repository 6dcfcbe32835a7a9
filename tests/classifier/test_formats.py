"""Files and numbers recorded with format 1: the files still load, and the same examples still give the same numbers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from handful import FewShotClassifier
from tests.classifier.formats import make

RECORDED: dict[str, dict[str, Any]] = json.loads((make.FOLDER / "results.json").read_text())
CLASSIFIERS = {name: (clf, queries) for name, clf, queries in make.classifiers()}
EXACT = {"labels", "predictions", "rejections", "suggested"}
SEARCHED = {"scale", "probabilities", "suspects"}
"""What depends on the scale of the probabilities, which a search finds to a relative 1e-4: rounding in the scores moves
where the search stops, and the scale with it by some 1e-9."""


def test_the_probability_of_a_wrong_label_never_exceeds_one() -> None:
    clf, _ = CLASSIFIERS["own"]
    assert max(each.probability for each in clf.explain().suspects) == 1


def assert_recorded(clf: FewShotClassifier, queries: Any, recorded: dict[str, Any], tolerance: float) -> None:
    for name, value in make.results(clf, queries).items():
        if name in EXACT:
            assert value == recorded[name], name
        else:
            wanted = max(tolerance, 1e-7) if name in SEARCHED else tolerance
            _assert_close(value, recorded[name], wanted, name)


def _assert_close(found: Any, expected: Any, tolerance: float, name: str) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            _assert_close(one, other, tolerance, name)
    elif isinstance(expected, float):
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)
    else:
        assert found == expected, name


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_same_examples_give_the_recorded_numbers(name: str) -> None:
    # float32 convolutions: other machines add up in another order
    assert_recorded(*CLASSIFIERS[name], RECORDED["fresh"][name], 1e-5 if name == "own" else 1e-10)


@pytest.mark.parametrize("name", RECORDED["loaded"])
def test_a_file_of_format_1_loads_and_gives_the_recorded_numbers(name: str) -> None:
    loaded = make.load(make.FOLDER, name)
    queries = dict(make.stored())[name]
    assert loaded.has_thumbnails_ is (name == "own")
    assert loaded.embedding_.startswith("run") is (name == "run")
    images = name == "run" or name.startswith("own")
    assert_recorded(loaded, queries, RECORDED["loaded"][name], 1e-5 if images else 1e-10)
