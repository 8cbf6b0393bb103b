"""The drawing of an explanation: a map of pixels, and on it a RoI with its bins and its samples, by one convention.

The coordinate of a pixel's centre is its index, so pixel 0 goes from -0.5 to 0.5. A point is y before x.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from conformance.expected_values import Floats

Theme = Literal["light", "dark"]
Point = tuple[float, float]

WIDTH = 800
"""The width of every picture, in pixels."""

MAX_CELLS = 40
"""The largest number of pixels of the map that a drawing shows along an axis."""

MAX_SAMPLES = 400
"""The largest number of samples in a drawing; of more, it shows none."""

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
_STYLE = """
svg {{ background: {paper}; }}
text {{ font: 12px sans-serif; fill: {quiet}; }}
text.title {{ font-size: 17px; font-weight: 600; fill: {ink}; }}
text.heading {{ font-size: 15px; font-weight: 600; fill: {ink}; }}
text.result {{ font-size: 13px; font-weight: 600; fill: {accent}; }}
text.label, text.value {{ font-size: 11px; text-anchor: middle; dominant-baseline: central; }}
text.value {{ fill: {ink}; stroke: {paper}; stroke-width: 3px; stroke-opacity: .8; paint-order: stroke; }}
.cell {{ fill: {heat}; stroke: {grid}; stroke-width: .5; }}
.cell.unknown {{ fill: {unknown}; }}
.roi, .bin, .block, .worst {{ fill: none; stroke: {ink}; stroke-width: 2; }}
.bin {{ stroke-width: 1; stroke-dasharray: 4 3; }}
.block {{ stroke: {accent}; }}
.worst {{ stroke: {marked}; stroke-width: 2.5; }}
.sample {{ fill: {sample}; stroke: {paper}; }}
.outside {{ fill: {paper}; stroke: {sample}; stroke-width: 1.4; }}
.largest {{ fill: none; stroke: {sample}; stroke-width: 2; }}
"""
_SIZES = {"title": 17, "heading": 15, "detail": 12, "result": 13, "hint": 12}
_PADDING, _MARGIN, _GAP = 14, 22, 18
_LETTER = 0.6  # the width of an average letter of a wide font, in units of the font size
_SMALL = 12  # pixels: a map of at most this length is shown as a whole
_SMALLEST_WITH_NUMBER = 30  # pixels of a cell


class Sample(NamedTuple):
    """A point that the operator reads; `largest` is for the pixel that a maximum takes."""

    y: float
    x: float
    kind: Literal["sample", "sample outside", "largest"] = "sample"


class Outline(NamedTuple):
    """A polygon, or a line between two points."""

    kind: Literal["roi", "bin", "block", "worst"]
    corners: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Drawing:
    """One convention on the map.

    name, detail: the lines above it.
    map_size: height and width of the map.
    pixels: [H, W], the values of the map; None if the case does not have them.
    result: the line below it; empty for none.
    """

    name: str
    detail: str
    map_size: tuple[int, int]
    pixels: Floats | None
    outlines: Sequence[Outline]
    samples: Sequence[Sample]
    result: str = ""


class _Frame(NamedTuple):
    """The rows and columns of pixels that a drawing shows, which may lie off the map, and the edge of a cell in pixels."""

    rows: range
    columns: range
    cell: float

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the drawing."""
        return _MARGIN + len(self.columns) * self.cell, _MARGIN + len(self.rows) * self.cell

    def at(self, point: Point) -> Point:
        """The position x, y in the drawing of a point of the map; one that is far away is moved to just off the drawing."""
        views = (self.columns, point[1]), (self.rows, point[0])
        near = (min(max(c, view.start - 99.0), view.stop + 99.0) if c == c else -99.0 for view, c in views)
        x, y = (
            round(_MARGIN + (c - view.start + 0.5) * self.cell, 1) for (view, _), c in zip(views, near, strict=True)
        )
        return x, y


def picture(title: str, detail: str, drawings: Sequence[Drawing], hint: str = "", theme: Theme = "light") -> str:
    """An SVG file: a title, a line below it, the drawings, two in a row, and a hint how to read them."""
    parts, y = list[str](), float(_PADDING)

    def write(kind: str, text: str, x: float, top: float, width: float) -> float:
        lines, height = _text(kind, text, x, top, width)
        parts.extend(lines)
        return height

    whole = WIDTH - 2 * _PADDING
    y += write("title", title, _PADDING, y, whole)
    y += write("detail", detail, _PADDING, y, whole)
    width = whole if len(drawings) == 1 else (whole - _GAP) / 2
    frame = _frame(drawings, width)
    box = dict(zip(("width", "height"), (round(one, 1) for one in frame.size), strict=True))
    for row in (drawings[k : k + 2] for k in range(0, len(drawings), 2)):
        y += _GAP / 2
        tops, bottoms = [], []
        for k, drawing in enumerate(row):
            x = _PADDING + _MARGIN + k * (width + _GAP)
            above = write("heading", drawing.name, x, y, width - _MARGIN)
            tops.append(y + above + write("detail", drawing.detail, x, y + above, width - _MARGIN))
        top = max(tops) + _GAP / 3
        for k, drawing in enumerate(row):
            x = _PADDING + k * (width + _GAP)
            elements = "".join(_elements(drawing, frame))
            parts.append(f"<svg{_attributes({'x': x, 'y': round(top, 1), **box})}>{elements}</svg>")
            bottom = top + frame.size[1] + 4
            bottoms.append(bottom + write("result", drawing.result, x + _MARGIN, bottom, width - _MARGIN))
        y = max(bottoms) + _GAP / 2
    y += write("hint", hint, _PADDING, y, whole)
    size = {"width": WIDTH, "height": round(y + _PADDING), "viewBox": f"0 0 {WIDTH} {round(y + _PADDING)}"}
    style = _STYLE.format(**_COLOURS[theme]).strip()
    head = f'<svg xmlns="http://www.w3.org/2000/svg"{_attributes(size)} role="img">'
    return "\n".join([head, f"<title>{html.escape(title)}</title>", f"<style>\n{style}\n</style>", *parts, "</svg>\n"])


