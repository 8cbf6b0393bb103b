"""The explanation of a case of RoiAlign or DmlRoiAlign: one RoI by ONNX's two conventions and by DirectML's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain import sampled_rois
from conformance.explain.conventions import Convention, Placed
from conformance.explain.drawing import Point
from conformance.explain.parts import Comparison, Explanation
from conformance.upright.geometry import Coordinates, Geometry, Sampling
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.spec import AttributeValue

NUMBERS = ("x1", "y1", "x2", "y2")

TORCHVISION = (
    "torchvision.ops.roi_align has no convention of its own: aligned=False is output_half_pixel, aligned=True is "
    "half_pixel, both with the mean of the samples. Its sampling_ratio > 0 is that many samples along each axis of a "
    "bin, as in ONNX; -1 or 0 is adaptive, the size of the bin in pixels rounded up, as 0 is in ONNX."
)


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The explanation of a valid case; raises ValueError if it has no such RoI."""
    geometry = Geometry(case)
    return sampled_rois.explanation(
        case, facts, compared, roi, geometry, lambda r: upright(geometry, r), NUMBERS, TORCHVISION
    )


def upright(geometry: Geometry, r: int) -> list[Convention]:
    """The conventions of RoiAlign and DmlRoiAlign for RoI `r`: ONNX's at opset 10, those since 16, and DirectML's."""
    given, roi = geometry.sampling, geometry.rois[r : r + 1]
    own, made = given.coordinates, []
    keys: tuple[tuple[Coordinates, str, str, str, float], ...] = (
        ("output_half_pixel", "RoiAlign-10", "False", "RoiAlign_10", 0.0),
        ("half_pixel", "RoiAlign-16/22", "True", "RoiAlign_16", 0.5),
    )
    for key, versions, aligned, operator, offset in keys:
        # ONNX has one scale, so coordinates along y are turned into units of x.
        sampling = Sampling(
            (given.scales[1],) * 2, given.bins, given.lengths, given.limits, given.mode, key, (offset, -0.5)
        )
        scaled = roi * np.array([1.0, given.scales[0] / given.scales[1]] * 2)
        words = f"ONNX {versions}", f"{key}, the same as torchvision aligned={aligned}", operator
        notes = () if own else tuple(_unsupported_by_onnx(given))
        made.append(_upright(words, sampling, scaled, is_own=own == key, notes=notes))
    sampling, notes = given, ()
    if own:
        most = min(given.limits[0], UINT32_MAX), min(given.limits[1], UINT32_MAX)
        sampling = replace(given, limits=most, coordinates=None, offsets=(0.5, -0.5))
        if given.mode == "max":
            notes = ("DirectML's max is the largest interpolated sample, not the largest weighted pixel.",)
    detail = "input_pixel_offset {:g}, output_pixel_offset {:g}".format(*sampling.offsets)
    return [*made, _upright(("DirectML", detail, "DmlRoiAlign"), sampling, roi, is_own=own is None, notes=notes)]


def _upright(
    words: tuple[str, str, str], sampling: Sampling, roi: Floats, *, is_own: bool, notes: tuple[str, ...]
) -> Convention:
    attributes: dict[str, AttributeValue] = {
        "output_height": sampling.bins[0],
        "output_width": sampling.bins[1],
        "mode": sampling.mode,
        "sampling_ratio": sampling.ratio,
        "spatial_scale": sampling.scales[1],
        "coordinate_transformation_mode": sampling.coordinates or "",
        "reduction_function": "average" if sampling.mode == "avg" else "max",
        "interpolation_mode": "nearest_neighbor" if sampling.nearest else "linear",
        "spatial_scale_y": sampling.scales[0],
        "spatial_scale_x": sampling.scales[1],
        "input_pixel_offset": sampling.offsets[0],
        "output_pixel_offset": sampling.offsets[1],
        "out_of_bounds_input_value": sampling.outside,
        "minimum_samples_per_output": sampling.limits[0],
        "maximum_samples_per_output": sampling.limits[1],
        "align_regions_to_corners": int(sampling.to_corners),
    }
    y, x = axes = sampling.place(roi[0].tolist())

    def coordinates() -> tuple[Floats, Floats]:
        along = [[a.axis.coordinate(p, i) for p in range(a.axis.bins) for i in range(a.axis.per_bin)] for a in axes]
        rows, columns = np.meshgrid(*along, indexing="ij")
        return rows, columns

    def point(v: float, u: float) -> Point:
        return y.start + v * y.size, x.start + u * x.size

    def is_on_map(at_y: float, at_x: float) -> bool:
        return y.axis.is_inside(at_y) and x.axis.is_inside(at_x)

    placed = Placed(point, sampling.bins, (y.axis.per_bin, x.axis.per_bin), coordinates, is_on_map)
    return Convention(*words, attributes, roi, placed, is_own, notes)


def _unsupported_by_onnx(sampling: Sampling) -> list[str]:
    rules = (
        (sampling.nearest, "interpolates linearly, never to the nearest pixel"),
        (sampling.to_corners, "does not align samples to corners"),
        (sampling.outside != 0.0, "has 0 for samples off the map"),
        (not sampling.ratio and sampling.limits != (1, UINT32_MAX), "has no limits to the number of samples"),
        (sampling.scales[0] != sampling.scales[1], "has one scale; the RoI's y coordinates are scaled instead"),
    )
    return [f"ONNX {what}." for applies, what in rules if applies]
