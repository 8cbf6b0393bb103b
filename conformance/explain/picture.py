"""The pixel grid around a RoI with its box, its bins and its samples: geometry for the page to draw.

A pixel's centre has its index for a coordinate, so pixel 0 goes from -0.5 to 0.5.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conformance.expect import Floats
from conformance.explain.colour import diverging, sequential
from conformance.explain.conventions import Convention
from conformance.explain.grid import MARGIN, Cell, axis_labels, cell_size, short
from conformance.explain.table import number
from conformance.question import Placed
from ortops.reference.sampling import is_inside

MOST_PIXELS = 40
"""Along each axis."""

MOST_SAMPLES = 400
"""In one picture."""

_ON_AN_AXIS = 2000
_SMALL = 14


class Window(NamedTuple):
    """The part of an axis that is drawn: from pixel `first` to before pixel `stop`, either perhaps beyond the map."""

    first: int
    stop: int


class Located(NamedTuple):
    """Sample `i` of bin `p` of one axis."""

    p: int
    i: int
    c: float


class Line(NamedTuple):
    """Of a bin's edge."""

    x1: float
    y1: float
    x2: float
    y2: float


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Dot:
    """One sample; the marked ones are those of the worst element."""

    x: float
    y: float
    inside: bool
    marked: bool
    title: str


@dataclass(frozen=True, slots=True)
class Picture:
    """One convention's picture.

    left_out: what is not drawn, in words; empty where everything is.
    """

    width: int
    height: int
    cell: int
    pixels: tuple[Cell, ...]
    labels: tuple[tuple[float, float, str], ...]
    box: Box
    focus: Box | None
    lines: tuple[Line, ...]
    dots: tuple[Dot, ...]
    left_out: str


@dataclass(frozen=True, slots=True)
class Scene:
    """What the pictures of one RoI share.

    windows: of y and x.
    focus: the bin of the worst element, or None.
    data: [H, W], the feature map under the RoI, or None.
    """

    windows: tuple[Window, Window]
    focus: tuple[int, int] | None
    data: Floats | None


