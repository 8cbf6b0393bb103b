# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pixels of the bins of MaxRoiPool.

Rounding may change which pixels a bin has. Caffe and ONNX Runtime scale RoI ends in float32 and multiply the number
of a bin by the bin size in float32, others in float64. Among all these variants, a bin has a widest and a narrowest
range of pixels. If both have the same maximum, all variants do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from conformance.case import Case
from conformance.error_terms import Floats
from conformance.families.view import Drawing, Element, Outline, Sample, Table, View, focus_of, number, number_list
from ortops.operators.max_roi_pool import MAX_COORDINATE

HINT = (
    "A pixel's centre has its index as coordinate.",
    "The dashed box is the scaled RoI.",
    "Each solid box has the pixels of one bin, and a ring marks its largest pixel.",
    "Neighbouring bins may share pixels.",
)

_INSETS = 0.06, 0.14
"""The distances of outlines from their pixels' edges, alternating, so that neighbours with shared pixels do not overlap."""


class Side(NamedTuple):
    """A RoI along one axis of the map: its stored ends, the scale, the number of bins, and the length of the map."""

    ends: tuple[float, float]
    scale: float
    bins: int
    length: int


class Pixels(NamedTuple):
    """The widest and the narrowest range of pixels that rounding may give a bin along one axis."""

    widest: slice
    narrowest: slice


def rois_of(case: Case) -> Iterator[tuple[int, tuple[Side, Side]]]:
    """Yield the image of each RoI and its sides along y and along x."""
    arguments = case.definition.check_attributes(case.attributes)
    bins = case.inputs["dY"].shape[2:] if case.definition.is_gradient else arguments["pooled_shape"]
    height, width = case.inputs["X"].shape[2:]
    scale = arguments["spatial_scale"]
    for n, x1, y1, x2, y2 in case.inputs["rois"].astype(np.float64).tolist():
        yield int(n), (Side((y1, y2), scale, bins[0], height), Side((x1, x2), scale, bins[1], width))


def pixels_of(side: Side, *dtypes: np.dtype[Any]) -> Iterator[Pixels]:
    """Yield the pixels of each bin over the exact definition and computations in any of these types."""
    wide: np.dtype[Any] = np.dtype(np.float64)
    of_roi = {_first_and_count(side, dtype) for dtype in (wide, *dtypes)}
    readings = [_edges(*pixels, side.bins, dtype) for pixels in of_roi for dtype in (None, *dtypes)]
    for p in range(side.bins):
        first, stop = ([reading[p][k] for reading in readings] for k in (0, 1))
        yield Pixels(_on_map(min(first), max(stop), side.length), _on_map(max(first), min(stop), side.length))


def _first_and_count(side: Side, dtype: np.dtype[Any]) -> tuple[int, int]:
    """The first pixel and the number of pixels of a RoI whose ends are scaled in this type."""
    with np.errstate(over="ignore"):
        scaled = (np.array(side.ends, dtype) * np.array(side.scale, dtype)).astype(np.float64).tolist()
    start, end = (_half_away(min(max(number, -MAX_COORDINATE), MAX_COORDINATE)) for number in scaled)
    return start, max(end - start + 1, 1)


def _half_away(end: float) -> int:
    """The nearest pixel; ties go away from 0."""
    pixel = math.floor(abs(end))
    pixel += abs(end) - pixel >= 0.5
    return pixel if end > 0 else -pixel


def _edges(start: int, size: int, bins: int, dtype: np.dtype[Any] | None) -> list[tuple[int, int]]:
    """The first and end pixel of each bin, with the bin size computed in this type; None computes exactly."""
    if dtype is None:
        return [(start + p * size // bins, start - (-(p + 1) * size // bins)) for p in range(bins)]
    edges = (np.arange(bins + 1).astype(dtype) * (np.array(size, dtype) / np.array(bins, dtype))).astype(np.float64)
    return [(start + math.floor(low), start + math.ceil(high)) for low, high in itertools.pairwise(edges.tolist())]


def _on_map(begin: int, end: int, length: int) -> slice:
    begin = min(max(begin, 0), length)
    return slice(begin, min(max(end, begin), length))


def samples(_case: Case) -> float:
    """See `conformance.families.PARTS`."""
    return 0.0


def explanation(case: Case, worst: Element | None) -> View:
    """See `conformance.families.PARTS`."""
    rois = list(rois_of(case))
    r, c, bin_ = focus_of(case, worst, [n for n, _ in rois])
    if not rois or not case.inputs["X"].size:
        return View(notes=(f"The case has {'no pixels' if rois else 'no RoIs'} to list.",))
    n, sides = rois[r]
    ends = ", ".join(map(number, case.inputs["rois"][r].astype(np.float64).tolist()))
    return View(
        f"RoI {r} of {len(rois)}: {ends}; channel {c}",
        _drawing(case.inputs["X"][n, c].astype(np.float64), sides, bin_),
        [_pixels(name, side) for name, side in zip("yx", sides, strict=True)],
        () if case.definition.is_gradient else (r, c),
    )


def _drawing(x: Floats, sides: tuple[Side, Side], marked: tuple[int, ...] | None) -> Drawing:
    (top, bottom), (left, right) = ([end * side.scale for end in side.ends] for side in sides)
    outlines = [Outline("bin", [(top, left), (top, right), (bottom, right), (bottom, left)])]
    rings, largest = [], np.zeros([side.bins for side in sides])
    ranges = ([(p, pixels.widest) for p, pixels in enumerate(pixels_of(side))] for side in sides)
    for (p, rows), (q, columns) in itertools.product(*ranges):
        block = x[rows, columns]
        if block.size:
            inset = _INSETS[(p + q) % 2] - 0.5
            y1, y2, x1, x2 = rows.start + inset, rows.stop - 1 - inset, columns.start + inset, columns.stop - 1 - inset
            kind: Literal["worst", "block"] = "worst" if (p, q) == marked else "block"
            outlines.append(Outline(kind, [(y1, x1), (y1, x2), (y2, x2), (y2, x1)]))
            i, j = np.unravel_index(int(np.argmax(block)), block.shape)
            rings.append(Sample(float(rows.start + i), float(columns.start + j), "largest"))
            largest[p, q] = block.max()
    result = f"Y = {number_list(largest)}" if largest.size <= 4 else ""
    detail = "ends are rounded to whole pixels; a bin's value is its largest pixel"
    return Drawing("MaxRoiPool", detail, HINT, (x.shape[0], x.shape[1]), x, outlines, rings, result)


def _pixels(name: str, side: Side) -> Table:
    """A table of the pixels of each bin along an axis that are on the map."""
    ranges = [pixels.widest for pixels in pixels_of(side)]
    ends = [(str(r.start), str(r.stop - 1)) if r.start < r.stop else ("none", "none") for r in ranges]
    rows = [(str(p), *pair) for p, pair in enumerate(ends)]
    return Table(f"Pixels of the bins along {name}", ("bin", "first", "last"), rows)
