"""The view of a MaxRoiPool case: the pixels of each bin, and the largest one, whose value is the output."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain.drawing import Drawing, Outline, Sample, number, number_list
from conformance.explain.parts import Focus, Table, View
from conformance.families.max_roi_pool.geometry import Side, pixels_of, rois_of

HINT = (
    "A pixel's centre has its index as coordinate.",
    "The dashed box is the scaled RoI.",
    "Each solid box has the pixels of one bin, and a ring marks its largest pixel.",
    "Neighbouring bins may share pixels.",
)

_INSETS = 0.06, 0.14
"""The distances of outlines from their pixels' edges, alternating, so that neighbours with shared pixels do not overlap."""


def explanation(case: Case, focus: Focus) -> View:
    """The view of a valid case; raises ValueError if it has no such RoI."""
    rois = list(rois_of(case))
    r, c, bin_ = focus.chosen(case, [n for n, _ in rois])
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
    found = [pixels.widest for pixels in pixels_of(side)]
    ends = [(str(one.start), str(one.stop - 1)) if one.start < one.stop else ("none", "none") for one in found]
    rows = [(str(p), *pair) for p, pair in enumerate(ends)]
    return Table(f"Pixels of the bins along {name}", ("bin", "first", "last"), rows)