def window(all_placed: Sequence[Placed], own: Placed, focus: int | None) -> Window:
    """The window that shows a RoI under every convention, or the part of it around bin `focus`."""
    length = own.axis.length
    ends = [end for placed in all_placed for end in (placed.start, placed.end) if math.isfinite(end)] or [0.0]
    first = min(max(math.floor(min(ends)) - 1, -2), length - 2)
    stop = max(min(math.ceil(max(ends)) + 2, length + 2), 2)
    if length + 2 <= _SMALL:
        first, stop = min(first, -1), max(stop, length + 1)
    if stop - first > MOST_PIXELS:
        begin = min(own.start, own.end)
        centre = begin + MOST_PIXELS / 2 - 2 if focus is None else (own.edge(focus) + own.edge(focus + 1)) / 2
        middle = round(min(max(centre, float(first)), float(stop))) if math.isfinite(centre) else first
        first = min(max(middle - MOST_PIXELS // 2, first), stop - MOST_PIXELS)
        stop = first + MOST_PIXELS
    return Window(first, stop)


def picture(convention: Convention, r: int, scene: Scene, pixels: Floats | None, what: str) -> Picture:
    """RoI `r` as a convention has it.

    Args:
        convention: whose samples are drawn.
        r: number of the RoI.
        scene: what is around it.
        pixels: [H, W], what the grid shows, or None.
        what: name of `pixels`.
    """
    axes = convention.axes(r)
    (top, bottom), (left, right) = scene.windows
    size = cell_size(right - left)
    located, total = _samples(axes, scene)
    dots = tuple(_dot(convention, axes, y, x, scene, size) for y in located[0] for x in located[1])
    focus = scene.focus
    return Picture(
        2 * MARGIN + size * (right - left),
        2 * MARGIN + size * (bottom - top),
        size,
        _pixels(scene, axes, pixels, what, size, _crowded(located)),
        axis_labels(top, bottom - top, left, right - left, size),
        _box(scene, size, (axes[0].start, axes[0].end), (axes[1].start, axes[1].end)),
        focus and _box(scene, size, *((a.edge(p), a.edge(p + 1)) for a, p in zip(axes, focus, strict=True))),
        _lines(scene, axes, size),
        dots,
        _left_out(scene, axes, len(dots), total),
    )


def samples_between(placed: Placed, low: float, high: float, most: int = _ON_AN_AXIS) -> list[Located]:
    """The samples from `low` to `high`, at most `most`."""
    found: list[Located] = []
    for p in range(placed.axis.bins):
        located = (Located(p, i, placed.axis.coordinate(p, i)) for i in _indices(placed, p, low, high, most))
        found += [one for one in located if low <= one.c <= high]
        if len(found) >= most:
            break
    return found[:most]


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


def _samples(axes: tuple[Placed, Placed], scene: Scene) -> tuple[tuple[list[Located], list[Located]], int]:
    """Those of y and of x whose pairs are drawn, and how many pairs the RoI has."""
    y, x = (samples_between(a, w.first - 0.5, w.stop - 0.5) for a, w in zip(axes, scene.windows, strict=True))
    most_y = min(len(y), max(MOST_SAMPLES // max(len(x), 1), math.isqrt(MOST_SAMPLES)))
    most_x = min(len(x), MOST_SAMPLES // max(most_y, 1))
    focus = scene.focus or (None, None)
    total = math.prod(a.axis.bins * a.axis.per_bin for a in axes)
    return (_around(y, focus[0], most_y), _around(x, focus[1], most_x)), total


def _around(located: list[Located], p: int | None, most: int) -> list[Located]:
    """A run of them that has the samples of bin `p`, if it is among them."""
    at = next((k for k, one in enumerate(located) if one.p == p), 0)
    first = max(min(at, len(located) - most), 0)
    return located[first : first + most]


def _dot(convention: Convention, axes: tuple[Placed, Placed], y: Located, x: Located, scene: Scene, size: int) -> Dot:
    inside = all(is_inside(one.c, a.axis.length) for one, a in zip((y, x), axes, strict=True))
    head = f"bin ({y.p}, {x.p}) sample ({y.i}, {x.i}) at y {number(y.c)}, x {number(x.c)}"
    tail = _reads(axes, y.c, x.c, scene.data) if inside else f"off the map: {convention.sampling.outside:g}"
    (top, _), (left, _) = scene.windows
    return Dot(_at(x.c, left, size), _at(y.c, top, size), inside, (y.p, x.p) == scene.focus, f"{head}; {tail}")


def _reads(axes: tuple[Placed, Placed], y: float, x: float, data: Floats | None) -> str:
    """The pixels that a sample reads, their weights, and what it is."""
    corners = [
        (tap_y.pixel, tap_x.pixel, tap_y.weight * tap_x.weight)
        for tap_y in axes[0].axis.taps(y)
        for tap_x in axes[1].axis.taps(x)
        if tap_y.pixel is not None and tap_x.pixel is not None
    ]
    reads = "reads " + ", ".join(f"[{h}, {w}] x {number(weight)}" for h, w, weight in corners)
    if data is None:
        return reads
    value = 0.0
    for h, w, weight in corners:
        value += weight * float(data[h, w])
    return f"{reads}; value {number(value)}"


def _crowded(located: tuple[list[Located], list[Located]]) -> set[tuple[int, int]]:
    """The pixels with several samples, over which no number could be read."""
    rows, columns = (Counter(math.floor(one.c + 0.5) for one in along) for along in located)
    return {(h, w) for h in rows for w in columns if rows[h] * columns[w] > 1}


def _pixels(
    scene: Scene,
    axes: tuple[Placed, Placed],
    values: Floats | None,
    what: str,
    size: int,
    crowded: set[tuple[int, int]],
) -> tuple[Cell, ...]:
    ranges = [range(max(w.first, 0), min(w.stop, a.axis.length)) for w, a in zip(scene.windows, axes, strict=True)]
    rows, columns = ranges
    (top, _), (left, _) = scene.windows
    shown = [] if values is None else [float(values[h, w]) for h in rows for w in columns]
    colour = diverging(shown) if what.startswith("d") else sequential(shown)

    def cell(h: int, w: int) -> Cell:
        x, y = MARGIN + (w - left) * size, MARGIN + (h - top) * size
        if values is None:
            return Cell(x, y, "#ffffff", "", False, f"[{h}, {w}]")
        value = float(values[h, w])
        text = "" if (h, w) in crowded else short(value, size)
        return Cell(x, y, colour(value), text, False, f"{what} [{h}, {w}] {number(value)}")

    return tuple(cell(h, w) for h in rows for w in columns)


def _at(c: float, first: int, size: int) -> float:
    """Where a coordinate is in the picture."""
    return round(MARGIN + (c - first + 0.5) * size, 2)


def _clipped(c: float, view: Window) -> float:
    """A coordinate no further than a little beyond the window: its line then lies outside the picture, or at its rim."""
    return view.first - 0.5 if math.isnan(c) else min(max(c, view.first - 1.0), float(view.stop))


def _box(scene: Scene, size: int, ends_y: tuple[float, float], ends_x: tuple[float, float]) -> Box:
    (view_y, view_x) = scene.windows
    y1, y2 = sorted(_at(_clipped(end, view_y), view_y.first, size) for end in ends_y)
    x1, x2 = sorted(_at(_clipped(end, view_x), view_x.first, size) for end in ends_x)
    return Box(x1, y1, round(x2 - x1, 2), round(y2 - y1, 2))


def _lines(scene: Scene, axes: tuple[Placed, Placed], size: int) -> tuple[Line, ...]:
    """The edges between bins, those in the window."""
    box = _box(scene, size, (axes[0].start, axes[0].end), (axes[1].start, axes[1].end))
    view_y, view_x = scene.windows
    ys = [_at(c, view_y.first, size) for c in _edges(axes[0], view_y)]
    xs = [_at(c, view_x.first, size) for c in _edges(axes[1], view_x)]
    across = [Line(box.x, y, round(box.x + box.width, 2), y) for y in ys]
    down = [Line(x, box.y, x, round(box.y + box.height, 2)) for x in xs]
    return (*across, *down)


def _edges(placed: Placed, view: Window) -> list[float]:
    edges = (placed.edge(p) for p in range(1, min(placed.axis.bins, _ON_AN_AXIS)))
    return [c for c in edges if view.first - 0.5 <= c <= view.stop - 0.5]


def _left_out(scene: Scene, axes: tuple[Placed, Placed], drawn: int, total: int) -> str:
    parts = []
    for name, view, placed in zip("yx", scene.windows, axes, strict=True):
        low, high = sorted((placed.start, placed.end))
        hidden = low < view.first - 0.5 or high > view.stop - 0.5 or view.first > 0 or view.stop < placed.axis.length
        if hidden:
            parts.append(f"pixels {view.first} to {view.stop - 1} of the map's {placed.axis.length} along {name}")
    if drawn < total:
        parts.append(f"{drawn} of {total} samples")
    return f"Drawn are {', '.join(parts)}; the others are left out." if parts else ""
