"""The view of a case of an operator that samples RoIs: one RoI on the map, with its bins and samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats, expected_outputs
from conformance.explain.drawing import MAX_SAMPLES, Drawing, Outline, Point, Sample, number, number_list
from conformance.explain.parts import Focus, Table, View
from conformance.families.upright.geometry import RoiCase
from ortops.reference.sampling import Corner

HINT = "A pixel's centre has its index as coordinate.", "The box is the RoI."
HINTS = {
    "bin": "Dashed lines separate its bins.",
    "worst": "The red box is the bin of the worst element.",
    "sample": "Filled dots are samples on the map.",
    "sample outside": "Hollow dots are samples off the map.",
}
"""How to read a drawing, by the kinds of outlines and samples that it has."""

_FEW = 4
"""The largest number of samples, and of bins, whose values are a line of text below a drawing."""

_MAX_LINES = 200
"""The largest number of bins along an axis whose edges are drawn."""


class Placed(NamedTuple):
    """A RoI on the map.

    point: the point at fractions of the RoI's height and width.
    bins, per_bin: the numbers of bins, and of samples of a bin, along the height and the width.
    coordinates: a function that returns y and x of all samples, [samples along the height, along the width] each.
    corners: takes y and x of a sample, and returns the pixels that it reads; none if it is off the map.
    outside: the value of a sample off the map.
    """

    point: Callable[[float, float], Point]
    bins: tuple[int, int]
    per_bin: tuple[int, int]
    coordinates: Callable[[], tuple[Floats, Floats]]
    corners: Callable[[float, float], Sequence[Corner]]
    outside: float = 0.0


class SampledRois(NamedTuple):
    """The RoIs of a case and their places.

    geometry: the tensors of the case.
    numbers: the names of the numbers of a RoI; an `angle` is in radians.
    convention: the rule that places the samples.
    place: takes the number of a RoI and returns its place.
    """

    geometry: RoiCase
    numbers: Sequence[str]
    convention: str
    place: Callable[[int], Placed]


class _Read(NamedTuple):
    """A sample of a bin: its place, and its interpolated value, which is NaN if the case has no map."""

    bin: tuple[int, int]
    number: tuple[int, int]
    sample: Sample
    value: float


def explanation(case: Case, focus: Focus, rois: SampledRois) -> View:
    """The view of a valid case; raises ValueError if it has no such RoI."""
    geometry = rois.geometry
    r, c, bin_ = focus.chosen(case, geometry.indices.tolist())
    count, n = len(geometry.rois), int(geometry.indices[r]) if len(geometry.rois) else 0
    if count == 0 or 0 in geometry.x_shape[1:]:
        return View(notes=(f"The case has {'no RoIs' if count == 0 else 'no pixels'} to draw.",))
    x = None if geometry.x is None else geometry.x[n, c]
    placed, is_forward, name = rois.place(r), not case.definition.is_gradient, case.definition.outputs[0].name
    total = math.prod((*placed.bins, *placed.per_bin))
    read = _read(placed, x) if total <= MAX_SAMPLES else []
    bins = expected_outputs(case)[name][r, c] if is_forward else np.zeros((0, 0))
    result = f"{name} = {number_list(bins)}" if 0 < bins.size <= _FEW else ""
    if result and bins.size == 1 and 0 < len(read) <= _FEW and case.attributes.get("mode", "avg") == "avg":
        result = f"samples {', '.join(number(one.value) for one in read)}: {result}"
    outlines, samples = _outlines(placed, bin_), [one.sample for one in read]
    kinds = {str(one.kind) for one in outlines} | {str(one.kind) for one in samples}
    hint = (*HINT, *(sentence for kind, sentence in HINTS.items() if kind in kinds))
    drawing = Drawing(case.operator, rois.convention, hint, geometry.lengths, x, outlines, samples, result)
    ends = ", ".join(f"{name} {number(end)}" for name, end in zip(rois.numbers, geometry.rois[r].tolist(), strict=True))
    degrees = f" ({number(math.degrees(float(geometry.rois[r, 4])))} degrees)" if "angle" in rois.numbers else ""
    rows = [(*map(str, one[:2]), *map(number, (*one.sample[:2], one.value))) for one in read]
    marked = next((k for k, one in enumerate(read) if one.bin == bin_), None)
    return View(
        f"RoI {r} of {count}: {ends}{degrees}; image {n}, channel {c}",
        drawing,
        [Table(f"Samples by {rois.convention}", ("bin", "sample", "y", "x", "interpolated"), rows, marked)],
        (r, c) if is_forward else (),
        [f"{total} samples, too many to draw and to list"] if total > MAX_SAMPLES else [],
    )


def _read(placed: Placed, image: Floats | None) -> list[_Read]:
    """All samples, bin by bin."""
    (rows, columns), (ys, xs), found = placed.per_bin, placed.coordinates(), []
    for k, m in np.ndindex(*ys.shape):
        y, x = float(ys[k, m]), float(xs[k, m])
        corners = placed.corners(y, x)
        value = placed.outside
        if image is None:
            value = math.nan
        elif corners:
            value = sum(one.weight * float(image[one.pixel]) for one in corners if one.pixel is not None)
        sample = Sample(y, x, "sample" if corners else "sample outside")
        found.append(_Read((k // rows, m // columns), (k % rows, m % columns), sample, value))
    return sorted(found, key=lambda one: (one.bin, one.number))


def _outlines(placed: Placed, bin_: tuple[int, ...] | None) -> list[Outline]:
    """The edges between the bins, the RoI, and the bin of the worst element."""
    point, (rows, columns) = placed.point, placed.bins
    outlines = [Outline("bin", [point(p / rows, 0), point(p / rows, 1)]) for p in range(1, min(rows, _MAX_LINES))]
    outlines += [
        Outline("bin", [point(0, q / columns), point(1, q / columns)]) for q in range(1, min(columns, _MAX_LINES))
    ]
    outlines.append(Outline("roi", [point(0, 0), point(0, 1), point(1, 1), point(1, 0)]))
    if bin_:
        (top, bottom), (left, right) = ((at / n, (at + 1) / n) for at, n in zip(bin_, placed.bins, strict=True))
        corners = (top, left), (top, right), (bottom, right), (bottom, left)
        outlines.append(Outline("worst", list(itertools.starmap(point, corners))))
    return outlines
