# SPDX-License-Identifier: MIT
"""Coordinates of samples, the pixels that they read, borders, and derivatives, for the bodies of all operators.

Height and width are two axes with the same rules. Sizes: R regions, P bins of the output, K listed samples of a bin, T
pixels that a sample reads along the axis, L pixels of the map.

The listed samples of a bin are those on the map, and one more before and after them where there is one. So with samples a
pixel apart, the map limits K, however large a region is; only a number of samples in an attribute can make it larger. The
other samples are off the map, before or after a listed one: a mean needs only their count, and a maximum and its first
winner do not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnx_models.portable.graph import Value, arange, concat

Reading = Literal["onnx", "linear", "nearest"]
"""The pixels that a sample reads: floor and the pixel after it; floor and ceil; or the nearest pixel.

The first two differ only in the derivative exactly on a pixel: it is 0 for floor and ceil, which are then the same pixel.
"""

Rounding = Literal["linear", "half_up", "increasing", "decreasing"]
"""Resampling: interpolation between two pixels, or the rounding to one of them."""

EPSILON = float(np.finfo(np.float64).eps)
"""The relative error of a coordinate, which is a double."""


@dataclass(frozen=True)
class AxisTaps:
    """For samples along one axis of the map, the pixels that each reads, their weights and the weights' derivatives, if any.

    The pixels are whole numbers in the type of coordinates.
    """

    pixels: list[Value]
    weights: list[Value]
    weight_derivatives: list[Value]


@dataclass(frozen=True)
class Placement:
    """A rule for where the samples of a bin lie on an axis.

    bins, length: P and L, int64[1].
    per_bin: the number of samples in each bin, [R, 1, 1] or one number; none if it is not above 0.
    coordinate: takes the indices of samples, [R, P, K], and returns their coordinates in pixels.
    step: the distance from one sample to the next, [R, 1, 1].
    coordinate_derivatives: takes the indices of samples and returns the derivatives of their coordinates by the region's
        two stored coordinates.
    is_inside: takes coordinates and the length of the map, and returns whether they are on the map.
    listed: the number of samples to list for each bin if all are listed; None to list those that can affect a result.
    """

    bins: Value
    length: Value
    per_bin: Value
    coordinate: Callable[[Value], Value]
    step: Value
    coordinate_derivatives: Callable[[Value], tuple[Value, Value]]
    is_inside: Callable[[Value, Value], Value]
    listed: Value | None = None


@dataclass(frozen=True)
class Samples:
    """The listed samples along an axis, and the pixels that they read.

    bins, length: P and L, int64[1].
    counts: [R, P], int64, the number of listed samples that a bin needs, at least 1.
    exists: [R, P, K], False where a bin has fewer samples than are listed.
    inside: [R, P, K], whether a sample is on the map, which reaches about one pixel beyond the first and the last pixel.
    shares: [R, P, K], the weight of each sample in the mean of its bin, 0 off the map.
    taps: pixels, always on the map, weights and derivatives, T values of [R, P, K] each; nearest pixels have no derivatives.
    coordinate_derivatives: [R, P, K] each, by the region's two stored coordinates; None if not wanted.
    """

    bins: Value
    length: Value
    counts: Value
    exists: Value
    inside: Value
    shares: Value
    taps: AxisTaps
    coordinate_derivatives: tuple[Value, Value] | None


def onnx_placement(
    ends: tuple[Value, Value],
    bins: Value,
    length: Value,
    *,
    scale: Value,
    ratio: Value,
    half_pixel: bool,
    listed: Value | None,
) -> Placement:
    """Place samples as RoiAlign does.

    Source: ONNX RoiAlign-16 and -22; where they are unspecific, `onnx.reference.ops.op_roi_align`.

    Args:
        ends: the region's stored coordinates, [R, 1, 1] each.
        bins: P, int64[1].
        length: L, int64[1].
        scale: pixels for each unit of the stored coordinates.
        ratio: samples of a bin; 0 for its size in pixels, rounded up.
        half_pixel: whether regions are shifted by -0.5 pixels and have no minimum size.
        listed: as `Placement.listed`.
    """
    start, size = ends[0] * scale, (ends[1] - ends[0]) * scale
    varies = None if half_pixel else size >= 1.0
    start, size = (start - 0.5, size) if half_pixel else (start, size.at_least(1.0))
    count = bins.cast("double")
    per_bin = samples_per_bin(size, count, ratio)
    steps = count * per_bin.at_least(1.0)
    first = start + along_bins(bins) * size / count

    def position(i: Value) -> Value:
        t = (along_bins(bins) * per_bin + i + 0.5) / steps
        # A region enlarged to the minimum size moves as a whole, with its start.
        return t if varies is None else varies.where(t, 0.0)

    return Placement(
        bins,
        length,
        per_bin,
        lambda i: first + (i + 0.5) * size / steps,
        size / steps,
        _coordinate_derivatives(position, scale),
        is_inside,
        listed,
    )


def samples_per_bin(size: Value, bins: Value, ratio: Value) -> Value:
    """Return the samples of a bin along an axis: ratio, or if that is 0 the bin's pixels rounded up; none if not above 0."""
    return (ratio > 0.0).where(ratio, (size / bins).ceil())


