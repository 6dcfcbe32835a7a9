"""Bodies of requests: JSON objects of bounded size, images with their names, and fields of the right type."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from handful.errors import DataError
from handful.serve.decode import TooLargeError
from handful.serve.guard import Limits
from handful.serve.requests import Sent, _object, label_of, pictures_of, text_of
from tests.serve.server import png


def coded(image: bytes) -> str:
    return base64.b64encode(image).decode()


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"3", b'{"a": NaN}', b'{"a": Infinity}', b"\xff", b"[" * 5000])
def test_a_body_that_is_no_object_of_json_is_refused(body: bytes) -> None:
    with pytest.raises(HTTPException) as refused:
        _object(body, 10_000)
    assert refused.value.status_code == 400


def test_a_body_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    assert _object(b'{"a": [1, 2, 3]}', 4) == {"a": [1, 2, 3]}
    with pytest.raises(HTTPException) as refused:
        _object(b'{"a": [1, 2, 3', 3)  # not even JSON
    assert refused.value.status_code == 413


def test_images_come_from_a_form_or_from_json_with_their_names() -> None:
    form = pictures_of(Sent((("a.png", png()),), {}), Limits())
    named = pictures_of(Sent((), {"images": [{"data": coded(png()), "name": "a.png"}]}), Limits())
    assert form == named
    assert pictures_of(Sent((), {"images": [{"data": coded(png())}]}), Limits())[0].content == png()


@pytest.mark.parametrize("images", [None, "x", [], [3], [{}], [{"data": 3}], [{"data": "x", "name": 3}]])
def test_images_that_are_no_list_of_objects_are_refused(images: Any) -> None:
    with pytest.raises((HTTPException, DataError)):
        pictures_of(Sent((), {"images": images}), Limits())


def test_more_images_than_allowed_are_too_many() -> None:
    two = [{"data": coded(png())}] * 2
    assert len(pictures_of(Sent((), {"images": two}), Limits(images=2))) == 2
    with pytest.raises(TooLargeError, match="1 image"):
        pictures_of(Sent((), {"images": [{"data": "not base64"}] * 2}), Limits(images=1))  # before any is decoded


def test_fields_have_a_type() -> None:
    assert text_of({"a": "x"}, "a") == "x"
    assert text_of({}, "a", "y") == "y"
    for label in ("x", 3, 1.5, True):
        assert label_of({"label": label}) is label
    for refused in (
        lambda: text_of({"a": 3}, "a"),
        lambda: text_of({}, "a"),
        lambda: label_of({"label": [1]}),
        lambda: label_of({}),
    ):
        with pytest.raises(HTTPException):
            refused()
