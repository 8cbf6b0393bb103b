# SPDX-License-Identifier: MIT
"""Sample positions along one axis. Only this file deals with half pixels, borders and sampling ratios.

Every operator's samples are evenly spaced, so its convention is a function that returns an `Axis`; everything else is
shared. Coordinates are float64. Source: the formulas of ONNX RoiAlign-10, -16 and -22 and of their reference evaluator.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.scalar import ceil, float64_pointer, maximum, minimum, offset
from ortops.native.elements import Doubles, Words
from ortops.native.kernels.layout import ABOVE, AXIS_FIELDS, BELOW, NEAREST, NEXT, PlacedRois

MAX_SAMPLES = 2**62
"""The most samples along an axis: int64 can number them. They would be less than 1e-18 of a RoI apart."""

BEFORE_MAP = -2
"""The region of samples off the map before its first pixel. After the last pixel, it is twice the map's length."""


_ABOVE_MINUS_1 = -1.0 + 2.0**-53
"""The smallest float64 above -1: in DirectML's operators, a sample at -1 is off the map."""


class Axis(NamedTuple):
    """The samples of one RoI along one axis: sample i of bin p is at origin + (p*samples + i + shift)*size/steps.

    bins: the number of bins.
    samples: the number of samples in a bin.
    scale: d(coordinate)/d(stored coordinate).
    is_fixed: whether the size does not depend on the RoI.
    rule: NEXT or another interpolation rule of `layout`.
    least: the smallest coordinate on the map.
    margin: the distance after the last pixel at which a sample still reads that pixel.
    """

    origin: float
    size: float
    bins: int
    samples: int
    shift: float
    steps: float
    scale: float
    is_fixed: bool
    rule: int
    least: float
    margin: float


@compiled
def axis_of(axes: Any, r: int, k: int, bins: int) -> Axis:
    """The axis of RoI r that `write_axis` stored, along y for k = 0 and along x for k = 1."""
    n = offset(axes, (2 * r + k) * AXIS_FIELDS)
    return Axis(n[0], n[1], bins, int(n[2]), n[3], n[4], n[5], n[6] != 0.0, int(n[7]), n[8], n[9])


