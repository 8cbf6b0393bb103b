"""Drawings in SVG: heat maps of two axes of an output, and the pixel grid around a RoI with its bins and its samples.

The coordinate of a pixel's centre is its index, so pixel 0 goes from -0.5 to 0.5. Colours are classes of
`shapes.css.jinja`, which has a light and a dark theme. Every heat colour leaves its number readable, and no number is
drawn under a sample.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from conformance.expected_values import Floats
from conformance.explain.conventions import RoiConvention
from conformance.explain.tables import around, differences, number
from conformance.geometry.rois import AxisGeometry
from ortops.reference.sampling import is_inside

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_CELLS = 40
"""The limit of cells in a drawing along each axis."""

MOST_SAMPLES = 400
"""The limit of samples in a drawing."""

MOST_IN_WORDS = 4
"""The limit of samples, and of bins, whose values are a line of text below a picture."""

MARGIN = 22
_ON_AN_AXIS = 2000
_SMALL = 12  # a map that is no longer is shown as a whole
_LARGE = 40  # pixels of a cell in which a short number has larger letters
_SHORT = 5
_DOWN = 0.5, 0.22, 0.78  # where a number may be in its cell, as fractions of the height
_TALL, _WIDE = 0.24, 0.45  # a sample covers a number whose middle is nearer than this, in cells

Heat = Callable[[float], tuple[str, float]]
"""A function from a value to a CSS class, which sets the hue, and an opacity."""

Corner = tuple[int, int, float]
"""A pixel that a sample reads, by row and column, and its weight."""


class Image(NamedTuple):
    """An SVG picture: its size in pixels, and its elements."""

    width: float
    height: float
    elements: Markup

    def svg(self, **attributes: object) -> Markup:
        """The picture as an `svg` element with these attributes beside its size."""
        box = {"viewBox": f"0 0 {self.width} {self.height}", "role": "img", **attributes}
        given = _attributes({"width": self.width, "height": self.height, **box})
        return markup(f"<svg{given}>{self.elements}</svg>")


class Drawing(NamedTuple):
    """A titled picture, and a sentence about what it leaves out, which may be empty."""

    title: str
    image: Image
    left_out: str = ""

    @property
    def svg(self) -> Markup:
        """The picture as an `svg` element."""
        return self.image.svg()


def element(name: str, text: str = "", title: str = "", /, **attributes: object) -> str:
    """An SVG element with a text, a tooltip (`title`) and attributes; `class_` stands for class, `_` for `-`."""
    given = _attributes({key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()})
    shown = f"<title>{html.escape(title)}</title>" if title else ""
    return f"<{name}{given}>{shown}{html.escape(text)}</{name}>"


def _attributes(given: Mapping[str, object]) -> str:
    return "".join(f' {key}="{html.escape(str(value))}"' for key, value in given.items())


def image(width: float, height: float, parts: Iterable[str]) -> Image:
    """A picture of SVG elements."""
    return Image(width, height, markup("".join(parts)))


def markup(elements: str) -> Markup:
    """Text made of `element` alone, which a template must not escape."""
    from markupsafe import Markup  # of the extra conformance: a case is judged without drawings

    return Markup(elements)  # noqa: S704


def heat_scale(values: Iterable[float], *, signed: bool) -> Heat:
    """A colour scale: blue, more opaque for larger values; signed values are blue below 0 and red above it.

    NaN and infinities are grey.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0 if signed else 1.0)
    if signed:
        low, high = 0.0, max(abs(low), abs(high))
    half = high / 2 - low / 2

    def heat(value: float) -> tuple[str, float]:
        if not math.isfinite(value):
            return "unknown", 1.0
        share = (abs(value) / 2 - low / 2 if signed else value / 2 - low / 2) / half if half > 0 else 0.0
        return "positive" if signed and value > 0 else "heat", round(share, 2)

    return heat


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows and columns that a drawing shows, which may lie off the map, and their positions in the drawing."""

    rows: range
    columns: range

    @property
    def size(self) -> int:
        """The edge of a cell in pixels, small enough that a row of cells fits on a page."""
        return max(12, min(52, 480 // max(len(self.columns), 1)))

    def y(self, c: float) -> float:
        """The position in the drawing of a coordinate along y."""
        return round(MARGIN + (c - self.rows.start + 0.5) * self.size, 2)

    def x(self, c: float) -> float:
        """The position in the drawing of a coordinate along x."""
        return round(MARGIN + (c - self.columns.start + 0.5) * self.size, 2)

    def value(self, i: int, j: int, value: float, down: float = 0.5) -> str:
        """A number in its cell, at the fraction `down` of the cell's height; empty if cells are too small for numbers."""
        text = f"{value + 0.0:.3g}"
        y = round(self.y(i - 0.5) + self.size * down, 1)
        kind = "value large" if self.size >= _LARGE and len(text) <= _SHORT else "value"
        return element("text", text, x=self.x(j), y=y, class_=kind) if self.has_numbers else ""

    @property
    def has_numbers(self) -> bool:
        """Whether cells are large enough for numbers."""
        return self.size >= 30

    def image(self, parts: Iterable[str]) -> Image:
        """A picture of the parts with labels of rows and columns: of each one, or of every fifth if cells are small."""
        every = 1 if self.size >= 20 else 5
        beside = [(MARGIN / 2, self.y(i), i) for i in self.rows[::every]]
        above = [(self.x(j), MARGIN / 2, j) for j in self.columns[::every]]
        labels = [element("text", str(n), x=x, y=y, class_="label") for x, y, n in (*beside, *above)]
        width, height = (2 * MARGIN + self.size * len(shown) for shown in (self.columns, self.rows))
        return image(width, height, [*parts, *labels])


