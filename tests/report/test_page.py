"""Pages escape everything that they did not write themselves, and need no network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import chain

import pytest
from markupsafe import Markup

from handful.report.page import (
    Group,
    Picture,
    Thumb,
    code,
    figure,
    groups,
    heading,
    page,
    paragraph,
    shades,
    table,
    thumbs,
    tiles,
)

EVIL = """<script>alert("1")</script> ' " & {{ 7 * 7 }}"""
VOID = {"meta", "img", "wbr"}


class Tags(HTMLParser):
    """Checks that tags nest, and keeps all text, attributes and tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.attributes: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [value for _, value in attrs if value]
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


PARTS = {
    "heading": heading(EVIL),
    "paragraph": paragraph(EVIL),
    "code": code([EVIL, "second"]),
    "figure": figure(Picture(b"x", "png", EVIL), EVIL),
    "table": table([EVIL, "b"], [[EVIL, "1"], ["2", "3"]], strong=(1,), remarks=True),
    "tiles": tiles([(EVIL, EVIL)]),
    "thumbs": thumbs([Thumb(b"x", EVIL, EVIL, marked=True, small=True), Thumb(b"", EVIL)]),
    "groups": groups([Group(EVIL, EVIL, [Thumb(b"x", EVIL)])]),
    "shades": shades([EVIL, "b"], [[3, 1], [0, 0]], {(0, 1): [EVIL]}),
}


@pytest.mark.parametrize("name", PARTS)
def test_every_part_escapes_its_texts_and_nests_its_tags(name: str) -> None:
    part = PARTS[name]
    assert isinstance(part, Markup)
    seen = Tags(part)
    assert "script" not in seen.tags
    assert any(EVIL in text for text in chain(seen.texts, seen.attributes)) or EVIL in "".join(seen.texts)


def test_a_page_escapes_title_lead_and_parts_that_are_not_markup() -> None:
    whole = page(EVIL, EVIL, [*PARTS.values(), EVIL])  # type: ignore[list-item]
    seen = Tags(whole)
    assert "script" not in seen.tags
    assert "{{ 7 * 7 }}" in whole
    assert "49" not in "".join(seen.texts)


def test_a_page_refers_to_nothing_outside_itself() -> None:
    assert not re.search(
        r"""(src|href)="(?!data:)|(src|href)=[^"]|@import|url\(""", page("t", "l", list(PARTS.values()))
    )


def test_a_table_marks_strong_rows_and_shades_follow_the_share_of_the_row() -> None:
    assert PARTS["table"].count('<tr class="strong"><td>2</td>') == 1
    assert re.search(r'rgba\(11,107,203,0\.57\)"[^>]*>3<', PARTS["shades"])  # 0.2 + 0.5 * 3 / 4
    assert re.search(r'rgba\(217,72,15,0\.3[23]\)"[^>]*><button[^>]*>1<', PARTS["shades"])


def test_names_break_after_what_separates_their_words() -> None:
    assert "Black_<wbr>footed_<wbr>Albatross" in groups([Group("Black_footed_Albatross", "", [])])


def test_a_page_with_a_viewer_has_its_script_inside() -> None:
    whole = page("t", "l", [PARTS["thumbs"]], viewer=True)
    assert "showModal" in whole
    assert "<script src" not in whole


def test_a_picture_that_is_missing_leaves_a_blank_square() -> None:
    assert thumbs([Thumb(b"")]).count("<i></i>") == 1
