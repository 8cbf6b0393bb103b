# SPDX-License-Identifier: MIT
"""The bodies of RoIAlignRotated and of its gradient.

Sizes: R regions, PH x PW bins, KY x KX listed samples of a bin, along the height and the width of the region before its
rotation. Samples that may be on the map are listed: at most as many as fit on its diagonal, or as an attribute demands. So
memory does not grow with a region. If a region is so large, or so far away, that rounding moves samples by more than
`MAX_SLACK` pixels, some samples that rounding moves on to the map are not listed.

With loops, dX is A^T dY, where A [PH PW, h w] has the weights of all bins of a region, and h x w are the pixels that the
region can read: memory holds one matrix. A sum over the samples of all regions would take several times as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from onnx_models.portable import samples
from onnx_models.portable.attributes import BodyRequest
from onnx_models.portable.averages import sum_by_image
from onnx_models.portable.graph import Value, arange, concat, zeros
from onnx_models.portable.regions import LARGEST, RoiInputs, name_gradients, read_roi_inputs
from onnx_models.portable.samples import Bins, Pooling, SampleGrid
from onnx_models.portable.sampling import (
    EPSILON,
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


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    a, by_rois = request.attributes, "drois" in request.wanted
    roi_inputs = read_roi_inputs(given, request, reads_map=by_rois)
    regions = _regions(
        roi_inputs,
        aligned=a.number("aligned", "double"),
        clockwise=a.number("clockwise", "double"),
        scale=a.number("spatial_scale", "double"),
        ratio=a.number("sampling_ratio", "double"),
        listed=request.few_samples("sampling_ratio"),
    )
    counts = regions.height.counts, regions.width.counts
    pooling = Pooling(roi_inputs, counts, regions.grid, "avg", request.without_loops)
    if not request.operator.is_gradient:
        return {"Y": samples.forward(pooling, None)}
    dy, by_map = roi_inputs.gradient(), "dX" in request.wanted
    by_samples = by_map and request.without_loops
    dx, drois = samples.gradients(pooling, dy, by_map=by_samples, by_rois=5 * by_rois)
    return name_gradients(given, request, _map_gradient(regions, pooling, dy) if by_map and dx is None else dx, drois)


@dataclass(frozen=True)
class _Side:
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
class _Regions:
    """The regions on the map, [R, 1, 1] each.

    middle_y, middle_x: the centre of each region, in pixels.
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
    height: _Side
    width: _Side
    lengths: tuple[Value, Value]

    def grid(self, bins: Bins) -> SampleGrid:
        """Return the samples of some bins."""
        of, height, width = bins.of_regions, self.height, self.width
        cos, sin = of(self.cos), of(self.sin)
        along_height, along_width = bins.along_y(height.position), bins.along_x(width.position)
        # The offsets from the centre along the region's width and height, in pixels.
        u, v = of(width.size) * along_width, of(height.size) * along_height
        y, x = of(self.middle_y) + v * cos - u * sin, of(self.middle_x) + u * cos + v * sin
        exists = bins.along_y(height.exists) & bins.along_x(width.exists)
        inside = exists & is_inside(y, self.lengths[0]) & is_inside(x, self.lengths[1])

        def roi_derivatives(by_y: Value, by_x: Value) -> list[Value]:
            by_u, by_v = by_x * cos - by_y * sin, by_x * sin + by_y * cos
            return [
                by_x * self.scale,
                by_y * self.scale,
                by_u * along_width * of(width.size_derivative) * self.scale,
                by_v * along_height * of(height.size_derivative) * self.scale,
                (by_u * v - by_v * u) * self.angle_sign,
            ]

        return SampleGrid(
            bins,
            pixels_and_weights(y, inside, self.lengths[0], "onnx"),
            pixels_and_weights(x, inside, self.lengths[1], "onnx"),
            exists,
            inside,
            inside.cast("double") / (of(height.per_bin) * of(width.per_bin)),
            roi_derivatives,
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


def _map_gradient(regions: _Regions, pooling: Pooling, dy: Value) -> Value:
    """Return dX [N, C, H, W] for dY [R, C, PH, PW]: for each region the product of dY with its matrix of weights."""
    roi_inputs = pooling.roi_inputs
    _, channels, height, width = roi_inputs.map_lengths
    bins_y, bins_x = roi_inputs.bins
    windows, none = regions.windows(), dy.graph.constant([0], "int64")
    pooling.largest_x()  # before the loops

    def of_one(number: Value) -> Value:
        region = number.reshape(1)
        rows, columns = ((first.gather(region), end.gather(region)) for first, end in windows)
        lengths = rows[1] - rows[0], columns[1] - columns[0]
        area = lengths[0] * lengths[1]

        def of_row(place: Value, _: list[Value]) -> tuple[list[Value], list[Value]]:
            """Weights of the bins of a row, [PW, h w]."""
            grid = regions.grid(pooling.bins(region * bins_y + place))
            pixels_y, pixels_x = (
                # Rounding can move a sample of a very large region out of its window.
                [(pixel.cast("int64") - first).at_least(0).at_most(length - 1) for pixel in taps.pixels]
                for taps, (first, _), length in zip((grid.y, grid.x), (rows, columns), lengths, strict=True)
            )
            pixels = [y * lengths[1] + x for y in pixels_y for x in pixels_x]
            weights = [grid.shares * y * x for y in grid.y.weights for x in grid.x.weights]
            indices, updates = (
                concat(1, *(value.reshape(bins_x, grid.listed) for value in values)) for values in (pixels, weights)
            )
            empty = zeros("double", bins_x, area)
            row = empty.op("ScatterElements", indices, updates, axis=1, reduction="add")
            return [], [row.cast(roi_inputs.sums)]

        (matrix,) = dy.graph.loop(bins_y, of_row)
        part = dy.gather(region).reshape(channels, bins_y * bins_x) @ matrix.reshape(bins_y * bins_x, area)
        ends = [none, rows[0], columns[0], none, height - rows[1], width - columns[1]]
        return part.reshape(channels, *lengths).op("Pad", concat(0, *ends))

    return sum_by_image(roi_inputs.batch_indices, roi_inputs.map_lengths, roi_inputs.sums, of_one, 1)


def _regions(
    roi_inputs: RoiInputs, *, aligned: Value, clockwise: Value, scale: Value, ratio: Value, listed: Value | None
) -> _Regions:
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

    def side(size: Value, bins: Value, of_map: tuple[Value, Value]) -> _Side:
        sized = size.at_least(least)
        per_bin = is_finite.where(samples_per_bin(sized, bins.cast("double"), ratio), 0.0)
        return _side(sized, (size >= least).cast("double"), bins, per_bin, of_map, listed)

    sides = side(height, bins_y, along), side(width, bins_x, across)
    return _Regions(y, x, cos, sin, angle_sign, scale, *sides, (map_height, map_width))


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
) -> _Side:
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
    return _Side(size, size_derivative, at_least_one, counts.squeeze(2), i < per_bin, (i - middle) / total)