@dataclass(frozen=True, slots=True)
class OutputSlice:
    """The last two axes of an output, at fixed indices of the others.

    title: the name of the output with these indices.
    expected, got: [rows, columns]. `expected` is None if the case expects an error, `got` if there is no output.
    mark: row and column of the worst element, or None.
    is_tabled: whether a table of the explanation has its values, too.
    """

    title: str
    expected: Floats | None
    got: Floats | None
    mark: tuple[int, int] | None = None
    is_tabled: bool = False

    @property
    def named(self) -> dict[str, Floats]:
        """The known ones of the expected values, the backend's values and their difference, by name."""
        apart = None if self.got is None or self.expected is None else differences(self.got, self.expected)
        each = {"expected": self.expected, "got": self.got, "difference": apart}
        return {name: values for name, values in each.items() if values is not None}

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        rows, columns = next(iter(self.named.values())).shape
        return rows, columns

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """A heat map of each of `named`. Expected values and the backend's share a colour scale."""
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

        def heat_map(name: str, crop: Floats) -> Image:
            scaled = crop.ravel().tolist() if name == "difference" else both
            heat = heat_scale(scaled, signed=name == "difference" or min(scaled, default=0.0) < 0)
            values = {(i, j): float(crop[i - rows.start, j - columns.start]) for i in rows for j in columns}
            squares = cells(frame, values, heat)
            mark = [rectangle(frame, "worst", *((at - 0.5, at + 0.5) for at in self.mark))] if self.mark else []
            return frame.image([*squares, *mark, *(frame.value(*at, value) for at, value in values.items())])

        return tuple(Drawing(name, heat_map(name, crop), left_out) for name, crop in crops.items())


def cells(frame: Frame, values: Mapping[tuple[int, int], float], heat: Heat, what: str | None = "") -> list[str]:
    """The squares of elements of the tensor `what`. None means that the values are unknown: squares have no colour then."""
    squares = []
    for (i, j), value in values.items():
        (hue, opacity), title = (("heat", 0.0), "") if what is None else (heat(value), f" {number(value)}")
        colour = {"class_": f"cell {hue}", "fill_opacity": opacity}
        place = {"x": frame.x(j - 0.5), "y": frame.y(i - 0.5), "width": frame.size, "height": frame.size}
        squares.append(element("rect", "", f"{what or ''}[{i}, {j}]{title}", **colour, **place))
    return squares