def _frame(drawings: Sequence[Drawing], width: float) -> _Frame:
    """The frame of all drawings, which are of one map and show the same pixels."""
    outlines = [outline for drawing in drawings for outline in drawing.outlines]
    points = [corner for outline in outlines for corner in outline.corners]
    points += [(sample.y, sample.x) for drawing in drawings for sample in drawing.samples]
    middle = next((outline.corners[0] for outline in outlines if outline.kind == "worst"), points[0])
    lengths = np.max([drawing.map_size for drawing in drawings], axis=0).tolist()
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


def _elements(drawing: Drawing, frame: _Frame) -> Iterator[str]:
    """The elements of a drawing from the bottom to the top."""
    yield from _labels(frame)
    pixels = [
        (i, j)
        for i in frame.rows
        for j in frame.columns
        if 0 <= i < drawing.map_size[0] and 0 <= j < drawing.map_size[1]
    ]
    values = {at: math.nan if drawing.pixels is None else float(drawing.pixels[at]) for at in pixels}
    finite = [value for value in values.values() if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    for at, value in values.items():
        x, y = frame.at((at[0] - 0.5, at[1] - 0.5))
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high > low else 0.0
        kind, opacity = ("cell", round(share, 2)) if math.isfinite(value) else ("cell unknown", 1.0)
        opacity = 0.0 if drawing.pixels is None else opacity
        size = {"width": frame.cell, "height": frame.cell, "class": kind, "fill-opacity": opacity}
        yield f"<rect{_attributes({'x': x, 'y': y, **size})}/>"
    for outline in drawing.outlines:
        points = " ".join("{:g},{:g}".format(*frame.at(corner)) for corner in outline.corners)
        tag = "polygon" if len(outline.corners) > 2 else "polyline"
        yield f"<{tag}{_attributes({'points': points, 'class': outline.kind})}/>"
    for sample in drawing.samples:
        x, y = frame.at((sample.y, sample.x))
        r = frame.cell * 0.3 if sample.kind == "largest" else 3.5 if frame.cell >= 20 else 2.5
        title = f"<title>y {number(sample.y)}, x {number(sample.x)}</title>"
        yield f"<circle{_attributes({'cx': x, 'cy': y, 'r': round(r, 1), 'class': sample.kind})}>{title}</circle>"
    if drawing.pixels is not None and frame.cell >= _SMALLEST_WITH_NUMBER:
        for (i, j), value in values.items():
            free = next((y for y in (i, i - 0.3, i + 0.3) if not _is_covered((y, j), drawing.samples)), None)
            if free is not None:
                yield _centred("value", f"{value + 0.0:.3g}", frame.at((free, j)))


def _is_covered(point: Point, samples: Iterable[Sample]) -> bool:
    """Whether a sample covers a number whose middle is at this point."""
    return any(abs(s.y - point[0]) < 0.24 and abs(s.x - point[1]) < 0.45 for s in samples if s.kind != "largest")


def _labels(frame: _Frame) -> Iterator[str]:
    """The numbers of rows and columns: of each one, or of every fifth if cells are small."""
    every = 1 if frame.cell >= 20 else 5
    for j in frame.columns:
        if j % every == 0:
            yield _centred("label", str(j), (frame.at((0, j))[0], _MARGIN / 2))
    for i in frame.rows:
        if i % every == 0:
            yield _centred("label", str(i), (_MARGIN / 2, frame.at((i, 0))[1]))


def _centred(kind: str, text: str, at: Point) -> str:
    return f"<text{_attributes({'x': at[0], 'y': at[1], 'class': kind})}>{html.escape(text)}</text>"


def _text(kind: str, text: str, x: float, y: float, width: float) -> tuple[list[str], float]:
    """The lines of a text that is wrapped to a width, and their height together."""
    size = _SIZES[kind]
    lines = textwrap.wrap(text, max(int(width / (size * _LETTER)), 1))
    step = size * 1.35
    places = ({"x": round(x, 1), "y": round(y + step * (k + 0.75), 1), "class": kind} for k in range(len(lines)))
    elements = [f"<text{_attributes(at)}>{html.escape(line)}</text>" for at, line in zip(places, lines, strict=True)]
    return elements, step * len(lines)


def _attributes(given: Mapping[str, object]) -> str:
    return "".join(f' {key}="{html.escape(str(value))}"' for key, value in given.items())


def number(value: float) -> str:
    """A value as drawings and tables print it: with 6 significant digits."""
    return "nan" if math.isnan(value) else f"{value + 0.0:.6g}"
