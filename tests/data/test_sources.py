"""The registry of benchmarks: names, companions, and what to type for each."""

from __future__ import annotations

import pytest

from handful.data.add import check_name
from handful.data.sources import DRAWN, SOURCES


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_registered_under_its_own_name_with_all_its_companions(name: str) -> None:
    source = SOURCES[name]
    check_name(name)
    assert source.name == name != DRAWN
    for companion in source.companions:
        assert SOURCES[companion].archives == source.archives
        assert SOURCES[companion].remotes == source.remotes
        assert not SOURCES[companion].companions


@pytest.mark.parametrize("name", SOURCES)
def test_how_to_get_a_source_is_a_command_that_brings_it(name: str) -> None:
    words = SOURCES[name].how.split()
    assert words[:3] == ["handful", "data", "add"]
    assert name in (words[3], *SOURCES[words[3]].companions)
