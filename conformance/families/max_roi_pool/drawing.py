"""The explanation of a case of MaxRoiPool: the pixels of each bin, and the largest one, whose value the bin takes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain.drawing import Drawing, Outline, Sample, number
from conformance.explain.parts import Comparison, Explanation, Table
from conformance.families.max_roi_pool.geometry import Side, pixels_of, rois_of

HINT = (
    "The coordinate of a pixel's centre is its index. The dashed box is the scaled RoI. Each outline is the block of "
    "pixels of one bin, and a ring marks its largest pixel. Neighbouring bins may share pixels."
)

_INSETS = 0.06, 0.14
"""How far an outline is inside of its pixels, in turn: neighbours that share pixels then do not cover each other."""


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The explanation of a valid case; raises ValueError if it has no such RoI."""
    rois, worst = list(rois_of(case)), compared.worst
    if roi is not None and not 0 <= roi < len(rois):
        raise ValueError(f"RoI {roi}: the case has {len(rois)}")
    if not rois or not case.inputs["X"].size:
        note = f"The case has {'no pixels' if rois else 'no RoIs'} to list."
        return Explanation(case, facts, tables=compared.tables(), notes=(note,))
    of_worst = worst[1][0] if worst else 0
    if worst and case.definition.is_gradient:  # the first RoI on the image of the worst pixel, if there is one
        of_worst = next((r for r, (n, _) in enumerate(rois) if n == of_worst), 0)
    r, c = of_worst if roi is None else roi, worst[1][1] if worst else 0
    n, sides = rois[r]
    is_here = worst is not None and not case.definition.is_gradient and worst[1][0] == r
    ends = ", ".join(map(number, case.inputs["rois"][r].astype(np.float64).tolist()))
    return Explanation(
        case,
        facts,
        f"RoI {r} of {len(rois)}: {ends}; channel {c}",
        (_drawing(case.inputs["X"][n, c].astype(np.float64), sides, worst[1][2:] if worst and is_here else None),),
        HINT,
        [*(_pixels(name, side) for name, side in zip("yx", sides, strict=True)), *compared.tables()],
    )


def _drawing(x: Floats, sides: tuple[Side, Side], marked: tuple[int, ...] | None) -> Drawing:
    (top, bottom), (left, right) = ([end * side.scale for end in side.ends] for side in sides)
    outlines = [Outline("bin", [(top, left), (top, right), (bottom, right), (bottom, left)])]
    rings, largest = [], np.zeros([side.bins for side in sides])
    for at, (rows, columns) in _blocks(sides):
        block = x[rows, columns]
        if block.size:
            inset = _INSETS[sum(at) % 2] - 0.5
            y1, y2, x1, x2 = rows.start + inset, rows.stop - 1 - inset, columns.start + inset, columns.stop - 1 - inset
            outlines.append(Outline("worst" if at == marked else "block", [(y1, x1), (y1, x2), (y2, x2), (y2, x1)]))
            i, j = np.unravel_index(int(np.argmax(block)), block.shape)
            rings.append(Sample(float(rows.start + i), float(columns.start + j), "largest"))
            largest[at] = block.max()
    result = f"Y = {largest.tolist()}".replace(".0", "") if largest.size <= 4 else ""
    detail = "ends are rounded to whole pixels; a bin is its largest pixel"
    return Drawing("MaxRoiPool", detail, (x.shape[0], x.shape[1]), x, outlines, rings, result)


def _blocks(sides: tuple[Side, Side]) -> Iterator[tuple[tuple[int, int], tuple[slice, slice]]]:
    """Each bin with its pixels on the map."""
    rows, columns = ([(p, pixels.widest) for p, pixels in enumerate(pixels_of(side))] for side in sides)
    for (p, of_p), (q, of_q) in itertools.product(rows, columns):
        yield (p, q), (of_p, of_q)


def _pixels(name: str, side: Side) -> Table:
    """A table of the pixels of each bin along an axis that are on the map."""
    found = [pixels.widest for pixels in pixels_of(side)]
    ends = [(str(one.start), str(one.stop - 1)) if one.start < one.stop else ("none", "none") for one in found]
    rows = [(str(p), *pair) for p, pair in enumerate(ends)]
    return Table(f"Pixels of the bins along {name}", ("bin", "first", "last"), rows)