def directml_placement(
    ends: tuple[Value, Value],
    bins: Value,
    length: Value,
    *,
    scale: Value,
    offsets: tuple[Value, Value],
    samples: tuple[Value, Value],
    to_corners: Value,
    listed: Value | None,
) -> Placement:
    """Place samples as DmlRoiAlign does.

    Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC; unspecified details as in the kernels.

    Args:
        ends: as in `onnx_placement`.
        bins: P, int64[1].
        length: L, int64[1].
        scale: pixels for each unit of the stored coordinates.
        offsets: input_pixel_offset and output_pixel_offset.
        samples: the minimum and maximum number of samples of a bin.
        to_corners: 1 if the outermost samples lie on a region's ends, else 0.
        listed: as `Placement.listed`.
    """
    first, last = ends[0] * scale, ends[1] * scale
    count = bins.cast("double")
    per_bin = listed or ((last - first) / count).ceil().at_least(samples[0]).at_most(samples[1])
    steps = count * per_bin - to_corners

    def position(i: Value) -> Value:
        t = (along_bins(bins) * per_bin + i - offsets[1]) / steps.at_least(1.0)
        return (steps > 0.0).where(t, 0.5)

    def coordinate(i: Value) -> Value:
        return first + (last - first) * position(i) - offsets[0]

    return Placement(
        bins,
        length,
        per_bin,
        coordinate,
        (last - first) / steps.at_least(1.0),
        _coordinate_derivatives(position, scale),
        lambda c, pixels: (c > -1.0) & (c <= pixels),
        listed,
    )


def _coordinate_derivatives(position: Callable[[Value], Value], scale: Value) -> Callable[[Value], tuple[Value, Value]]:
    """Return the derivatives of coordinates by a region's ends, given their positions between the ends (0 to 1)."""

    def derivatives(i: Value) -> tuple[Value, Value]:
        t = position(i)
        return (1.0 - t) * scale, t * scale

    return derivatives


def list_samples(placement: Placement, reading: Reading, *, with_derivatives: bool) -> Samples:
    """List the samples that can affect a result, or all.

    Args:
        placement: the rule for their coordinates.
        reading: the pixels that they read.
        with_derivatives: whether the result has `coordinate_derivatives`.
    """
    first, counts = _window(placement) if placement.listed is None else _all(placement, placement.listed)
    i = first + arange(largest_count(counts)).cast("double")
    c = placement.coordinate(i)
    length = placement.length.cast("double")
    exists = i < placement.per_bin
    inside = exists & placement.is_inside(c, length)
    return Samples(
        bins=placement.bins,
        length=placement.length,
        counts=counts.squeeze(2),
        exists=exists,
        inside=inside,
        shares=inside.cast("double") / placement.per_bin.at_least(1.0),
        taps=pixels_and_weights(c, inside, length, reading),
        coordinate_derivatives=placement.coordinate_derivatives(i) if with_derivatives else None,
    )


