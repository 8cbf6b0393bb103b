"""DmlRoiAlign and its gradient: how errors grow into their outputs. `roi_align.py` says why a coordinate errs.

Here a coordinate is c = a + (b - a) t - I, so reach has |I|, too, and t can exceed 1 where the output pixel offset moves
samples beyond the region. The nearest pixel does not depend on the last bit of a coordinate: cases whose samples stand
half a pixel from two are in the suite only where every number on the way is exact. Its values have no drift, then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.bounds.growth import Growth
from conformance.bounds.samples import LEAST_SIZE, Axis, around, coordinate_error, largest, per_roi, slope
from conformance.case import Case
from conformance.expect import Floats, reference
from ortops.operators.dml_roi_align import DML_ROI_ALIGN
from ortops.spec import AttributeValue

MOST_ADDED = 4096.0
"""Samples off the map. A runtime that met more would multiply their value by their number, or not come to an end."""

Arguments = Mapping[str, AttributeValue]


@dataclass(frozen=True, slots=True)
class _Region(Axis):
    """An axis with, of each region, all samples of an output and the largest |t| or |1 - t| of a sample."""

    samples: Floats
    share: Floats


def forward(case: Case) -> dict[str, Growth]:
    """Growth into OutputTensor [R, C, PH, PW].

    A coordinate's error costs the steepest slope, for the share of samples on the map.
    """
    arguments, x = case.definition.check_attributes(case.attributes), case.inputs["InputTensor"].astype(np.float64)
    outside = abs(float(arguments["out_of_bounds_input_value"]))
    # One that is infinite is all of an output or nothing of it.
    outside = outside if np.isfinite(outside) else 0.0
    bins = int(arguments["output_height"]), int(arguments["output_width"])
    axis_y, axis_x = _axes(case, arguments, bins, x.shape[2:])
    magnitude, inside = (
        reference(
            case.definition,
            {**case.attributes, "out_of_bounds_input_value": value},
            {**case.inputs, "InputTensor": data},
            case.outputs,
        )["OutputTensor"]
        for data, value in ((np.abs(x), outside), (np.ones_like(x), 0.0))
    )
    steep_y, steep_x = _steepness(x, arguments)
    drift = per_roi(axis_y.delta * steep_y + axis_x.delta * steep_x) * inside
    terms = 4 * _summed(arguments, axis_y, axis_x)
    if outside and arguments["reduction_function"] == "average":
        terms += min(largest(axis_y.samples * axis_x.samples), MOST_ADDED)
    return {"OutputTensor": Growth(magnitude, terms, drift, inside)}


def gradient(case: Case) -> dict[str, Growth]:
    """Growth into OutputGradientTensor [N, C, H, W] and OutputROIGradientTensor [..., R, 4], of those that there are."""
    arguments = case.definition.check_attributes(case.attributes)
    dy = case.inputs["InputGradientTensor"].astype(np.float64)
    x_shape = tuple(map(int, case.inputs["x_shape"]))
    axes = _axes(case, arguments, dy.shape[2:], x_shape[2:])
    growths = {}
    if "OutputGradientTensor" in case.outputs:
        growths["OutputGradientTensor"] = _into_dx(case, arguments, dy, x_shape, axes)
    if "OutputROIGradientTensor" in case.outputs:
        growths["OutputROIGradientTensor"] = _into_drois(case, arguments, dy, axes)
    return growths


def _into_dx(
    case: Case, arguments: Arguments, dy: Floats, x_shape: tuple[int, ...], axes: tuple[_Region, _Region]
) -> Growth:
    """A sample that reads a pixel has all its weight within one pixel of it, so the mean drifts by what lies there.

    Of a maximum by all of the gradient of the image and channel: a winner's weight does not tell its sample's.
    """
    axis_y, axis_x = axes
    name = "OutputGradientTensor"
    magnitude = reference(case.definition, case.attributes, {**case.inputs, "InputGradientTensor": np.abs(dy)}, [name])
    terms = float(np.sum(axis_y.touching * axis_x.touching))
    if arguments["reduction_function"] == "average":
        near = around(magnitude[name])
    else:
        near = np.zeros((*x_shape[:2], 1, 1))
        np.add.at(near, case.inputs["BatchIndicesTensor"].ravel(), 2 * np.abs(dy).sum(axis=(2, 3), keepdims=True))
        terms = min(terms, float(len(dy) * np.prod(dy.shape[2:])))
    delta = 0.0 if _is_nearest(arguments) else largest(axis_y.delta + axis_x.delta)
    return Growth(magnitude[name], terms, delta * near, np.full(x_shape, terms))


def _into_drois(case: Case, arguments: Arguments, dy: Floats, axes: tuple[_Region, _Region]) -> Growth:
    """Every term is dY S times a difference of pixels and its share of the end, and moves by twice the steepest slope.

    The difference may be taken of sums, so that what is rounded is as large as the pixels themselves.
    """
    axis_y, axis_x = axes
    x = case.inputs["InputTensor"].astype(np.float64)
    weight = np.abs(dy)
    if arguments["reduction_function"] == "average":
        sizes: dict[str, AttributeValue] = {"output_height": dy.shape[2], "output_width": dy.shape[3]}
        inputs = {"InputTensor": np.ones_like(x)} | {n: case.inputs[n] for n in ("ROITensor", "BatchIndicesTensor")}
        weight = weight * reference(DML_ROI_ALIGN, {**arguments, **sizes}, inputs, ["OutputTensor"])["OutputTensor"]
    steep_y, steep_x = _steepness(x, arguments)
    per_x = float(arguments["spatial_scale_x"]) * axis_x.share
    per_y = float(arguments["spatial_scale_y"]) * axis_y.share
    shares = weight.sum(axis=(1, 2, 3))[:, None]
    most = 0.0 if _is_nearest(arguments) else 2 * largest(np.abs(x))
    magnitude = shares * np.stack([per_x * most, per_y * most] * 2, axis=1)
    gain = 2 * np.abs(dy).sum(axis=(1, 2, 3))[:, None] * np.stack([per_x, per_y] * 2, axis=1)
    steep = np.stack([per_x * steep_x, per_y * steep_y] * 2, axis=1)
    drift = 2 * (axis_y.delta + axis_x.delta)[:, None] * shares * steep
    terms = 4 * dy[:1].size * _summed(arguments, axis_y, axis_x)
    shape = case.inputs["ROITensor"].shape
    return Growth(magnitude.reshape(shape), terms, drift.reshape(shape), gain.reshape(shape))


def _axes(case: Case, arguments: Arguments, bins: tuple[int, ...], lengths: tuple[int, ...]) -> tuple[_Region, _Region]:
    x1, y1, x2, y2 = case.inputs["ROITensor"].astype(np.float64).reshape(-1, 4).T
    scale_y, scale_x = float(arguments["spatial_scale_y"]), float(arguments["spatial_scale_x"])
    return (
        _axis(case, arguments, y1 * scale_y, y2 * scale_y, bins[0], lengths[0]),
        _axis(case, arguments, x1 * scale_x, x2 * scale_x, bins[1], lengths[1]),
    )


def _axis(case: Case, arguments: Arguments, a: Floats, b: Floats, bins: int, length: int) -> _Region:
    least, most = (int(arguments[f"{limit}imum_samples_per_output"]) for limit in ("min", "max"))
    offset = float(arguments["output_pixel_offset"])
    samples = np.clip(np.ceil((b - a) / bins), least, most)
    count = samples * bins
    steps = np.maximum(count - 1, 1) if arguments["align_regions_to_corners"] else count
    first, last = -offset / steps, (count - 1 - offset) / steps
    size = np.maximum(np.abs(b - a), LEAST_SIZE)
    reach = np.abs(a) + length + 1.5 + abs(float(arguments["input_pixel_offset"]))
    # As far as a sample on the map is from the region's start; 1 covers a lone sample in the middle.
    furthest = np.minimum(np.maximum.reduce([np.abs(first), np.abs(last), np.ones_like(size)]), reach / size)
    density = steps / size
    return _Region(
        delta=coordinate_error(case, np.abs(a) + np.abs(b), reach, furthest),
        per_bin=np.minimum(samples, (length + 1) * density + 1),
        touching=np.minimum(count, 2 * density + 1),
        samples=samples,
        share=np.maximum.reduce([np.abs(first), np.abs(last), np.abs(1 - first), np.abs(1 - last), np.ones_like(size)]),
    )


def _steepness(x: Floats, arguments: Arguments) -> tuple[float, float]:
    return (0.0, 0.0) if _is_nearest(arguments) else slope(x)


def _is_nearest(arguments: Arguments) -> bool:
    return bool(arguments["interpolation_mode"] == "nearest_neighbor")


def _summed(arguments: Arguments, axis_y: _Region, axis_x: _Region) -> float:
    """Of how many samples on the map an output is the sum, at most: a maximum is one of them."""
    return largest(axis_y.per_bin * axis_x.per_bin) if arguments["reduction_function"] == "average" else 1.0
