"""The picture of a RoI of MaxRoiPool: the pixels of each bin, and the largest one, whose value the bin takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from conformance.case import Case
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
from conformance.explain.explanation import Comparison, ConventionDrawing, Explanation
from conformance.explain.tables import Row, Table, number, table
from conformance.geometry.max_roi_pool import Side, pixels_of, rois_of

HINT = (
    "The coordinate of a pixel's centre is its index. The dashed box is the scaled RoI. Each outline is the block of "
    "pixels of one bin, and a ring marks its largest pixel. Neighbouring bins may share pixels."
)

_INSETS = 3, 7
"""How far an outline is inside of its pixels, in turn: neighbours that share pixels then do not cover each other."""


class Drawn(NamedTuple):
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


def bins_shown(x: Floats, sides: tuple[Drawn, Drawn], focus: tuple[int, int] | None) -> ConventionDrawing:
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


def _window(side: Drawn, focus: int | None) -> range:
    ends = [*side.ends, *(end for pixels in side.bins if pixels.stop > pixels.start for end in _edges(pixels))]
    middle = side.ends[0] if focus is None else sum(_edges(side.bins[focus])) / 2
    return window_of(ends, side.length, middle)


def _edges(pixels: slice) -> tuple[float, float]:
    return pixels.start - 0.5, pixels.stop - 0.5


def _clipped(view: range, *ends: float) -> tuple[float, float]:
    low, high = (min(max(end, view.start - 1.0), float(view.stop)) for end in ends)
    return min(low, high), max(low, high)


def _seen(sides: tuple[Drawn, Drawn], frame: Frame) -> Iterator[tuple[int, int]]:
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


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The tables and drawings that explain a valid case, with the pixels of the RoI's bins; see `Family`."""
    rois = list(rois_of(case))
    if roi is not None and not 0 <= roi < len(rois):
        raise ValueError(f"RoI {roi}: the case has {len(rois)}")
    if not rois or not case.inputs["X"].size:
        note = f"The case has {'no pixels' if rois else 'no RoIs'} to list."
        return Explanation(case, facts, outputs=compared.slices({}), notes=(note,))
    worst, is_gradient = compared.worst, case.definition.is_gradient
    of_worst = 0 if worst is None else worst.at[0]
    if worst is not None and is_gradient:  # the first RoI on the image of the worst pixel, if there is one
        of_worst = next((r for r, (n, _) in enumerate(rois) if n == worst.at[0]), 0)
    r = of_worst if roi is None else roi
    channel = worst.at[1] if worst else 0
    lead = (rois[r][0] if is_gradient else r, channel)
    marked = worst.at[2:] if worst and not is_gradient and worst.at[0] == r else None
    ends = ", ".join(map(number, case.inputs["rois"][r].astype(np.float64).tolist()))
    return Explanation(
        case,
        facts,
        f"RoI {r} of {len(rois)}: {ends}; channel {channel}",
        conventions=(_drawing(case, *rois[r], channel, (marked[0], marked[1]) if marked else None),),
        hint=HINT,
        coordinates=tuple(
            _listed(name, side, marked[k] if marked else None)
            for k, (name, side) in enumerate(zip("yx", rois[r][1], strict=True))
        ),
        outputs=compared.slices({case.outputs[0]: lead}),
    )


def _drawing(case: Case, n: int, sides: tuple[Side, Side], c: int, marked: tuple[int, int] | None) -> ConventionDrawing:
    """The bins of a RoI on channel `c` of image `n`, with one of them marked."""
    y, x = (
        Drawn((side.ends[0] * side.scale, side.ends[1] * side.scale), [b.widest for b in pixels_of(side)], side.length)
        for side in sides
    )
    return bins_shown(case.inputs["X"][n, c].astype(np.float64), (y, x), marked)


def _listed(name: str, side: Side, marked: int | None) -> Table:
    """A table of the pixels of each bin along an axis, as far as they are on the map."""
    rows = []
    for p, pixels in enumerate(pixels_of(side)):
        first, end = pixels.widest.start, pixels.widest.stop
        rows.append(Row((str(p), *((str(first), str(end - 1)) if first < end else ("none", "none"))), p == marked))
    return table(f"Pixels of the bins along {name}", ("bin", "first", "last"), rows)