class AxisSample(NamedTuple):
    """Sample `i` of bin `p` along one axis, at the coordinate `c`."""

    p: int
    i: int
    c: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What the pictures of one RoI have in common.

    frame: the part of the grid that they show.
    focus: the bin of the worst element, or None.
    data: [H, W], the feature map under the RoI, or None.
    """

    frame: Frame
    focus: tuple[int, int] | None
    data: Floats | None


def window(geometries: Sequence[AxisGeometry], own: AxisGeometry, focus: int | None) -> range:
    """The pixels along one axis that show a RoI by every convention, or its part around bin `focus`."""
    begin = min(own.start, own.end)
    centre = begin + MOST_CELLS / 2 - 2 if focus is None else (own.edge(focus) + own.edge(focus + 1)) / 2
    return window_of(
        [end for geometry in geometries for end in (geometry.start, geometry.end)], own.axis.length, centre
    )


def window_of(ends: Iterable[float], length: int, centre: float) -> range:
    """The pixels between the smallest and the largest end, cut near the map's edges, or as many around the centre as fit."""
    finite = [end for end in ends if math.isfinite(end)] or [0.0]
    first = min(max(math.floor(min(finite) + 0.5) - 1, -2), length - 2)
    stop = max(min(math.ceil(max(finite) - 0.5) + 2, length + 2), 2)
    if length <= _SMALL:
        first, stop = min(first, 0), max(stop, length)
    if stop - first > MOST_CELLS:
        middle = round(min(max(centre, float(first)), float(stop))) if math.isfinite(centre) else first
        first = min(max(middle - MOST_CELLS // 2, first), stop - MOST_CELLS)
        stop = first + MOST_CELLS
    return range(first, stop)


def roi_drawing(convention: RoiConvention, r: int, scene: Scene, pixels: Floats | None, what: str) -> Drawing:
    """RoI `r` by a convention, drawn over `pixels` [H, W], which may be None, of the tensor `what`."""
    axes, frame = convention.axes(r), scene.frame
    y, x = located = _samples(axes, scene)
    windows = frame.rows, frame.columns
    rows, columns = (range(max(w.start, 0), min(w.stop, a.axis.length)) for w, a in zip(windows, axes, strict=True))
    values = {(h, w): math.nan if pixels is None else float(pixels[h, w]) for h in rows for w in columns}
    heat = heat_scale(values.values(), signed=what.startswith("d"))
    parts = cells(frame, values, heat, None if pixels is None else f"{what} ")
    box = [_interval(w, a.start, a.end) for w, a in zip(windows, axes, strict=True)]
    parts += [_line(frame, c, c, *box[1]) for c in _edges(axes[0], frame.rows)]
    parts += [_line(frame, *box[0], c, c) for c in _edges(axes[1], frame.columns)]
    parts.append(rectangle(frame, "roi", *box))
    if scene.focus:
        bins = zip(windows, axes, scene.focus, strict=True)
        parts.append(rectangle(frame, "worst", *(_interval(w, a.edge(p), a.edge(p + 1)) for w, a, p in bins)))
    parts += [_dot(convention, axes, one, other, scene) for one in y for other in x]
    if pixels is not None:
        ys, xs = ([one.c for one in found] for found in located)
        # Samples are a grid: one covers a number if a row of samples is near it, and a column.
        parts += numbers(
            frame, values, lambda i, j: any(covers(y, j, i, j) for y in ys) and any(covers(i, x, i, j) for x in xs)
        )
    return Drawing(convention.name, frame.image(parts), _left_out(frame, axes, len(y) * len(x)))


def numbers(
    frame: Frame, values: Mapping[tuple[int, int], float], is_covered: Callable[[float, float], bool]
) -> Iterator[str]:
    """The values of pixels: each in the middle, else near the top or bottom of its cell, where no sample covers it.

    Args:
        frame: the part of the grid that is shown.
        values: the values by row and column.
        is_covered: whether a sample covers a number whose middle is at these coordinates along y and along x.
    """
    for (i, j), value in values.items():
        free = (down for down in _DOWN if not is_covered(i - 0.5 + down, j)) if frame.has_numbers else iter(())
        if (down := next(free, None)) is not None:
            yield frame.value(i, j, value, down)


def covers(y: float, x: float, i: float, j: float) -> bool:
    """Whether a sample at y and x covers a number whose middle is at the coordinates i and j."""
    return abs(y - i) < _TALL and abs(x - j) < _WIDE


def samples_between(geometry: AxisGeometry, low: float, high: float, most: int = _ON_AN_AXIS) -> list[AxisSample]:
    """The samples between the coordinates `low` and `high`, at most `most`."""
    bins = range(geometry.axis.bins)
    located = (
        AxisSample(p, i, geometry.axis.coordinate(p, i)) for p in bins for i in _indices(geometry, p, low, high, most)
    )
    return list(itertools.islice((one for one in located if low <= one.c <= high), most))


def _indices(geometry: AxisGeometry, p: int, low: float, high: float, most: int) -> range:
    axis = geometry.axis
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


def _samples(axes: tuple[AxisGeometry, AxisGeometry], scene: Scene) -> tuple[list[AxisSample], list[AxisSample]]:
    """The samples along y and along x whose pairs are drawn. If they are too many, they are those around the focus."""
    windows = scene.frame.rows, scene.frame.columns
    y, x = (samples_between(a, w.start - 0.5, w.stop - 0.5) for a, w in zip(axes, windows, strict=True))
    most_y = min(len(y), max(MOST_SAMPLES // max(len(x), 1), math.isqrt(MOST_SAMPLES)))
    most_x = min(len(x), MOST_SAMPLES // max(most_y, 1))

    def run(located: list[AxisSample], p: int | None, most: int) -> list[AxisSample]:
        at = next((k for k, one in enumerate(located) if one.p == p), 0)
        kept = around(at + most // 2, len(located), most)
        return located[kept.start : kept.stop]

    focus = scene.focus or (None, None)
    return run(y, focus[0], most_y), run(x, focus[1], most_x)


def _dot(
    convention: RoiConvention, axes: tuple[AxisGeometry, AxisGeometry], y: AxisSample, x: AxisSample, scene: Scene
) -> str:
    inside = all(is_inside(one.c, a.axis.length) for one, a in zip((y, x), axes, strict=True))
    head = f"bin ({y.p}, {x.p}) sample ({y.i}, {x.i}) at y {number(y.c)}, x {number(x.c)}"
    tail = (
        reading_text(_corners(axes, y.c, x.c), scene.data)
        if inside
        else f"off the map: {convention.sampling.outside:g}"
    )
    marked = " marked" if (y.p, x.p) == scene.focus else ""
    return dot(scene.frame, f"dot{'' if inside else ' outside'}{marked}", f"{head}; {tail}", y.c, x.c)


def _corners(axes: tuple[AxisGeometry, AxisGeometry], y: float, x: float) -> list[Corner]:
    taps = itertools.product(axes[0].axis.taps(y), axes[1].axis.taps(x))
    return [(a.pixel, b.pixel, a.weight * b.weight) for a, b in taps if a.pixel is not None and b.pixel is not None]


def reading_text(corners: Sequence[Corner], data: Floats | None) -> str:
    """The text of a tooltip: the pixels that a sample reads, their weights, and the value of the sample."""
    text = "reads " + ", ".join(f"[{h}, {w}] x {number(weight)}" for h, w, weight in corners)
    return text if data is None else f"{text}; value {number(_interpolated(corners, data))}"


def _interpolated(corners: Sequence[Corner], data: Floats) -> float:
    return sum(weight * float(data[h, w]) for h, w, weight in corners)


def result_of(name: str, output: Floats | None, samples: Sequence[float] = ()) -> str:
    """The line below a picture with the values of few samples and bins; empty if there are more.

    Args:
        name: the name of the output.
        output: [rows, columns], the bins of one RoI and channel; None if they are not computed.
        samples: the values of the samples, for a RoI of one bin.
    """
    if output is None or output.size > MOST_IN_WORDS:
        return ""
    rows = [", ".join(map(number, row)) for row in output.tolist()]
    values = rows[0] if output.size == 1 else f"[{', '.join(f'[{row}]' for row in rows)}]"
    given = f"samples {', '.join(map(number, samples))}: " if samples and output.size == 1 else ""
    return f"{given}{name} = {values}"


def sample_values(convention: RoiConvention, r: int, data: Floats | None) -> list[float]:
    """The values of all samples of RoI `r` on the map `data` [H, W].

    The list is empty if there are more than `MOST_IN_WORDS`, or if the mode is max, which does not interpolate samples.
    """
    axes = convention.axes(r)
    is_max = convention.sampling.mode == "max"
    if data is None or is_max or math.prod(geometry.samples for geometry in axes) > MOST_IN_WORDS:
        return []
    along = [[a.axis.coordinate(p, i) for p in range(a.axis.bins) for i in range(a.axis.per_bin)] for a in axes]
    return [
        _interpolated(_corners(axes, y, x), data)
        if is_inside(y, axes[0].axis.length) and is_inside(x, axes[1].axis.length)
        else convention.sampling.outside
        for y, x in itertools.product(*along)
    ]


def _interval(view: range, *ends: float) -> tuple[float, float]:
    """Two ends in ascending order, clipped to just outside the frame, where a line is invisible or at the rim."""
    clipped = [view.start - 0.5 if math.isnan(c) else min(max(c, view.start - 1.0), float(view.stop)) for c in ends]
    return min(clipped), max(clipped)


def rectangle(frame: Frame, kind: str, ys: tuple[float, float], xs: tuple[float, float]) -> str:
    """A rectangle of a CSS class, between two coordinates of the map along y and two along x."""
    (y1, y2), (x1, x2) = map(frame.y, ys), map(frame.x, xs)
    return element("rect", x=x1, y=y1, width=round(x2 - x1, 2), height=round(y2 - y1, 2), class_=kind)


def _line(frame: Frame, y1: float, y2: float, x1: float, x2: float) -> str:
    return line(frame, "bin", (x1, y1), (x2, y2))


def line(frame: Frame, kind: str, first: tuple[float, float], last: tuple[float, float]) -> str:
    """A line from one point of the map, x and y, to another."""
    ends = {"x1": frame.x(first[0]), "y1": frame.y(first[1]), "x2": frame.x(last[0]), "y2": frame.y(last[1])}
    return element("line", **ends, class_=kind)


def dot(frame: Frame, kind: str, title: str, y: float, x: float) -> str:
    """A sample with its tooltip."""
    r = 3.5 if frame.size >= 20 else 2.5
    return element("circle", "", title, cx=frame.x(x), cy=frame.y(y), r=r, class_=kind)


def _edges(geometry: AxisGeometry, view: range) -> list[float]:
    """The coordinates of those edges between bins that lie in the frame."""
    edges = (geometry.edge(p) for p in range(1, min(geometry.axis.bins, _ON_AN_AXIS)))
    return [c for c in edges if view.start - 0.5 <= c <= view.stop - 0.5]


def _left_out(frame: Frame, axes: tuple[AxisGeometry, AxisGeometry], count: int) -> str:
    spans = [(geometry.start, geometry.end) for geometry in axes]
    lengths = [geometry.axis.length for geometry in axes]
    return left_out(frame, spans, lengths, count, math.prod(a.axis.bins * a.axis.per_bin for a in axes))


def left_out(
    frame: Frame,
    spans: Sequence[tuple[float, float]],
    lengths: Sequence[int],
    count: int,
    total: int,
    what: str = "samples",
) -> str:
    """What a picture of a RoI leaves out, as a sentence; empty if it shows all.

    Args:
        frame: the part of the grid that it shows.
        spans: the first and the last coordinate of the RoI, along y and along x.
        lengths: the lengths of the map along y and along x.
        count: how many samples it shows.
        total: how many samples there are.
        what: the noun for what is counted.
    """
    parts = []
    for name, view, span, length in zip("yx", (frame.rows, frame.columns), spans, lengths, strict=True):
        beyond = min(span) < view.start - 0.5 or max(span) > view.stop - 0.5
        if beyond or view.start > 0 or view.stop < length:
            parts.append(f"pixels {view.start} to {view.stop - 1} of the map's {length} along {name}")
    if count < total:
        parts.append(f"{count} of {total} {what}")
    return f"Drawn are {', '.join(parts)}; the others are left out." if parts else ""
