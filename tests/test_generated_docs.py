"""The generated documents and pictures are those that `python -m docs` writes, and stand alone."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from docs.generate import generated, stale
from docs.speeds import SENTENCES, ranged

FILES = generated()
SVG = {name.removeprefix("images/"): text for name, text in FILES.items() if name.endswith(".svg")}


def test_no_document_and_no_picture_is_stale() -> None:
    assert stale(FILES) == [], "`python -m docs` writes these files again"


def test_ranges_in_sentences_are_those_of_the_tables() -> None:
    tables = FILES["performance.md"]
    for words in SENTENCES:
        sentence = rf"({words}\s)[\d.]+ to\s([\d.]+ times)"
        text = next(page for page in (FILES["../README.md"], tables) if re.search(sentence, page))
        assert ranged(re.sub(sentence, r"\g<1>99 to \g<2>", text), tables) == text


def test_a_changed_file_and_a_picture_of_nothing_are_stale() -> None:
    assert stale({**FILES, "operators.md": "changed"}) == ["operators.md"]
    left = {name: text for name, text in FILES.items() if "max-roi-pool" not in name}
    assert stale(left) == ["images/max-roi-pool-dark.svg", "images/max-roi-pool-light.svg"]


@pytest.mark.parametrize("name", sorted(SVG))
def test_a_picture_stands_alone_and_fits(name: str) -> None:
    root = ET.fromstring(SVG[name])  # noqa: S314  # our own
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {width:g} {height:g}"
    assert width == 800
    assert not re.search(r"<script|url\(|@import|href|var\(|{{", SVG[name])
    assert "sans-serif" in SVG[name]
    space = "{http://www.w3.org/2000/svg}"
    inner = [child for child in root if child.tag == f"{space}svg"]
    assert inner
    for child in inner:
        assert 0 <= float(child.attrib["x"]) <= width - float(child.attrib["width"])
        assert 0 <= float(child.attrib["y"]) <= height - float(child.attrib["height"])
    for text in root.iter(f"{space}text"):
        if text.attrib["class"] in ("title", "heading", "detail", "result", "hint"):
            # A letter is at most 0.6 of its size wide, on average and in wide fonts.
            size = {"title": 17, "heading": 15, "result": 13}.get(text.attrib["class"], 12)
            assert float(text.attrib["x"]) + 0.6 * size * len(text.text or "") < width
            assert 0 < float(text.attrib["y"]) < height
