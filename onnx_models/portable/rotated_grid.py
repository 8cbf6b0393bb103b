"""Where the samples of rotated regions lie, which pixels they read and how they move.

Sizes: R regions, PH x PW bins, KY x KX samples of a bin that are listed, along the height and the width of the region as it
is before it is turned. Those are listed that may be on the map: no more than cross it from corner to corner, or than an
attribute asks for. So memory does not grow with a region. Where a region is so large, or so far away, that rounding moves
samples by more than `MOST_SLACK` pixels, some of those that it puts on the map are not listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from onnx_models.portable.graph import Kind, Value, arange
from onnx_models.portable.regions import LARGEST, RoiInputs
from onnx_models.portable.sampling import (
    EPSILON,
    along_bins,
    is_inside,
    largest,
    read,
    samples_between,
    samples_per_bin,
)
from ortops.operators.roi_align_rotated import MOST_SAMPLES

MOST_SLACK = 64.0
"""Pixels around the map in which samples are listed, since rounding may move them on to it."""

QUARTER, QUARTER_REST = math.pi / 2, 6.123233995736766e-17
"""Pi/2 as a double, and what that lacks."""

Window = tuple[Value, Value]
"""The pixels that regions can read along an axis, int64[R] each: the first of each and the one after its last."""


@dataclass(frozen=True)
class Side:
    """The listed samples along one side of each region before it is turned.

    size: in pixels, [R, 1, 1].
    size_derivative: 1 where it is a stored number's, 0 where it is the least size, [R, 1, 1].
    per_bin: all samples of a bin, at least 1, [R, 1, 1].
    counts: [R, P], int64, how many of those listed a bin needs, at least 1.
    exists: [R, P, K], False where a bin has fewer samples than are listed.
    share: [R, P, K], where a sample lies in units of the size, from the middle.
    """

    size: Value
    size_derivative: Value
    per_bin: Value
    counts: Value
    exists: Value
    share: Value


@dataclass(frozen=True)
class AxisTaps:
    """The samples of some bins along one axis of the map: its two pixels each, their weights and the weights' slopes."""

    pixels: list[Value]
    weights: list[Value]
    weight_derivatives: list[Value]


@dataclass(frozen=True)
class Grid:
    """The samples of regions, or of some of their bins: what is of the shape [R, 1, 1] here is then of another.

    middle_y, middle_x: of each region on the map, in pixels.
    cos, sin: of the angle by which it is turned counter-clockwise.
    angle_sign: 1, or -1 where stored angles are clockwise.
    scale: pixels to a unit of the stored numbers.
    height, width: the region's sides.
    lengths: H and W, those of the map, [1] each in the type of coordinates.
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

    def every_bin(self) -> Grid:
        """As its samples are [R, PH, PW, KY, KX]."""
        return self._viewed(
            lambda value: value.unsqueeze(3, 4),
            lambda along: along.unsqueeze(2, 4),
            lambda along: along.unsqueeze(1, 3),
        )

    def row_of_bins(self, region: Value, row: Value) -> Grid:
        """One row of bins of one region, int64[1] each, as its samples are [PW, KY, KX]."""
        start = region.graph.constant([0], "int64")
        listed_y = self.height.counts.gather(region).squeeze(0).gather(row)
        listed_x = self.width.counts.gather(region).max(1)
        return self._viewed(
            lambda value: value.gather(region),
            lambda along: along.gather(region).squeeze(0).gather(row).slice(1, start, listed_y).unsqueeze(2),
            lambda along: along.gather(region).squeeze(0).slice(1, start, listed_x).unsqueeze(1),
        )

    def windows(self) -> tuple[Window, Window]:
        """The pixels that each region can read, along y and along x."""
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
        # A pixel for interpolation and one for roundings.
        first = (middle - reach - 1.0).floor().at_least(0.0).at_most(last)
        end = (middle + reach + 2.0).ceil().at_least(first).at_most(last) + 1.0
        return first.reshape(-1).cast("int64"), end.reshape(-1).cast("int64")

    def offsets(self) -> tuple[Value, Value]:
        """Where samples lie from the middle along the region's width and height, u and v, in pixels."""
        return self.width.size * self.width.share, self.height.size * self.height.share

    def part_inside(self) -> Value:
        """For each sample its part of the mean of its bin, 0 for one off the map."""
        return self._inside().cast(self.scale.kind) / (self.height.per_bin * self.width.per_bin)

    def axis_taps(self) -> tuple[AxisTaps, AxisTaps]:
        """What samples read along y and along x; those off the map read any pixel."""
        inside = self._inside()
        along_y, along_x = (
            AxisTaps(*read(c, inside, length, "onnx"))
            for c, length in zip(self._coordinates(), self.lengths, strict=True)
        )
        return along_y, along_x

    def roi_derivatives(self, by_y: Value, by_x: Value) -> list[Value]:
        """The derivatives by cx, cy, w, h and the angle, sample by sample, of the derivatives by a sample's y and x."""
        u, v = self.offsets()
        along_width = by_x * self.cos - by_y * self.sin
        along_height = by_x * self.sin + by_y * self.cos
        return [
            by_x * self.scale,
            by_y * self.scale,
            along_width * self.width.share * self.width.size_derivative * self.scale,
            along_height * self.height.share * self.height.size_derivative * self.scale,
            (along_width * v - along_height * u) * self.angle_sign,
        ]

    def _coordinates(self) -> tuple[Value, Value]:
        """Where samples lie on the map, y and x, in pixels."""
        u, v = self.offsets()
        return self.middle_y + v * self.cos - u * self.sin, self.middle_x + u * self.cos + v * self.sin

    def _inside(self) -> Value:
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
                share=along(of.share),
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


