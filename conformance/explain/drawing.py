# SPDX-License-Identifier: MIT OR Apache-2.0
"""Drawings of a map of pixels, and on it a RoI with its bins and samples, as SVG files."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from conformance.families.view import Drawing, Point, number

Theme = Literal["light", "dark"]

WIDTH = 800
"""The width of every picture, in pixels."""

MAX_CELLS = 40
"""The largest number of pixels of the map that a drawing shows along an axis."""

_COLOURS = {
    "light": {
        "paper": "#ffffff", "ink": "#1f2328", "quiet": "#59606a", "grid": "#c4c8cd", "heat": "#70a8e0",
        "unknown": "#d4d4d4", "sample": "#0b6b3a", "marked": "#c0142c", "accent": "#24557f",
    },
    "dark": {
        "paper": "#0d1117", "ink": "#f0f6fc", "quiet": "#9aa4af", "grid": "#3d444d", "heat": "#2f6db0",
        "unknown": "#454c54", "sample": "#4ac26b", "marked": "#ff7b72", "accent": "#79b8f2",
    },
}  # fmt: skip
_SIZES = {"title": 17, "heading": 15, "detail": 12, "result": 13, "hint": 12}
_PADDING, _MARGIN, _GAP = 14, 22, 18
_LETTER = 0.6  # the width of an average letter of a wide font, in units of the font size
_SMALL = 12  # pixels: a map of at most this length is shown as a whole
_SMALLEST_WITH_NUMBER = 30  # pixels of a cell
_LINE_HEIGHT, _DIGIT = 9, 8  # pixels: the height of a pixel's value, and the width of a character, with a margin
_DOT = 3.5  # pixels: the radius of a sample


class _Frame(NamedTuple):
    """The rows and columns of pixels that a drawing shows, which may lie off the map, and the size of a cell in pixels."""

    rows: range
    columns: range
    cell: float

    @property
    def width(self) -> float:
        """The width of the drawing."""
        return _MARGIN + len(self.columns) * self.cell

    @property
    def height(self) -> float:
        """The height of the drawing."""
        return _MARGIN + len(self.rows) * self.cell

    def at(self, point: Point) -> Point:
        """The position x, y of a point of the map in the drawing. A distant point is moved to just outside the drawing."""
        views = (self.columns, point[1]), (self.rows, point[0])
        near = [min(max(c, view.start - 99.0), view.stop + 99.0) if c == c else -99.0 for view, c in views]
        starts = self.columns.start, self.rows.start
        x, y = (round(_MARGIN + (c - start + 0.5) * self.cell, 1) for c, start in zip(near, starts, strict=True))
        return x, y


class _Box(NamedTuple):
    """Half the height and half the width of a pixel's value, in units of a cell."""

    height: float
    width: float

    def places(self, pixel: Point) -> list[Point]:
        """Where the value may be within its pixel, the places nearest to the centre first."""
        rooms = (max(0.48 - half, 0.0) for half in self)
        offsets = itertools.product(*([room * k / 4 for k in range(-4, 5)] for room in rooms))
        return [(pixel[0] + y, pixel[1] + x) for y, x in sorted(offsets, key=lambda at: (math.hypot(*at), at))]

    def is_covered(self, at: Point, drawing: Drawing, cell: float) -> bool:
        """Whether a sample or a line covers the value."""
        dot = (_DOT + 1) / cell
        dots = (sample for sample in drawing.samples if sample.kind != "largest")
        if any(
            abs(sample.y - at[0]) < self.height + dot and abs(sample.x - at[1]) < self.width + dot for sample in dots
        ):
            return True
        return any(
            self._is_crossed(at, start, end)
            for outline in drawing.outlines
            for start, end in zip(outline.corners, (*outline.corners[1:], outline.corners[0]), strict=True)
        )

    def _is_crossed(self, at: Point, start: Point, end: Point) -> bool:
        """Whether the line between two points crosses the value."""
        first, last = 0.0, 1.0  # the part of the line that is within the box along both axes
        for middle, half, a, b in zip(at, self, start, end, strict=True):
            if a == b:
                if abs(a - middle) >= half:
                    return False
                continue
            near, far = sorted(((middle - half - a) / (b - a), (middle + half - a) / (b - a)))
            first, last = max(first, near), min(last, far)
        return first < last


class _Text(NamedTuple):
    kind: str
    text: str
    x: float
    y: float


