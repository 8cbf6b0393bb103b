"""What a page and a drawing of the suite hold, read from their text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import NamedTuple
from xml.etree import ElementTree as ET

from conformance.explain import Explanation
from conformance.explain.draw import Drawing

VOID = {"meta"}


class Balanced(HTMLParser):
    """Refuses what a page of its own must not have; collects its text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "img", "iframe"}
        names = {name for name, _ in attrs}
        assert not names & {"src", "href", "xlink:href", "onclick", "onload"}
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(html: str) -> Balanced:
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    assert not re.search(r"https?://|url\(|@import", html)
    return parser


class Shape(NamedTuple):
    """An element of a drawing, and what it says where it is pointed at."""

    at: Mapping[str, str]
    title: str


def shapes(drawing: Drawing, kind: str) -> list[Shape]:
    """The elements of a drawing whose class begins so."""
    found = [e for e in ET.fromstring(drawing.svg).iter() if e.get("class", "").split()[:1] == [kind]]  # noqa: S314
    return [Shape(e.attrib, e.findtext("title") or e.text or "") for e in found]


def column(explanation: Explanation, name: str) -> list[str]:
    assert explanation.values is not None
    at = explanation.values.columns.index(name)
    return [row.cells[at] for row in explanation.values.rows]
