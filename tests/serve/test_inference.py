"""Tensors of the Open Inference Protocol: images, pixels or features in, labels and probabilities out."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from starlette.exceptions import HTTPException

from handful.classifier import FewShotClassifier
from handful.errors import DataError
from handful.serve.decode import TooLargeError
from handful.serve.guard import Limits
from handful.serve.inference import WIDEST, _false_rejection, _outputs, _queries, _wanted
from tests.serve.server import png


def tensor(kind: str, shape: Any, data: Any) -> list[Any]:
    return [{"name": "x", "datatype": kind, "shape": shape, "data": data}]


def test_features_and_pixels_are_taken_flat_or_nested() -> None:
    rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    for data in (rows, [1, 2, 3, 4, 5, 6]):
        found = _queries(tensor("FP32", [2, 3], data), Limits())
        assert isinstance(found, np.ndarray)
        assert found.tolist() == rows
    pixels = np.arange(8).reshape(2, 2, 2, 1)
    assert len(_queries(tensor("UINT8", [2, 2, 2, 1], pixels.tolist()), Limits())) == 2
    (picture,) = _queries(tensor("BYTES", [1], [base64.b64encode(png()).decode()]), Limits())
    assert picture.content == png()


@pytest.mark.parametrize(
    ("kind", "shape", "data"),
    [
        ("INT8", [1], [1]),
        ("FP32", [2, 3], [1, 2]),
        ("FP32", [3], [1, 2, 3]),
        ("FP32", [1, 0], []),
        ("FP32", [True, 1], [1]),
        ("FP32", "x", [1]),
        ("FP32", [1, 1], None),
        ("FP32", [1, 1], ["x"]),
        ("UINT8", [1, 1, 1, 2], [1, 2]),
        ("UINT8", [1, 1, 1, 1], [256]),
        ("UINT8", [1, 1, 1, 1], [-1]),
        ("BYTES", [1], [3]),
        ("BYTES", [1], ["!"]),
    ],
)
def test_tensors_that_make_no_sense_are_refused(kind: str, shape: Any, data: Any) -> None:
    with pytest.raises((HTTPException, DataError)):
        _queries(tensor(kind, shape, data), Limits())


def test_inputs_are_one_tensor_of_no_more_images_than_allowed() -> None:
    for inputs in (None, [], [{}, {}], ["x"]):
        with pytest.raises(HTTPException):
            _queries(inputs, Limits())
    with pytest.raises(TooLargeError, match="2 images"):
        _queries(tensor("FP32", [3, 1], [1, 2, 3]), Limits(images=2))


def test_outputs_and_the_share_to_reject_may_be_asked_for() -> None:
    assert _wanted(None) == _wanted([]) == {"label", "probabilities", "unknown_score"}
    assert _wanted([{"name": "label"}]) == {"label"}
    assert _false_rejection({"false_rejection": 0.1}) == 0.1
    assert _false_rejection(None) is None
    for refused in (
        lambda: _wanted([{"name": "x"}]),
        lambda: _wanted("label"),
        lambda: _false_rejection({"false_rejection": 1}),
    ):
        with pytest.raises(HTTPException):
            refused()


def test_probabilities_come_in_the_order_of_the_labels_that_are_named() -> None:
    clf = FewShotClassifier().fit(np.repeat(np.eye(3), 3, 0) + 0.1 * np.eye(9)[:, :3], list("ccbbbaaac"))
    answers = clf.answer(np.eye(3), top=WIDEST, nearest_examples=0)
    outputs = {each["name"]: each for each in _outputs(answers)}
    table = np.reshape(outputs["probabilities"]["data"], outputs["probabilities"]["shape"])
    assert outputs["probabilities"]["parameters"]["labels"] == ["a", "b", "c"]
    np.testing.assert_allclose(table, clf.predict_proba(np.eye(3)))
    assert outputs["label"]["data"] == [str(each) for each in clf.predict(np.eye(3))]
