"""Coordinates of the samples of rotated regions, the pixels that they read, and derivatives.

Sizes: R regions, PH x PW bins, KY x KX listed samples of a bin, along the height and the width of the region before its
rotation. Samples that may be on the map are listed: at most as many as fit on its diagonal, or as an attribute demands. So
memory does not grow with a region. If a region is so large, or so far away, that rounding moves samples by more than
`MAX_SLACK` pixels, some samples that rounding moves on to the map are not listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from onnx_models.portable.graph import Value, arange
from onnx_models.portable.regions import LARGEST, RoiInputs
from onnx_models.portable.sampling import (
    EPSILON,
    AxisTaps,
    along_bins,
    is_inside,
    largest_count,
    pixels_and_weights,
    samples_between,
    samples_per_bin,
)
from ortops.operators.roi_align_rotated import MAX_SAMPLING_RATIO

MAX_SLACK = 64.0
"""The margin around the map, in pixels, in which samples are listed, since rounding may move them on to the map."""

QUARTER, QUARTER_REST = math.pi / 2, 6.123233995736766e-17
"""Pi/2 as a double, and its rounding error."""

Window = tuple[Value, Value]
"""The pixels that each region can read along an axis, int64[R] each: the first and the one after the last."""


@dataclass(frozen=True)
class Side:
    """The listed samples along one side of each region before its rotation.

    size: the length in pixels, [R, 1, 1].
    size_derivative: 1, or 0 for a region of the minimum size, [R, 1, 1].
    per_bin: the number of all samples of a bin, at least 1, [R, 1, 1].
    counts: [R, P], int64, the number of listed samples that a bin needs, at least 1.
    exists: [R, P, K], False where a bin has fewer samples than are listed.
    position: [R, P, K], the offset of a sample from the middle, relative to the size.
    """

    size: Value
    size_derivative: Value
    per_bin: Value
    counts: Value
    exists: Value
    position: Value


@dataclass(frozen=True)
class Grid:
    """The samples of all regions, with values [R, 1, 1], or of some bins, with values in another shape.

    middle_y, middle_x: the centre of each region on the map, in pixels.
    cos, sin: the cosine and sine of its counter-clockwise angle.
    angle_sign: 1, or -1 if stored angles are clockwise.
    scale: pixels for each unit of the stored coordinates.
    height, width: the region's sides.
    lengths: H and W of the map, [1] each in the type of coordinates.
    """

    middle_y: Value
    middle_x: Value
    cos: Value
    sin: Value
    angle_sign: Value
    scale: Value
    height: Side
    width: Side
    lengths: tuple[Value, Value]

    def row_of_bins(self, region: Value, row: Value) -> Grid:
        """Return one row of bins of one region (indices, int64[1]), with samples of the shape [PW, KY, KX]."""
        start = region.graph.constant([0], "int64")
        listed_y = self.height.counts.gather(region).squeeze(0).gather(row)
        listed_x = self.width.counts.gather(region).max(1)
        return self._viewed(
            lambda value: value.gather(region),
            lambda along: along.gather(region).squeeze(0).gather(row).slice(1, start, listed_y).unsqueeze(2),
            lambda along: along.gather(region).squeeze(0).slice(1, start, listed_x).unsqueeze(1),
        )

    def all_bins(self) -> Grid:
        """Return all bins of all regions, with samples of the shape [R, PH, PW, KY, KX]."""
        return self._viewed(
            lambda value: value.unsqueeze(3, 4),
            lambda along: along.unsqueeze(2, 4),
            lambda along: along.unsqueeze(1, 3),
        )

    def windows(self) -> tuple[Window, Window]:
        """Return the pixels that each region can read, along y and along x."""
        height, width = self.height.size, self.width.size
        reach_y = (abs(height * self.cos) + abs(width * self.sin)) / 2.0
        reach_x = (abs(width * self.cos) + abs(height * self.sin)) / 2.0
        along_y, along_x = (
            self._window(middle, reach, length)
            for middle, reach, length in zip(
                (self.middle_y, self.middle_x), (reach_y, reach_x), self.lengths, strict=True
            )
        )
        return along_y, along_x

    @staticmethod
    def _window(middle: Value, reach: Value, length: Value) -> Window:
        last = length - 1.0
        # One pixel for interpolation and one for rounding errors.
        first = (middle - reach - 1.0).floor().at_least(0.0).at_most(last)
        end = (middle + reach + 2.0).ceil().at_least(first).at_most(last) + 1.0
        return first.reshape(-1).cast("int64"), end.reshape(-1).cast("int64")

    def offsets(self) -> tuple[Value, Value]:
        """Return the offsets of samples from the centre along the region's width and height, u and v, in pixels."""
        return self.width.size * self.width.position, self.height.size * self.height.position

    def sample_weights(self) -> Value:
        """Return the weight of each sample in the mean of its bin, 0 off the map."""
        return self.inside().cast("double") / (self.height.per_bin * self.width.per_bin)

    def axis_taps(self) -> tuple[AxisTaps, AxisTaps]:
        """Return the taps of samples along y and along x; a sample off the map reads any pixel."""
        inside = self.inside()
        along_y, along_x = (
            pixels_and_weights(c, inside, length, "onnx")
            for c, length in zip(self._coordinates(), self.lengths, strict=True)
        )
        return along_y, along_x

    def roi_derivatives(self, by_y: Value, by_x: Value) -> list[Value]:
        """Return the derivatives by cx, cy, w, h and the angle for each sample, given those by the sample's y and x."""
        u, v = self.offsets()
        along_width = by_x * self.cos - by_y * self.sin
        along_height = by_x * self.sin + by_y * self.cos
        return [
            by_x * self.scale,
            by_y * self.scale,
            along_width * self.width.position * self.width.size_derivative * self.scale,
            along_height * self.height.position * self.height.size_derivative * self.scale,
            (along_width * v - along_height * u) * self.angle_sign,
        ]

    def _coordinates(self) -> tuple[Value, Value]:
        """Return the coordinates of samples on the map, y and x, in pixels."""
        u, v = self.offsets()
        return self.middle_y + v * self.cos - u * self.sin, self.middle_x + u * self.cos + v * self.sin

    def inside(self) -> Value:
        """Return whether a sample is on the map."""
        y, x = self._coordinates()
        height, width = self.lengths
        return self.height.exists & self.width.exists & is_inside(y, height) & is_inside(x, width)

    def _viewed(
        self, scalar: Callable[[Value], Value], along_y: Callable[[Value], Value], along_x: Callable[[Value], Value]
    ) -> Grid:
        def side(of: Side, along: Callable[[Value], Value]) -> Side:
            return replace(
                of,
                size=scalar(of.size),
                size_derivative=scalar(of.size_derivative),
                per_bin=scalar(of.per_bin),
                exists=along(of.exists),
                position=along(of.position),
            )

        return replace(
            self,
            middle_y=scalar(self.middle_y),
            middle_x=scalar(self.middle_x),
            cos=scalar(self.cos),
            sin=scalar(self.sin),
            height=side(self.height, along_y),
            width=side(self.width, along_x),
        )


