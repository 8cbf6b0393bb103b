"""Drawings in SVG: heat maps of two axes of an output, and the pixel grid around a RoI with its bins and its samples.

A pixel's centre has its index for a coordinate, so pixel 0 goes from -0.5 to 0.5. Heat colours are all light enough for
black text, and no number stands under a sample.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from conformance.expected_values import Floats
from conformance.explain.conventions import Convention
from conformance.explain.tables import around, differences, number
from conformance.rois.question import Placed
from ortops.reference.sampling import is_inside

MOST_CELLS = 40
"""The most cells that a drawing has along each axis."""

MOST_SAMPLES = 400
"""The most samples that a drawing has."""

MARGIN = 22
_ON_AN_AXIS = 2000
_SMALL = 14
_WHITE, _BLUE, _RED, _NONE = (255, 255, 255), (112, 168, 224), (232, 128, 112), "#d4d4d4"

Colour = Callable[[float], str]

Corner = tuple[int, int, float]
"""A pixel that a sample reads, by row and column, and its weight."""


class Drawing(NamedTuple):
    """A titled SVG element, and in words what it leaves out, if anything."""

    title: str
    svg: Markup
    left_out: str = ""


def element(name: str, text: str = "", title: str = "", /, **attributes: object) -> str:
    """An SVG element that holds a text, shows a title where it is pointed at, and has attributes (`class_` for class)."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{value}"' for key, value in attributes.items())
    shown = f"<title>{html.escape(title)}</title>" if title else ""
    return f"<{name}{given}>{shown}{html.escape(text)}</{name}>"


