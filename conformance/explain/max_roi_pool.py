"""The picture of a RoI of MaxRoiPool: the pixels of each bin, and the largest one, whose value the bin takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from conformance.expected_values import Floats
from conformance.explain.draw import (
    MOST_SAMPLES,
    Drawing,
    Frame,
    cells,
    heat_scale,
    left_out,
    numbers,
    rectangle,
    result_of,
    window_of,
)
from conformance.explain.draw import element as svg_element
from conformance.explain.explanation import ConventionDrawing

HINT = (
    "The coordinate of a pixel's centre is its index. The dashed box is the scaled RoI. Each outline is the block of "
    "pixels of one bin, and a ring marks its largest pixel. Neighbouring bins may share pixels."
)

_INSETS = 3, 7
"""How far an outline is inside of its pixels, in turn: neighbours that share pixels then do not cover each other."""


class Side(NamedTuple):
    """A RoI along one axis of the map.

    ends: its scaled ends, before they are rounded to pixels.
    bins: the pixels of each bin, as far as they are on the map.
    length: the pixels of the map.
    """

    ends: tuple[float, float]
    bins: Sequence[slice]
    length: int


class MaxRoiPoolConvention(NamedTuple):
    """The only way to read a case of MaxRoiPool, in the form of a convention."""

    name: str = "MaxRoiPool"
    short: str = "MaxRoiPool"
    detail: str = "ends are rounded to whole pixels; a bin is its largest pixel"
    is_own: bool = True
    notes: tuple[str, ...] = ()


def bins_shown(x: Floats, sides: tuple[Side, Side], focus: tuple[int, int] | None) -> ConventionDrawing:
    """The bins of a RoI on the map.

    Args:
        x: [H, W], one channel of the RoI's image.
        sides: the RoI along y and along x.
        focus: the bin of the worst element, which is marked, or None.
    """
    frame = Frame(*(_window(side, None if focus is None else focus[k]) for k, side in enumerate(sides)))
    views = frame.rows, frame.columns
    rows, columns = (
        range(max(view.start, 0), min(view.stop, side.length)) for view, side in zip(views, sides, strict=True)
    )
    values = {(h, w): float(x[h, w]) for h in rows for w in columns}
    parts = cells(frame, values, heat_scale(values.values(), signed=False), "X ")
    parts.append(
        rectangle(frame, "bin", *(_clipped(view, *side.ends) for view, side in zip(views, sides, strict=True)))
    )
    seen = list(itertools.islice(_seen(sides, frame), MOST_SAMPLES))
    for p, q in seen:
        block = sides[0].bins[p], sides[1].bins[q]
        parts.append(_outline(frame, block, (p + q) % 2, is_marked=(p, q) == focus))
    # Above the outlines, or an outline could hide a ring.
    parts += [_ring(frame, x, (sides[0].bins[p], sides[1].bins[q])) for p, q in seen]
    parts += numbers(frame, values, lambda *_: False)
    spans = [(min(side.ends), max(side.ends)) for side in sides]
    total = sum(1 for _ in _seen(sides, Frame(*(range(side.length) for side in sides))))
    words = left_out(frame, spans, [side.length for side in sides], len(seen), total, "bins with pixels")
    shape = len(sides[0].bins), len(sides[1].bins)
    output = np.array([_largest(x, (row, column)) for row in sides[0].bins for column in sides[1].bins])
    return ConventionDrawing(
        MaxRoiPoolConvention(),
        Drawing(MaxRoiPoolConvention().name, frame.image(parts), words),
        result_of("Y", output.reshape(shape)),
    )


def _window(side: Side, focus: int | None) -> range:
    ends = [*side.ends, *(end for pixels in side.bins if pixels.stop > pixels.start for end in _edges(pixels))]
    middle = side.ends[0] if focus is None else sum(_edges(side.bins[focus])) / 2
    return window_of(ends, side.length, middle)


def _edges(pixels: slice) -> tuple[float, float]:
    return pixels.start - 0.5, pixels.stop - 0.5


def _clipped(view: range, *ends: float) -> tuple[float, float]:
    low, high = (min(max(end, view.start - 1.0), float(view.stop)) for end in ends)
    return min(low, high), max(low, high)


def _seen(sides: tuple[Side, Side], frame: Frame) -> Iterator[tuple[int, int]]:
    """The bins that have pixels in the frame."""
    rows, columns = (
        [p for p, pixels in enumerate(side.bins) if max(pixels.start, view.start) < min(pixels.stop, view.stop)]
        for side, view in zip(sides, (frame.rows, frame.columns), strict=True)
    )
    return itertools.product(rows, columns)


def _outline(frame: Frame, block: tuple[slice, slice], turn: int, *, is_marked: bool) -> str:
    inset = _INSETS[turn] / frame.size if frame.size >= 20 else 0.0
    sides = ((first + inset, last - inset) for first, last in map(_edges, block))
    return rectangle(frame, "worst" if is_marked else ("block", "block other")[turn], *sides)


def _ring(frame: Frame, x: Floats, block: tuple[slice, slice]) -> str:
    values = x[block]
    h, w = np.unravel_index(int(np.argmax(values)), values.shape)
    place = {"cx": frame.x(int(w) + block[1].start), "cy": frame.y(int(h) + block[0].start)}
    return svg_element("circle", class_="largest", r=round(frame.size * 0.29, 1), **place)


def _largest(x: Floats, block: tuple[slice, slice]) -> float:
    values = x[block]
    return float(values.max()) if values.size else 0.0
