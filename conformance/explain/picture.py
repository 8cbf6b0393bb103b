"""Some drawings of an explanation as one SVG file, which needs neither a style sheet nor a font of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from conformance.explain.draw import MARGIN, Image, element, markup
from conformance.explain.explanation import Explanation
from conformance.explain.page import environment

Theme = Literal["light", "dark"]

WIDTH = 800
"""The width of every file, in pixels: drawings are side by side as far as it allows."""

_PADDING = 14
_INNER = WIDTH - 2 * _PADDING
_GAP = 18
_SMALLEST, _LARGEST = 0.7, 1.2  # factors of a drawing beside another one
_NARROWEST = 250  # of a panel: its heading needs some width, too
_LETTER = 0.6  # the width of an average letter of a wide font, in units of the font size
_SIZES = {"title": 17, "heading": 15, "detail": 12, "result": 13, "hint": 12}


class Panel(NamedTuple):
    """One drawing with the text above it and below it."""

    heading: str
    detail: str
    image: Image
    result: str = ""

    @property
    def scale(self) -> float:
        """The factor by which the drawing is resized, so that two are side by side where that stays legible."""
        half = (_INNER - _GAP) / 2 / self.image.width
        return min(half, _LARGEST) if half >= _SMALLEST else min(_INNER / self.image.width, 1.0)

    @property
    def width(self) -> float:
        """The width in pixels."""
        return max(self.image.width * self.scale, _NARROWEST)

    @property
    def text_width(self) -> float:
        """The width of its texts, which begin above the first cell and may take half of the gap."""
        return self.width - MARGIN * self.scale + _GAP / 2


def panels(explanation: Explanation) -> tuple[Panel, ...]:
    """All drawings of an explanation in the order of its page: conventions, resampled axes, outputs."""
    found = [
        Panel(shown.convention.name, shown.convention.detail, shown.drawing.image, shown.result)
        for shown in explanation.conventions
    ]
    found += [Panel(axis.drawing.title, axis.drawing.left_out, axis.drawing.image) for axis in explanation.axes]
    for part in explanation.outputs:
        found += [Panel(f"{part.title}: {drawing.title}", drawing.left_out, drawing.image) for drawing in part.drawings]
    return tuple(found)


def chosen(explanation: Explanation, numbers: Sequence[int]) -> tuple[Panel, ...]:
    """The drawings of these numbers, counted from 1; without numbers all conventions and axes, or else the outputs.

    Raises:
        ValueError: the explanation has no drawing of a number, or none at all.
    """
    found = panels(explanation)
    if not found:
        raise ValueError("the case has no drawings")
    if numbers:
        for number in numbers:
            if not 1 <= number <= len(found):
                listed = ", ".join(f"{i} {panel.heading}" for i, panel in enumerate(found, 1))
                raise ValueError(f"drawing {number}: must be one of {listed}")
        return tuple(found[number - 1] for number in numbers)
    return found[: len(explanation.conventions) + len(explanation.axes)] or found


def render(title: str, detail: str, drawings: Sequence[Panel], hint: str = "", theme: Theme = "light") -> str:
    """An SVG file: a title, a line below it, the drawings, and a hint how to read them."""
    parts, y = list[str](), float(_PADDING)
    for kind, text in (("title", title), ("detail", detail)):
        lines, height = _text(kind, text, _PADDING, y, _INNER)
        parts += lines
        y += height
    for row in _rows(drawings):
        y += _GAP / 2
        parts += _row(row, y)
        y += _height(row) + _GAP / 2
    lines, height = _text("hint", hint, _PADDING, y, _INNER)
    parts += lines
    height = round(y + height + _PADDING)
    macros = environment().get_template("shapes.css.jinja").module
    style = str(macros.shapes(theme) + macros.words(theme)).strip()  # type: ignore[attr-defined]
    return (
        environment()
        .get_template("picture.svg.jinja")
        .render(
            title=title,
            width=WIDTH,
            height=height,
            style=style,
            elements=markup("\n".join(parts)),
        )
    )


def _rows(drawings: Sequence[Panel]) -> Iterator[list[Panel]]:
    """The drawings in rows that are no wider than the picture, unless a row has one drawing."""
    row = list[Panel]()
    for panel in drawings:
        if row and sum(one.width for one in row) + _GAP * len(row) + panel.width > _INNER + 1e-6:
            yield row
            row = []
        row.append(panel)
    if row:
        yield row


def _heights(row: Sequence[Panel]) -> tuple[float, float, float]:
    """The heights of the texts above the drawings of a row, of the drawings, and of the texts below."""
    above = max(sum(_text(k, t, 0, 0, one.text_width)[1] for k, t in _above(one)) for one in row)
    below = max(_text("result", one.result, 0, 0, one.text_width)[1] for one in row)
    return above + _GAP / 2, max(one.image.height * one.scale for one in row), below


def _height(row: Sequence[Panel]) -> float:
    return sum(_heights(row))


def _above(panel: Panel) -> tuple[tuple[str, str], ...]:
    return ("heading", panel.heading), ("detail", panel.detail)


def _row(row: Sequence[Panel], top: float) -> Iterator[str]:
    """The elements of a row of drawings, which share the free width evenly."""
    above, tall, _ = _heights(row)
    free = max(_INNER - sum(one.width for one in row), 0.0) / len(row)
    x = _PADDING + free / 2
    for panel in row:
        left, y = x + MARGIN * panel.scale, top
        for kind, text in _above(panel):
            lines, height = _text(kind, text, left, y, panel.text_width)
            yield from lines
            y += height
        width, height = (_rounded(length * panel.scale) for length in (panel.image.width, panel.image.height))
        yield panel.image.svg(x=_rounded(x), y=_rounded(top + above), width=width, height=height)
        yield from _text("result", panel.result, left, top + above + tall, panel.text_width)[0]
        x += panel.width + free


def _text(kind: str, text: str, x: float, y: float, width: float) -> tuple[list[str], float]:
    """The lines of a text that is wrapped to a width, and their height together."""
    size = _SIZES[kind]
    lines = textwrap.wrap(text, max(int(width / (size * _LETTER)), 1))
    step = size * 1.35
    elements = [
        element("text", line, x=_rounded(x), y=_rounded(y + step * (k + 0.75)), class_=f"words {kind}")
        for k, line in enumerate(lines)
    ]
    return elements, step * len(lines)


def _rounded(value: float) -> float:
    return round(value, 1)