def drawn(width: float, height: float, parts: Iterable[str]) -> Markup:
    """An SVG picture."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return Markup(f'<svg {size} role="img">{"".join(parts)}</svg>')  # noqa: S704  # made of `element` alone


def scale(values: Iterable[float], *, signed: bool) -> Colour:
    """Heat colours: from white at the least value to blue at the largest; of signed ones blue, white at 0, and red.

    What is not finite is grey.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0 if signed else 1.0)
    if signed:
        low, high = 0.0, max(abs(low), abs(high))
    half = high / 2 - low / 2

    def colour(value: float) -> str:
        if not math.isfinite(value):
            return _NONE
        share = (abs(value) / 2 - low / 2 if signed else value / 2 - low / 2) / half if half > 0 else 0.0
        end = _RED if signed and value > 0 else _BLUE
        return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(_WHITE, end, strict=True))

    return colour


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows and columns that a drawing shows, perhaps beyond the map, and where they are in it."""

    rows: range
    columns: range

    @property
    def size(self) -> int:
        """The edge of a cell, small enough that a row of cells fits on a page."""
        return max(12, min(44, 480 // max(len(self.columns), 1)))

    def y(self, c: float) -> float:
        """The position in the drawing of a coordinate along y."""
        return round(MARGIN + (c - self.rows.start + 0.5) * self.size, 2)

    def x(self, c: float) -> float:
        """The position in the drawing of a coordinate along x."""
        return round(MARGIN + (c - self.columns.start + 0.5) * self.size, 2)

    def value(self, i: int, j: int, value: float, down: float = 0.5) -> str:
        """A number in its cell, at the fraction `down` of the height; nothing where cells are too small for numbers."""
        text = f"{value + 0.0:.3g}"
        y = round(self.y(i - 0.5) + self.size * down, 1)
        return element("text", text, x=self.x(j), y=y, class_="value") if self.size >= 30 else ""

    def drawing(self, parts: Iterable[str]) -> Markup:
        """A picture of the parts with the numbers of rows and columns; of small cells every fifth has its number."""
        every = 1 if self.size >= 20 else 5
        beside = [(MARGIN / 2, self.y(i), i) for i in self.rows[::every]]
        above = [(self.x(j), MARGIN / 2, j) for j in self.columns[::every]]
        labels = [element("text", str(n), x=x, y=y, class_="label") for x, y, n in (*beside, *above)]
        width, height = (2 * MARGIN + self.size * len(shown) for shown in (self.columns, self.rows))
        return drawn(width, height, [*parts, *labels])


@dataclass(frozen=True, slots=True)
class Part:
    """Two axes of an output.

    title: which they are.
    expected, got: [rows, columns]; None where nothing but an error is expected, or where there is no answer.
    mark: row and column of the worst element, or None.
    tabled: whether a table of values has what matters of it, too.
    """

    title: str
    expected: Floats | None
    got: Floats | None
    mark: tuple[int, int] | None = None
    tabled: bool = False

    @property
    def named(self) -> dict[str, Floats]:
        """The expected values, the answered ones and their difference, by name, as far as they are known."""
        apart = None if self.got is None or self.expected is None else differences(self.got, self.expected)
        each = {"expected": self.expected, "got": self.got, "difference": apart}
        return {name: values for name, values in each.items() if values is not None}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = next(iter(self.named.values())).shape
        return rows, columns

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """One heat map, or three where there is an answer to compare: what came has the colours of what is expected."""
        rows, columns = (
            around(at, length, MOST_CELLS) for at, length in zip(self.mark or (0, 0), self.shape, strict=True)
        )
        left_out = ""
        if (len(rows), len(columns)) != self.shape:
            shown = f"rows {rows.start} to {rows.stop - 1} and columns {columns.start} to {columns.stop - 1}"
            left_out = f"Drawn are {shown} of {self.shape[0]} x {self.shape[1]}; the others are left out."
        frame = Frame(rows, columns)
        crops = {
            name: values[rows.start : rows.stop, columns.start : columns.stop] for name, values in self.named.items()
        }
        both = [value for name, crop in crops.items() if name != "difference" for value in crop.ravel().tolist()]

        def heat_map(name: str, crop: Floats) -> Markup:
            scaled = crop.ravel().tolist() if name == "difference" else both
            colour = scale(scaled, signed=name == "difference" or min(scaled, default=0.0) < 0)
            values = {(i, j): float(crop[i - rows.start, j - columns.start]) for i in rows for j in columns}
            squares = cells(frame, values, colour)
            mark = [_rectangle(frame, "worst", *((at - 0.5, at + 0.5) for at in self.mark))] if self.mark else []
            return frame.drawing([*squares, *mark, *(frame.value(*at, value) for at, value in values.items())])

        return tuple(Drawing(name, heat_map(name, crop), left_out) for name, crop in crops.items())


def cells(frame: Frame, values: Mapping[tuple[int, int], float], colour: Colour, what: str | None = "") -> list[str]:
    """The squares of elements; no colours and no values where nothing is known of them (`what` is None)."""
    squares = []
    for (i, j), value in values.items():
        fill, title = ("#ffffff", "") if what is None else (colour(value), f" {number(value)}")
        place = {"x": frame.x(j - 0.5), "y": frame.y(i - 0.5), "width": frame.size, "height": frame.size}
        squares.append(element("rect", "", f"{what or ''}[{i}, {j}]{title}", fill=fill, class_="cell", **place))
    return squares


class Located(NamedTuple):
    """Sample `i` of bin `p` of one axis."""

    p: int
    i: int
    c: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What the pictures of one RoI share.

    frame: the part of the grid that they show.
    focus: the bin of the worst element, or None.
    data: [H, W], the feature map under the RoI, or None.
    """

    frame: Frame
    focus: tuple[int, int] | None
    data: Floats | None


def window(all_placed: Sequence[Placed], own: Placed, focus: int | None) -> range:
    """The pixels that show a RoI under every convention, or the part of it around bin `focus`."""
    begin = min(own.start, own.end)
    centre = begin + MOST_CELLS / 2 - 2 if focus is None else (own.edge(focus) + own.edge(focus + 1)) / 2
    return window_of([end for placed in all_placed for end in (placed.start, placed.end)], own.axis.length, centre)