def grid(
    roi_inputs: RoiInputs, *, aligned: Value, clockwise: Value, scale: Value, ratio: Value, listed: Value | None
) -> Grid:
    """Place samples as RoIAlignRotated does.

    Args:
        roi_inputs: the regions' stored cx, cy, w, h and angle, the bins and the map.
        aligned: 1 for regions that are shifted by -0.5 pixels and have no minimum size.
        clockwise: 1 if angles are clockwise as seen on the image.
        scale: pixels for each unit of the stored coordinates.
        ratio: samples of a bin along an axis; 0 for its size in pixels, rounded up.
        listed: the number of samples to list for each bin if all are listed; None to list those that may be on the map.

    Source: `ortops.operators.roi_align_rotated`.
    """
    cx, cy, w, h, angle = roi_inputs.coordinates
    least = (aligned > 0.0).where(scale.graph.constant(-LARGEST, "double"), 1.0)
    stored = [cx * scale - aligned * 0.5, cy * scale - aligned * 0.5, w * scale, h * scale]
    # A region whose scaled coordinates overflow has no finite samples.
    is_finite = abs(stored[0]) <= LARGEST
    for number in stored[1:]:
        is_finite = is_finite & (abs(number) <= LARGEST)
    x, y, width, height = (is_finite.where(number, 0.0) for number in stored)
    angle_sign = 1.0 - clockwise * 2.0
    sin, cos = _sin(angle * angle_sign), _cos(angle * angle_sign)
    # The offset from the region's centre to the map's, and the distances from there to the map's ends.
    map_height, map_width = (length.cast("double") for length in roi_inputs.map_lengths[2:])
    slack = ((abs(x) + abs(y) + map_height + map_width) * (16 * EPSILON)).at_most(MAX_SLACK)
    to_y, to_x = map_height / 2.0 - 0.5 - y, map_width / 2.0 - 0.5 - x
    half_y, half_x = map_height / 2.0 + 0.5 + slack, map_width / 2.0 + 0.5 + slack
    bins_y, bins_x = roi_inputs.bins
    across = to_x * cos - to_y * sin, half_x * abs(cos) + half_y * abs(sin)
    along = to_x * sin + to_y * cos, half_x * abs(sin) + half_y * abs(cos)

    def side(size: Value, bins: Value, of_map: tuple[Value, Value]) -> Side:
        sized = size.at_least(least)
        per_bin = is_finite.where(samples_per_bin(sized, bins.cast("double"), ratio), 0.0)
        return _side(sized, (size >= least).cast("double"), bins, per_bin, of_map, listed)

    sides = side(height, bins_y, along), side(width, bins_x, across)
    return Grid(y, x, cos, sin, angle_sign, scale, *sides, (map_height, map_width))


