"""Fixtures shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.data.web import Web, serving


@pytest.fixture
def web() -> Iterator[Web]:
    with serving() as server:
        yield server
