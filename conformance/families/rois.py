# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cases with RoIs: their tensors by role, and the view of one RoI with its bins and samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.error_terms import Floats
from conformance.expected_values import expected_outputs
from conformance.families.view import (
    MAX_SAMPLES,
    Drawing,
    Element,
    Outline,
    Point,
    Sample,
    Table,
    View,
    focus_of,
    number,
    number_list,
)
from ortops.reference.sampling import Corner

ONNX_NAMES = {"x": "X", "rois": "rois", "indices": "batch_indices", "dy": "dY", "y": "Y", "dx": "dX", "drois": "drois"}
DIRECTML_NAMES = {
    "x": "InputTensor",
    "rois": "ROITensor",
    "indices": "BatchIndicesTensor",
    "dy": "InputGradientTensor",
    "y": "OutputTensor",
    "dx": "OutputGradientTensor",
    "drois": "OutputROIGradientTensor",
}
_SIZES = ("output_height", "output_width")

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


class RoiCase:
    """A valid case with RoIs: its attributes, and its tensors in float64 and int64.

    rois, indices: [R, 4], or [R, 5] for rotated RoIs, and [R].
    x_shape: N, C, H and W.
    x, dy: [N, C, H, W] and [R, C, PH, PW]; None if the case does not have the tensor.
    bins, lengths: PH and PW, and H and W.
    """

    def __init__(self, case: Case, names: Mapping[str, str]) -> None:
        """Read a case; `names` has the names of its tensors by role, as `ONNX_NAMES` does."""
        wide = {name: array.astype(np.float64) for name, array in case.inputs.items() if array.dtype.kind not in "iu"}
        self.case, self.names, self.attributes = case, names, case.definition.check_attributes(case.attributes)
        self.x: Floats | None = wide.get(names["x"])
        self.dy: Floats | None = wide.get(names["dy"])
        self.rois: Floats = wide[names["rois"]].reshape(-1, wide[names["rois"]].shape[-1])
        self.indices: Array = case.inputs[names["indices"]].astype(np.int64).reshape(-1)
        images, channels, height, width = map(int, case.inputs["x_shape"] if self.x is None else self.x.shape)
        self.x_shape, self.lengths = (images, channels, height, width), (height, width)
        bins = self.attributes if self.dy is None else dict(zip(_SIZES, self.dy.shape[2:], strict=True))
        self.bins = bins[_SIZES[0]], bins[_SIZES[1]]


class RoiPlace(NamedTuple):
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


def view_of_roi(
    rois: RoiCase, worst: Element | None, names: Sequence[str], rule: str, place: Callable[[int], RoiPlace]
) -> View:
    """The view of a valid case of an operator that samples RoIs.

    Args:
        rois: the case.
        worst: the element with the largest error, whose RoI is shown; None for the first one.
        names: the names of the numbers of a RoI; an `angle` is in radians.
        rule: the rule that places the samples.
        place: takes the number of a RoI and returns its place.
    """
    case, count, is_forward = rois.case, len(rois.rois), not rois.case.definition.is_gradient
    r, c, bin_ = focus_of(case, worst, rois.indices.tolist())
    if count == 0 or 0 in rois.x_shape[1:]:
        return View(notes=(f"The case has {'no RoIs' if count == 0 else 'no pixels'} to draw.",))
    roi, n, placed, name = rois.rois[r].tolist(), int(rois.indices[r]), place(r), case.definition.outputs[0].name
    x = None if rois.x is None else rois.x[n, c]
    total = math.prod((*placed.bins, *placed.per_bin))
    bins, samples, values = _samples(placed, x) if total <= MAX_SAMPLES else ([], [], [])
    pooled = expected_outputs(case)[name][r, c] if is_forward else np.zeros((0, 0))
    result = f"{name} = {number_list(pooled)}" if 0 < pooled.size <= _FEW else ""
    if result and pooled.size == 1 and 0 < len(values) <= _FEW and case.attributes.get("mode", "avg") == "avg":
        result = f"samples {', '.join(map(number, values))}: {result}"
    outlines = _outlines(placed, bin_)
    kinds = {str(outline.kind) for outline in outlines} | {str(sample.kind) for sample in samples}
    hint = (*HINT, *(sentence for kind, sentence in HINTS.items() if kind in kinds))
    ends = ", ".join(f"{name} {number(end)}" for name, end in zip(names, roi, strict=True))
    degrees = f" ({number(math.degrees(roi[4]))} degrees)" if "angle" in names else ""
    rows = [
        (str((p, q)), str((i, j)), *map(number, (sample.y, sample.x, value)))
        for (p, q, i, j), sample, value in zip(bins, samples, values, strict=True)
    ]
    marked = next((k for k, at in enumerate(bins) if at[:2] == bin_), None)
    return View(
        f"RoI {r} of {count}: {ends}{degrees}; image {n}, channel {c}",
        Drawing(case.operator, rule, hint, rois.lengths, x, outlines, samples, result),
        [Table(f"Samples by {rule}", ("bin", "sample", "y", "x", "interpolated"), rows, marked)],
        (r, c) if is_forward else (),
        [f"{total} samples, too many to draw and to list"] if total > MAX_SAMPLES else [],
    )


def _samples(placed: RoiPlace, image: Floats | None) -> tuple[list[tuple[int, ...]], list[Sample], list[float]]:
    """The bins and numbers of all samples, the samples, and their interpolated values, NaN if the case has no map."""
    at = list(np.ndindex(*placed.bins, *placed.per_bin))
    samples, values, (ys, xs) = [], [], placed.coordinates()
    for p, q, i, j in at:
        place = p * placed.per_bin[0] + i, q * placed.per_bin[1] + j
        y, x = float(ys[place]), float(xs[place])
        corners = placed.corners(y, x)
        samples.append(Sample(y, x, "sample" if corners else "sample outside"))
        if image is None:
            values.append(math.nan)
        elif corners:
            values.append(sum(corner.weight * float(image[corner.pixel]) for corner in corners if corner.pixel))
        else:
            values.append(placed.outside)
    return at, samples, values


def _outlines(placed: RoiPlace, bin_: tuple[int, ...] | None) -> list[Outline]:
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