def _sin(t: Value) -> Value:
    return t.op("Sin")


def _cos(t: Value) -> Value:
    # ONNX Runtime 1.20 has no Cos of double. This is exact at right angles, which must not move samples off the border.
    s = t + QUARTER
    rest = (t - (s - (s - t))) + (QUARTER - (s - t)) + QUARTER_REST
    # From 1e8 on, an angle is itself known to 1e-8 at best, so an error of 1e-16 does not matter.
    return (abs(t) < 1e8).where(_sin(s) - _sin(t) * rest, 1.0 - _sin(t / 2.0) * _sin(t / 2.0) * 2.0)


def _side(
    size: Value,
    size_derivative: Value,
    bins: Value,
    per_bin: Value,
    of_map: tuple[Value, Value],
    listed: Value | None,
) -> Side:
    """List the samples along a side. From its middle, the map extends from `of_map[0] - of_map[1]` to their sum."""
    graph = size.graph
    at_least_one = per_bin.at_least(1.0)
    total = bins.cast("double") * at_least_one
    step = size / total
    is_point = step.equals(0.0)
    pixels = is_point.where(graph.constant(1.0, "double"), step)
    # The fractional index of the region's middle, counted from the first sample of each bin.
    middle = (bins.cast("double") / 2.0 - along_bins(bins)) * at_least_one - 0.5
    if listed is None:
        ends = middle + (of_map[0] - of_map[1]) / pixels, middle + (of_map[0] + of_map[1]) / pixels
        first, counts = samples_between(ends, graph.constant(2.0, "double"), per_bin, is_point)
        # The difference of two large indices may be inexact, but not the number of samples that fit on the map.
        limit = is_point.where(at_least_one.at_most(MAX_SAMPLING_RATIO), (of_map[1] * 2.0 / abs(pixels)).ceil() + 6.0)
        counts = counts.at_least(1.0).at_most(limit).at_most(at_least_one).cast("int64")
    else:
        first, counts = (value.reshape(1, 1, 1) for value in (graph.constant(0.0, "double"), listed.cast("int64")))
    i = first + arange(largest_count(counts)).cast("double")
    return Side(size, size_derivative, at_least_one, counts.squeeze(2), i < per_bin, (i - middle) / total)