def window_of(ends: Iterable[float], length: int, centre: float) -> range:
    """The pixels from the least to the largest of the ends, as far as there is a map, or as many as fit about a centre."""
    finite = [end for end in ends if math.isfinite(end)] or [0.0]
    first = min(max(math.floor(min(finite)) - 1, -2), length - 2)
    stop = max(min(math.ceil(max(finite)) + 2, length + 2), 2)
    if length + 2 <= _SMALL:
        first, stop = min(first, -1), max(stop, length + 1)
    if stop - first > MOST_CELLS:
        middle = round(min(max(centre, float(first)), float(stop))) if math.isfinite(centre) else first
        first = min(max(middle - MOST_CELLS // 2, first), stop - MOST_CELLS)
        stop = first + MOST_CELLS
    return range(first, stop)


def picture(convention: Convention, r: int, scene: Scene, pixels: Floats | None, what: str) -> Drawing:
    """RoI `r` as a convention has it, over `pixels` [H, W], if there are any, whose name is `what`."""
    axes, frame = convention.axes(r), scene.frame
    y, x = located = _samples(axes, scene)
    windows = frame.rows, frame.columns
    rows, columns = (range(max(w.start, 0), min(w.stop, a.axis.length)) for w, a in zip(windows, axes, strict=True))
    values = {(h, w): math.nan if pixels is None else float(pixels[h, w]) for h in rows for w in columns}
    colour = scale(values.values(), signed=what.startswith("d"))
    parts = cells(frame, values, colour, None if pixels is None else f"{what} ")
    box = [_interval(w, a.start, a.end) for w, a in zip(windows, axes, strict=True)]
    parts += [_line(frame, c, c, *box[1]) for c in _edges(axes[0], frame.rows)]
    parts += [_line(frame, *box[0], c, c) for c in _edges(axes[1], frame.columns)]
    parts.append(_rectangle(frame, "roi", *box))
    if scene.focus:
        bins = zip(windows, axes, scene.focus, strict=True)
        parts.append(_rectangle(frame, "worst", *(_interval(w, a.edge(p), a.edge(p + 1)) for w, a, p in bins)))
    parts += [_dot(convention, axes, one, other, scene) for one in y for other in x]
    if pixels is not None:
        parts += [frame.value(*at, values[at], down) for at, down in _places(located, values).items()]
    return Drawing(convention.name, frame.drawing(parts), _left_out(frame, axes, len(y) * len(x)))


def _places(
    located: tuple[list[Located], list[Located]], values: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], float]:
    """How far down each pixel's number stands: away from a lone sample on the pixel. With several there is no number."""
    along: list[dict[int, list[float]]] = [{}, {}]
    for found, axis in zip(along, located, strict=True):
        for one in axis:
            found.setdefault(math.floor(one.c + 0.5), []).append(one.c)
    rows, columns = along
    places = {}
    for h, w in values:
        samples = len(rows.get(h, ())) * len(columns.get(w, ()))
        if samples <= 1:
            places[h, w] = 0.8 if samples and rows[h][0] < h else 0.22
    return places


def samples_between(placed: Placed, low: float, high: float, most: int = _ON_AN_AXIS) -> list[Located]:
    """The samples from `low` to `high`, at most `most`."""
    bins = range(placed.axis.bins)
    located = (Located(p, i, placed.axis.coordinate(p, i)) for p in bins for i in _indices(placed, p, low, high, most))
    return list(itertools.islice((one for one in located if low <= one.c <= high), most))


def _indices(placed: Placed, p: int, low: float, high: float, most: int) -> range:
    axis = placed.axis
    if axis.per_bin == 0:
        return range(0)
    start, step, _ = axis.progression(p)
    if not math.isfinite(start) or not math.isfinite(step):
        return range(0)
    if step == 0.0:
        return range(min(axis.per_bin, most))
    ends = sorted(((low - start) / step, (high - start) / step))
    first, last = (int(min(max(end, 0.0), float(axis.per_bin))) for end in (ends[0] - 2, ends[1] + 2))
    return range(first, min(last + 1, first + most, axis.per_bin))


def _samples(axes: tuple[Placed, Placed], scene: Scene) -> tuple[list[Located], list[Located]]:
    """The samples along y and along x whose pairs are drawn: a run that includes those of the focus, if there is one."""
    windows = scene.frame.rows, scene.frame.columns
    y, x = (samples_between(a, w.start - 0.5, w.stop - 0.5) for a, w in zip(axes, windows, strict=True))
    most_y = min(len(y), max(MOST_SAMPLES // max(len(x), 1), math.isqrt(MOST_SAMPLES)))
    most_x = min(len(x), MOST_SAMPLES // max(most_y, 1))

    def run(located: list[Located], p: int | None, most: int) -> list[Located]:
        at = next((k for k, one in enumerate(located) if one.p == p), 0)
        kept = around(at + most // 2, len(located), most)
        return located[kept.start : kept.stop]

    focus = scene.focus or (None, None)
    return run(y, focus[0], most_y), run(x, focus[1], most_x)


def _dot(convention: Convention, axes: tuple[Placed, Placed], y: Located, x: Located, scene: Scene) -> str:
    inside = all(is_inside(one.c, a.axis.length) for one, a in zip((y, x), axes, strict=True))
    head = f"bin ({y.p}, {x.p}) sample ({y.i}, {x.i}) at y {number(y.c)}, x {number(x.c)}"
    tail = reads(_corners(axes, y.c, x.c), scene.data) if inside else f"off the map: {convention.sampling.outside:g}"
    marked = " marked" if (y.p, x.p) == scene.focus else ""
    return dot(scene.frame, f"dot{'' if inside else ' outside'}{marked}", f"{head}; {tail}", y.c, x.c)


def _corners(axes: tuple[Placed, Placed], y: float, x: float) -> list[Corner]:
    taps = itertools.product(axes[0].axis.taps(y), axes[1].axis.taps(x))
    return [(a.pixel, b.pixel, a.weight * b.weight) for a, b in taps if a.pixel is not None and b.pixel is not None]


def reads(corners: Sequence[Corner], data: Floats | None) -> str:
    """The pixels that a sample reads, their weights, and the value of the sample."""
    text = "reads " + ", ".join(f"[{h}, {w}] x {number(weight)}" for h, w, weight in corners)
    if data is None:
        return text
    return f"{text}; value {number(sum(weight * float(data[h, w]) for h, w, weight in corners))}"


def _interval(view: range, *ends: float) -> tuple[float, float]:
    """Two ends in order, no further than a little beyond the frame: a line there lies outside the picture or at its rim."""
    clipped = [view.start - 0.5 if math.isnan(c) else min(max(c, view.start - 1.0), float(view.stop)) for c in ends]
    return min(clipped), max(clipped)


def _rectangle(frame: Frame, kind: str, ys: tuple[float, float], xs: tuple[float, float]) -> str:
    (y1, y2), (x1, x2) = map(frame.y, ys), map(frame.x, xs)
    return element("rect", x=x1, y=y1, width=round(x2 - x1, 2), height=round(y2 - y1, 2), class_=kind)


def _line(frame: Frame, y1: float, y2: float, x1: float, x2: float) -> str:
    return line(frame, "bin", (x1, y1), (x2, y2))


def line(frame: Frame, kind: str, first: tuple[float, float], last: tuple[float, float]) -> str:
    """A line from one point of the map, x and y, to another."""
    ends = {"x1": frame.x(first[0]), "y1": frame.y(first[1]), "x2": frame.x(last[0]), "y2": frame.y(last[1])}
    return element("line", **ends, class_=kind)


def dot(frame: Frame, kind: str, title: str, y: float, x: float) -> str:
    """A sample, with what it says where it is pointed at."""
    r = 3.5 if frame.size >= 20 else 2.5
    return element("circle", "", title, cx=frame.x(x), cy=frame.y(y), r=r, class_=kind)


def _edges(placed: Placed, view: range) -> list[float]:
    """The edges between bins in the frame."""
    edges = (placed.edge(p) for p in range(1, min(placed.axis.bins, _ON_AN_AXIS)))
    return [c for c in edges if view.start - 0.5 <= c <= view.stop - 0.5]


def _left_out(frame: Frame, axes: tuple[Placed, Placed], count: int) -> str:
    spans = [(placed.start, placed.end) for placed in axes]
    lengths = [placed.axis.length for placed in axes]
    return left_out(frame, spans, lengths, count, math.prod(a.axis.bins * a.axis.per_bin for a in axes))


def left_out(frame: Frame, spans: Sequence[tuple[float, float]], lengths: Sequence[int], count: int, total: int) -> str:
    """What a picture of a RoI leaves out, in words, if anything.

    Args:
        frame: the part of the grid that it shows.
        spans: from where to where the RoI goes along y and along x.
        lengths: of the map along y and along x.
        count: samples that it shows.
        total: samples that there are.
    """
    parts = []
    for name, view, span, length in zip("yx", (frame.rows, frame.columns), spans, lengths, strict=True):
        beyond = min(span) < view.start - 0.5 or max(span) > view.stop - 0.5
        if beyond or view.start > 0 or view.stop < length:
            parts.append(f"pixels {view.start} to {view.stop - 1} of the map's {length} along {name}")
    if count < total:
        parts.append(f"{count} of {total} samples")
    return f"Drawn are {', '.join(parts)}; the others are left out." if parts else ""