def grid(roi_inputs: RoiInputs, *, aligned: Value, clockwise: Value, scale: Value, ratio: Value) -> Grid:
    """RoIAlignRotated's rule.

    Args:
        roi_inputs: the regions' stored cx, cy, w, h and angle, the bins and the map.
        aligned: 1 for regions half a pixel further back, which have no least size.
        clockwise: 1 where angles are clockwise as seen on the image.
        scale: pixels to a unit of the stored numbers.
        ratio: samples of a bin along an axis; 0 for its size in pixels, rounded up.

    Source: `ortops.operators.roi_align_rotated`.
    """
    kind, graph = scale.kind, scale.graph
    cx, cy, w, h, angle = roi_inputs.coordinates
    least = (aligned > 0.0).where(graph.constant(-LARGEST[kind], kind), 1.0)
    stored = [cx * scale - aligned * 0.5, cy * scale - aligned * 0.5, w * scale, h * scale]
    # What is beyond all numbers has no sample that is a number.
    is_finite = abs(stored[0]) <= LARGEST[kind]
    for number in stored[1:]:
        is_finite = is_finite & (abs(number) <= LARGEST[kind])
    x, y, width, height = (is_finite.where(number, 0.0) for number in stored)
    angle_sign = 1.0 - clockwise * 2.0
    sin, cos = _sin(angle * angle_sign), _cos(angle * angle_sign)
    # From the middle of the region to that of the map, and from there to its ends.
    map_height, map_width = (length.cast(kind) for length in roi_inputs.map_lengths[2:])
    slack = ((abs(x) + abs(y) + map_height + map_width) * (16 * EPSILON[kind])).at_most(MOST_SLACK)
    to_y, to_x = map_height / 2.0 - 0.5 - y, map_width / 2.0 - 0.5 - x
    half_y, half_x = map_height / 2.0 + 0.5 + slack, map_width / 2.0 + 0.5 + slack
    bins_y, bins_x = roi_inputs.bins
    across = to_x * cos - to_y * sin, half_x * abs(cos) + half_y * abs(sin)
    along = to_x * sin + to_y * cos, half_x * abs(sin) + half_y * abs(cos)

    def side(size: Value, bins: Value, of_map: tuple[Value, Value]) -> Side:
        sized = size.at_least(least)
        per_bin = is_finite.where(samples_per_bin(sized, bins.cast(kind), ratio), 0.0)
        return _side(sized, (size >= least).cast(kind), bins, per_bin, of_map)

    sides = side(height, bins_y, along), side(width, bins_x, across)
    return Grid(y, x, cos, sin, angle_sign, scale, *sides, (map_height, map_width))


def _sin(t: Value) -> Value:
    return t.graph.op("Sin", [t], t.kind)


def _cos(t: Value) -> Value:
    if t.kind != "double":
        return t.graph.op("Cos", [t], t.kind)
    # ONNX Runtime 1.20 has no Cos of double. Exact at right angles, which must not move samples from the border.
    s = t + QUARTER
    rest = (t - (s - (s - t))) + (QUARTER - (s - t)) + QUARTER_REST
    # Of an angle that is itself known to 1e-8 at best, it is enough to be right to 1e-16.
    return (abs(t) < 1e8).where(_sin(s) - _sin(t) * rest, 1.0 - _sin(t / 2.0) * _sin(t / 2.0) * 2.0)


def _side(size: Value, size_derivative: Value, bins: Value, per_bin: Value, of_map: tuple[Value, Value]) -> Side:
    """The samples along a side on which the map axis_taps from `of_map[0] - of_map[1]` to their sum, from the middle."""
    kind: Kind = size.kind
    graph = size.graph
    some = per_bin.at_least(1.0)
    total = bins.cast(kind) * some
    step = size / total
    is_point = step.equals(0.0)
    pixels = is_point.where(graph.constant(1.0, kind), step)
    # The number that a sample in the middle would have, from the first of the bin on.
    middle = (bins.cast(kind) / 2.0 - along_bins(bins, kind)) * some - 0.5
    ends = middle + (of_map[0] - of_map[1]) / pixels, middle + (of_map[0] + of_map[1]) / pixels
    first, counts = samples_between(ends, graph.constant(2.0, kind), per_bin, is_point)
    # The difference of two large numbers may be wrong, the number of samples that the map has most for is not.
    most = is_point.where(some.at_most(MOST_SAMPLES), (of_map[1] * 2.0 / abs(pixels)).ceil() + 6.0)
    counts = counts.at_least(1.0).at_most(most).at_most(some).cast("int64")
    i = first + arange(largest(counts)).cast(kind)
    return Side(size, size_derivative, some, counts.squeeze(2), i < per_bin, (i - middle) / total)