@compiled
def onnx_axis(start: float, length: float, scale: float, half_pixel: bool, bins: int, sampling_ratio: int) -> Axis:
    """The samples by ONNX RoiAlign's convention for a RoI from `start` to `start + length`, before scaling."""
    origin = start * scale - 0.5 if half_pixel else start * scale
    size = length * scale
    is_fixed = not half_pixel and size < 1.0
    if is_fixed:
        size = 1.0
    wanted = float(sampling_ratio) if sampling_ratio > 0 else ceil(maximum(size / bins, 0.0))
    samples = minimum(wanted, float(MAX_SAMPLES // bins))
    return Axis(origin, size, bins, int(samples), 0.5, bins * samples, scale, is_fixed, NEXT, -1.0, 1.0)


@compiled
def _dml_axis(
    r1: float,
    r2: float,
    scale: float,
    input_offset: float,
    output_offset: float,
    bins: int,
    min_samples: int,
    max_samples: int,
    to_corners: bool,
    rule: int,
) -> Axis:
    """The samples by DirectML ROI_ALIGN1's convention for a region from r1 to r2, before scaling."""
    start, size = r1 * scale, r2 * scale - r1 * scale
    # A comparison, unlike minimum and maximum, also replaces a NaN from an overflowed size.
    wanted = ceil(size / bins)
    samples = float(min_samples) if not wanted > min_samples else minimum(wanted, float(max_samples))
    samples = minimum(samples, float(MAX_SAMPLES // bins))
    steps, shift = bins * samples, -output_offset
    if to_corners:
        steps, shift = (steps - 1.0, shift) if steps > 1.0 else (1.0, 0.5)
    return Axis(start - input_offset, size, bins, int(samples), shift, steps, scale, False, rule, _ABOVE_MINUS_1, 1.0)


@compiled
def resample_axis(scale: float, length: int, bins: int, input_offset: float, output_offset: float, rule: int) -> Axis:
    """The samples of DirectML's RESAMPLE, one for each output; scale 0 means the ratio of the lengths."""
    # size/steps keeps the ratio as a fraction, since rounding must not move an integer coordinate off its pixel.
    size, steps = (1.0, scale) if scale > 0.0 else (float(length), float(bins))
    return Axis(-input_offset, size, bins, 1, -output_offset, steps, 0.0, True, rule, -np.inf, np.inf)


@compiled
def coordinate(axis: Axis, p: int, i: int) -> float:
    """The pixel coordinate of sample i of bin p.

    The lengths of all tables rely on coordinates that increase along the axis. A single fraction keeps them so when rounded.
    If p*size/bins were added separately, the bins of a RoI that starts at -1e30 would overlap.
    """
    return axis.origin + (p * axis.samples + i + axis.shift) * axis.size / axis.steps


@compiled
def coordinate_derivatives(axis: Axis, p: int, i: int) -> tuple[float, float]:
    """The derivatives of `coordinate` with respect to the RoI's two stored coordinates."""
    if axis.is_fixed:
        return axis.scale, 0.0
    t = (p * axis.samples + i + axis.shift) / axis.steps
    return axis.scale * (1.0 - t), axis.scale * t


@compiled
def region(axis: Axis, c: float, length: int) -> int:
    """The region of a coordinate c, within which an interpolated value is linear in c. Regions increase with c.

    Returns:
        2*k if the value is pixel k's; 2*k + 1 between pixels k and k + 1; BEFORE_MAP or 2*length off the map.
    """
    if not c >= axis.least:  # also true for a coordinate that overflowed to NaN
        return BEFORE_MAP
    if c > length - 1 + axis.margin:
        return 2 * length
    if c < 0.0:
        return 0
    if c >= length - 1:
        return 2 * (length - 1)
    if axis.rule == NEAREST:
        return 2 * int(c + 0.5)
    k = int(c)
    if axis.rule == BELOW or (axis.rule != NEXT and c == k):
        return 2 * k
    return 2 * k + (2 if axis.rule == ABOVE else 1)


@noinline
def region_of_sample(axis: Axis, p: int, i: int, length: int) -> int:
    """The region of sample i of bin p."""
    return region(axis, coordinate(axis, p, i), length)


@compiled
def is_inside(where: int, length: int) -> bool:
    """Whether samples of a region lie on the map."""
    return 0 <= where < 2 * length


@compiled
def is_between(where: int) -> bool:
    """Whether a region on the map lies between two pixels. In other regions the value is constant and its derivative 0."""
    return where % 2 == 1


@compiled
def region_end(axis: Axis, p: int, i: int, here: int, length: int) -> tuple[int, int]:
    """The first sample of bin p after sample i that lies outside its region `here`, and that sample's region if it exists.

    The search doubles its steps, then bisects: its work depends on the map's size and not on the number of samples.
    """
    low, high, step, there = i, axis.samples, 1, here
    while low + step < high:
        where = region_of_sample(axis, p, low + step, length)
        if where == here:
            low, step = low + step, 2 * step
        else:
            high, there = low + step, where
    while low + 1 < high:
        middle = low + (high - low) // 2
        where = region_of_sample(axis, p, middle, length)
        if where == here:
            low = middle
        else:
            high, there = middle, where
    return high, there


@compiled
def pixels_between(axis: Axis, p: int, q: int, length: int) -> tuple[int, int]:
    """The first pixel and the number of pixels that the samples of bins p to q can read."""
    if axis.samples == 0:
        return 0, 0
    a = region_of_sample(axis, p, 0, length)
    b = region_of_sample(axis, q, axis.samples - 1, length)
    return pixels_of_regions(minimum(a, b), maximum(a, b), length)


@compiled
def pixels_of_regions(a: int, b: int, length: int) -> tuple[int, int]:
    """The first pixel and the number of pixels that the regions from a to b read."""
    low, high = maximum(a, 0), minimum(b, 2 * (length - 1))
    if low > high:
        return 0, 0
    return low // 2, (high + 1) // 2 - low // 2 + 1


@compiled
def write_axis(placed: PlacedRois, r: int, k: int, axis: Axis) -> None:
    """Store the axis of RoI r, along y for k = 0 and along x for k = 1."""
    fields = offset(placed.axes, (2 * r + k) * AXIS_FIELDS)
    fields[0], fields[1], fields[2] = axis.origin, axis.size, float(axis.samples)
    fields[3], fields[4], fields[5] = axis.shift, axis.steps, axis.scale
    fields[6], fields[7] = 1.0 if axis.is_fixed else 0.0, float(axis.rule)
    fields[8], fields[9] = axis.least, axis.margin


@compiled
def _place_axis(placed: PlacedRois, r: int, k: int, axis: Axis, length: int) -> None:
    """Store the axis of RoI r and the number of pixels that its samples can read."""
    write_axis(placed, r, k, axis)
    placed.spans[2 * r + k] = pixels_between(axis, 0, axis.bins - 1, length)[1]


@compiled
def is_valid_roi(rois: Doubles, fields: int, placed: PlacedRois, r: int) -> bool:
    """Whether all of a RoI's coordinates are finite and its batch index is valid."""
    for k in range(fields):
        value = rois[fields * r + k]
        if value - value != 0.0:
            return False
    return 0 <= placed.batch_indices[r] < placed.shape.images


@compiled
def place_onnx_rois(rois: Doubles, placed: PlacedRois, parameters: Words) -> int:
    """Place the samples of all RoIs [R, 4], each x1, y1, x2, y2, by ONNX's convention.

    Args:
        placed: the result, which is filled.
        parameters: spatial_scale as a float64's bits; whether the first pixel's centre is at 0.5; sampling_ratio.

    Returns:
        The number of the first RoI with an invalid batch index or a coordinate that is not finite; -1 if all RoIs are valid.
    """
    shape, scale = placed.shape, float64_pointer(parameters)[0]
    half_pixel, sampling_ratio = parameters[1] != 0, parameters[2]
    for r in range(shape.rois):
        if not is_valid_roi(rois, 4, placed, r):
            return r
        for k in range(2):
            # Axes are y, x; RoIs have x first.
            r1, r2 = rois[4 * r + 1 - k], rois[4 * r + 3 - k]
            bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
            axis = onnx_axis(r1, r2 - r1, scale, half_pixel, bins, sampling_ratio)
            _place_axis(placed, r, k, axis, length)
    return -1


@compiled
def place_bins(whole: PlacedRois, placed: PlacedRois) -> int:
    """Place each bin as a RoI with a single bin, on an image that consists of the channels that the bin reads."""
    shape, bins = whole.shape, placed.shape.interleaved
    for r in range(shape.rois):
        rows, columns = axis_of(whole.axes, r, 0, shape.bins_y), axis_of(whole.axes, r, 1, shape.bins_x)
        for b in range(bins):
            placed.batch_indices[r * bins + b] = whole.batch_indices[r] * bins + b
            _place_axis(placed, r * bins + b, 0, _axis_of_bin(rows, b // shape.bins_x), shape.height)
            _place_axis(placed, r * bins + b, 1, _axis_of_bin(columns, b % shape.bins_x), shape.width)
    return 0


@compiled
def _axis_of_bin(axis: Axis, p: int) -> Axis:
    """The samples of bin p alone."""
    shift = axis.shift + p * axis.samples
    origin, size, samples, steps = axis.origin, axis.size, axis.samples, axis.steps
    return Axis(origin, size, 1, samples, shift, steps, axis.scale, axis.is_fixed, axis.rule, axis.least, axis.margin)


@compiled
def place_dml_regions(regions: Doubles, placed: PlacedRois, parameters: Words) -> int:
    """Place the samples of all regions by DirectML's convention; see `place_onnx_rois`.

    The parameters are spatial_scale_y, spatial_scale_x, input_pixel_offset and output_pixel_offset as float64 bits,
    minimum_samples_per_output, maximum_samples_per_output, align_regions_to_corners and the interpolation rule.
    """
    shape, p, real = placed.shape, parameters, float64_pointer(parameters)
    for r in range(shape.rois):
        if not is_valid_roi(regions, 4, placed, r):
            return r
        for k in range(2):
            r1, r2 = regions[4 * r + 1 - k], regions[4 * r + 3 - k]
            bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
            axis = _dml_axis(r1, r2, real[1 if k else 0], real[2], real[3], bins, p[4], p[5], p[6] != 0, p[7])
            _place_axis(placed, r, k, axis, length)
    return -1