def resample_taps(
    outputs: Value,
    length: Value,
    reading: Rounding,
    *,
    scale: Value | None,
    offsets: tuple[Value, Value],
) -> tuple[Value, Value, Value | None]:
    """Place samples along one axis as DmlResample does: output o reads at (o - O)/S - I, with repeated edges.

    Args:
        outputs: M, int64[1], the length of the output's axis.
        length: L, int64[1], the length of the input's axis.
        reading: interpolation, or the rounding.
        scale: S; None for M / L.
        offsets: I and O, input_pixel_offset and output_pixel_offset.

    Returns:
        The pixels before and after each coordinate, int64[M] each, and its distance from the former, [M]. With rounding,
        they are the same pixel and the distance is None.

    Source: Microsoft's documentation of DML_RESAMPLE2_OPERATOR_DESC.
    """
    pixels = length.cast("double")
    o = arange(outputs).cast("double") - offsets[1]
    # The ratio is one fraction, so that rounding cannot move an exact integer off its pixel.
    x = (o * pixels / outputs.cast("double") if scale is None else o / scale) - offsets[0]
    if reading == "linear":
        c = _clamped(x, pixels)
        return c.floor().cast("int64"), c.ceil().cast("int64"), c - c.floor()
    rounded = x.ceil() if reading == "increasing" else (x + 0.5 if reading == "half_up" else x).floor()
    pixel = _clamped(rounded, pixels).cast("int64")
    return pixel, pixel, None


def along_bins(bins: Value) -> Value:
    """Return 0 to P - 1, [P, 1]."""
    return arange(bins).cast("double").unsqueeze(1)


def _window(placement: Placement) -> tuple[Value, Value]:
    """Return the index of each bin's first listed sample and how many it needs, [R, P, 1] each, the latter int64."""
    graph, step = placement.step.graph, placement.step
    length = placement.length.cast("double")
    start = placement.coordinate(graph.constant(0.0, "double"))
    is_point = step.equals(0.0)
    per_sample = is_point.where(graph.constant(1.0, "double"), step)
    ends = (-1.0 - start) / per_sample, (length - start) / per_sample
    # One sample off the map, and as many as the rounding errors of a coordinate can add.
    slack = (abs(start) + length) / abs(per_sample) * (16 * EPSILON) + 2.0
    first, count = samples_between(ends, slack, placement.per_bin, is_point)
    return first, count.cast("int64").at_least(1)


def _all(placement: Placement, listed: Value) -> tuple[Value, Value]:
    """As `_window`, for all samples of each bin."""
    first = placement.step.graph.constant(0.0, "double")
    return first.reshape(1, 1, 1), listed.cast("int64").reshape(1, 1, 1)


def samples_between(ends: tuple[Value, Value], slack: Value, per_bin: Value, is_point: Value) -> tuple[Value, Value]:
    """Return the index of the first of a bin's samples between two indices, and their number, as floating-point integers.

    Args:
        ends: the indices, fractional and in any order; they may be out of range.
        slack: the number of samples to add at both ends.
        per_bin: samples of the bin.
        is_point: whether all of the bin's samples have the same coordinate, so that all are returned.
    """
    first = (ends[0].at_most(ends[1]) - slack).floor()
    last = (ends[0].at_least(ends[1]) + slack).ceil()
    # A bin without samples still lists one.
    final = per_bin.at_least(1.0) - 1.0
    first = is_point.where(per_bin.graph.constant(0.0, "double"), first.at_least(0.0).at_most(final))
    last = is_point.where(final, last.at_most(final))
    return first, last - first + 1.0


def largest_count(counts: Value) -> Value:
    """Return the largest count, int64[1]; 1 if there are no counts."""
    return concat(0, counts.reshape(-1), counts.graph.constant([1], "int64")).max(0).reshape(1)


def is_inside(c: Value, length: Value) -> Value:
    """Return whether coordinates are on a map of `length` pixels by ONNX's rule."""
    return (c >= -1.0) & (c <= length)


def pixels_and_weights(c: Value, inside: Value, length: Value, reading: Reading) -> AxisTaps:
    """Return what samples at coordinates c read. A sample that is not inside reads pixel 0."""
    # Coordinates off the map may be infinite or NaN.
    c = inside.where(c, 0.0)
    if reading == "nearest":
        return AxisTaps([_clamped((c + 0.5).floor(), length)], [c * 0.0 + 1.0], [])
    clamped = _clamped(c, length)
    low = clamped.floor()
    f = clamped - low
    if reading == "linear":
        high, is_between = clamped.ceil(), f > 0.0
    else:
        high, is_between = (low + 1.0).at_most(length - 1.0), clamped.equals(c) & (low < length - 1.0)
    derivative = is_between.cast(c.kind)
    return AxisTaps([low, high], [1.0 - f, f], [derivative * -1.0, derivative])


def _clamped(c: Value, length: Value) -> Value:
    return c.at_least(0.0).at_most(length - 1.0)