def picture(title: str, detail: str, drawings: Sequence[Drawing], theme: Theme = "light") -> str:
    """An SVG file: a title, a line below it, one drawing or several of one map side by side, and how to read them."""
    import jinja2  # of the extra conformance

    texts: list[_Text] = []

    def write(kind: str, text: str, x: float, y: float, width: float) -> float:
        """Add a text that is wrapped to a width, and return where it ends."""
        lines = textwrap.wrap(text, max(int(width / (_SIZES[kind] * _LETTER)), 1))
        step = _SIZES[kind] * 1.35
        texts.extend(_Text(kind, line, x, y + step * (k + 0.75)) for k, line in enumerate(lines))
        return y + step * len(lines)

    whole = WIDTH - 2 * _PADDING
    width = (whole - _GAP * (len(drawings) - 1)) / len(drawings)
    frame, inner = _frame(drawings, width), width - _MARGIN
    placed = [(drawing, _PADDING + k * (width + _GAP)) for k, drawing in enumerate(drawings)]
    y = write("detail", detail, _PADDING, write("title", title, _PADDING, _PADDING, whole), whole) + _GAP / 2
    headed = [(drawing, x + _MARGIN, write("heading", drawing.name, x + _MARGIN, y, inner)) for drawing, x in placed]
    top = max(write("detail", drawing.detail, x, below, inner) for drawing, x, below in headed) + _GAP / 3
    bottom = top + frame.height + 4
    y = max(write("result", drawing.result, x + _MARGIN, bottom, inner) for drawing, x in placed) + _GAP / 2
    hint = dict.fromkeys(sentence for drawing in drawings for sentence in drawing.hint)
    y = write("hint", " ".join(hint), _PADDING, y, whole)
    loader = jinja2.PackageLoader("conformance", "explain")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    panels = [{"x": x, "y": top, "frame": frame, **_panel(drawing, frame)} for drawing, x in placed]
    return environment.get_template("picture.svg.jinja").render(
        title=title, texts=texts, panels=panels, colour=_COLOURS[theme], width=WIDTH, height=round(y + _PADDING)
    )


def _frame(drawings: Sequence[Drawing], width: float) -> _Frame:
    """The frame of all drawings, which are of one map and show the same pixels."""
    outlines = [outline for drawing in drawings for outline in drawing.outlines]
    points = [corner for outline in outlines for corner in outline.corners]
    points += [(sample.y, sample.x) for drawing in drawings for sample in drawing.samples]
    middle = next((outline.corners[0] for outline in outlines if outline.kind == "worst"), points[0])
    lengths = drawings[0].map_size
    rows, columns = (_view([point[k] for point in points], lengths[k], middle[k]) for k in (0, 1))
    return _Frame(rows, columns, round(min(52.0, (width - _MARGIN) / len(columns)), 2))


def _view(ends: Iterable[float], length: int, middle: float) -> range:
    """The pixels along an axis that show these coordinates, no further than two pixels off the map."""
    near = [min(max(end, -2.5), length + 1.5) for end in ends if not math.isnan(end)] or [0.0]
    first, stop = math.floor(min(near) + 0.5), math.ceil(max(near) + 0.5)
    first, stop = min(first, length - 1), max(stop, first + 1, 1)
    if length <= _SMALL:
        first, stop = min(first, 0), max(stop, length)
    if stop - first > MAX_CELLS:
        around = middle if math.isfinite(middle) else first
        first = round(min(max(around - MAX_CELLS / 2, first), stop - MAX_CELLS))
        stop = first + MAX_CELLS
    return range(first, stop)


def _panel(drawing: Drawing, frame: _Frame) -> dict[str, Any]:
    height, width = drawing.map_size
    on_map = [(i, j) for i in frame.rows if 0 <= i < height for j in frame.columns if 0 <= j < width]
    values = {at: math.nan if drawing.pixels is None else float(drawing.pixels[at]) for at in on_map}
    texts = list(_labels(frame))
    if drawing.pixels is not None and frame.cell >= _SMALLEST_WITH_NUMBER:
        for (i, j), value in values.items():
            text = f"{value + 0.0:.3g}"
            box = _Box((_LINE_HEIGHT + 2) / 2 / frame.cell, (len(text) * _DIGIT + 3) / 2 / frame.cell)
            free = next((at for at in box.places((i, j)) if not box.is_covered(at, drawing, frame.cell)), None)
            if free is not None:
                texts.append(("value", text, frame.at(free)))
    dot, ring = _DOT if frame.cell >= 20 else 2.5, round(frame.cell * 0.3, 1)
    corners = [frame.at((i - 0.5, j - 0.5)) for i, j in values]
    return {
        "cells": [(at, *look) for at, look in zip(corners, _heat(values.values()), strict=True)],
        "outlines": [(outline.kind, [frame.at(corner) for corner in outline.corners]) for outline in drawing.outlines],
        "samples": [
            (frame.at((y, x)), kind, ring if kind == "largest" else dot, f"y {number(y)}, x {number(x)}")
            for y, x, kind in drawing.samples
        ],
        "texts": texts,
    }


def _heat(values: Iterable[float]) -> Iterator[tuple[str, float]]:
    """The class and the opacity of each pixel: the larger its value, the stronger its colour."""
    values = list(values)
    finite = [value / 2 for value in values if math.isfinite(value)]  # halves, so that no difference overflows
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    for value in values:
        if math.isfinite(value):
            yield "cell", round((value / 2 - low) / (high - low), 2) if high > low else 0.0
        else:
            yield "cell unknown", 1.0 if finite else 0.0


def _labels(frame: _Frame) -> Iterator[tuple[str, str, Point]]:
    """The numbers of rows and columns, or of every fifth row and column if cells are small."""
    every = 1 if frame.cell >= 20 else 5
    yield from (("label", str(j), (frame.at((0, j))[0], _MARGIN / 2)) for j in frame.columns if j % every == 0)
    yield from (("label", str(i), (_MARGIN / 2, frame.at((i, 0))[1])) for i in frame.rows if i % every == 0)
