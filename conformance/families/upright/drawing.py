"""The view of a case of RoiAlign or DmlRoiAlign: one RoI with its bins and samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain import sampled_rois
from conformance.explain.drawing import Point
from conformance.explain.parts import Focus, View
from conformance.explain.sampled_rois import Placed, SampledRois
from conformance.families.upright.geometry import Geometry, Sampling
from ortops.reference.sampling import Corner, corners

NUMBERS = ("x1", "y1", "x2", "y2")


def explanation(case: Case, focus: Focus) -> View:
    """The view of a valid case; raises ValueError if it has no such RoI."""
    geometry = Geometry(case)
    sampling = geometry.sampling
    convention = "input_pixel_offset {:g}, output_pixel_offset {:g}".format(*sampling.offsets)
    if sampling.coordinates is not None:
        aligned = sampling.coordinates == "half_pixel"
        convention = f"{sampling.coordinates}, as torchvision with aligned={aligned}"
    rois = SampledRois(geometry, NUMBERS, convention, lambda r: _placed(sampling, geometry.rois[r].tolist()))
    return sampled_rois.explanation(case, focus, rois)


def _placed(sampling: Sampling, roi: Sequence[float]) -> Placed:
    y, x = axes = sampling.place(roi)

    def point(v: float, u: float) -> Point:
        return y.start + v * y.size, x.start + u * x.size

    def coordinates() -> tuple[Floats, Floats]:
        along = [[a.axis.coordinate(p, i) for p in range(a.axis.bins) for i in range(a.axis.per_bin)] for a in axes]
        rows, columns = np.meshgrid(*along, indexing="ij")
        return rows, columns

    def read(at_y: float, at_x: float) -> Sequence[Corner]:
        is_on_map = y.axis.is_inside(at_y) and x.axis.is_inside(at_x)
        return corners(y.axis.taps(at_y), x.axis.taps(at_x)) if is_on_map else ()

    per_bin = y.axis.per_bin, x.axis.per_bin
    return Placed(point, sampling.bins, per_bin, coordinates, read, sampling.outside)
