# SPDX-License-Identifier: MIT
"""A rotated RoI's sample grid: two axes as in `axis`, rotated about the RoI's centre."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ortops.compiler.compile import compiled
from ortops.compiler.scalar import cos, float64_pointer, maximum, minimum, offset, sin
from ortops.native.elements import Doubles, Words
from ortops.native.kernels.axis import Axis, axis_of, is_valid_roi, onnx_axis, pixels_of_regions, region, write_axis
from ortops.native.kernels.layout import PlacedRois


class Grid(NamedTuple):
    """A rotated RoI's samples along its own two axes, and the rotation.

    rows, columns: the axes along the RoI's height and width; their origin is the RoI's centre on the map.
    cos, sin: the cosine and the sine of the counter-clockwise angle.
    direction: d(angle)/d(stored angle).
    """

    rows: Axis
    columns: Axis
    cos: float
    sin: float
    direction: float


@compiled
def grid_of(placed: PlacedRois, r: int) -> Grid:
    """The sample grid of RoI r."""
    shape, rotation = placed.shape, offset(placed.rotations, 3 * r)
    rows, columns = axis_of(placed.axes, r, 0, shape.bins_y), axis_of(placed.axes, r, 1, shape.bins_x)
    return Grid(rows, columns, rotation[0], rotation[1], rotation[2])


@compiled
def from_centre(axis: Axis, i: int) -> float:
    """The position of sample i, counted over all bins, on the RoI's axis: a fraction of the RoI's size from its centre."""
    return (i + axis.shift) / axis.steps - 0.5


@compiled
def row_point(grid: Grid, i: int) -> tuple[float, float]:
    """The point (x, y) on the map where row i of the samples crosses the RoI's vertical axis."""
    v = grid.rows.size * from_centre(grid.rows, i)
    return grid.columns.origin + v * grid.sin, grid.rows.origin + v * grid.cos


@compiled
def _first_beyond(axis: Axis, low: int, high: int, at: float, slope: float, limit: float, counts: bool) -> int:
    """The first of the samples low:high whose value at + slope*u, which ascends, is beyond the limit; else `high`.

    `counts` says whether a value equal to the limit counts as beyond it.
    """
    last = high
    while low < high:
        # Tests the last sample first, since usually no sample is beyond the limit.
        middle = high - 1 if high == last else low + (high - low) // 2
        value = at + slope * (axis.size * from_centre(axis, middle))
        if value > limit or (counts and value == limit):
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def samples_within(
    axis: Axis, low: int, high: int, at: float, slope: float, near: float, far: float
) -> tuple[int, int]:
    """The samples of low:high whose value at + slope*u lies between near and far; u is the position on the RoI's axis.

    Bisects the rounded values, which stay monotonic under any rounding.
    """
    if slope * axis.size < 0.0:
        at, slope, near, far = -at, -slope, -far, -near
    low = _first_beyond(axis, low, high, at, slope, near, True)
    return low, _first_beyond(axis, low, high, at, slope, far, False)


@compiled
def lines_within(grid: Grid, low: int, high: int, height: int, width: int) -> tuple[int, int]:
    """The sample rows of low:high that can meet the map."""
    # For a sample on the map, u and v are at most the distance from the centre to the map. This bounds the rounding error.
    # If the error exceeds the map's size, coordinates are meaningless, and rows may be left out.
    x, y = grid.columns.origin, grid.rows.origin
    slack = 1.0 + minimum(2.0**-48 * (abs(x) + abs(y) + height + width), float(height + width))
    near, far = np.inf, -np.inf
    for corner in range(4):
        across = (width if corner % 2 else -1.0) - x
        down = (height if corner // 2 else -1.0) - y
        v = across * grid.sin + down * grid.cos
        near, far = minimum(near, v), maximum(far, v)
    return samples_within(grid.rows, low, high, 0.0, 1.0, near - slack, far + slack)


@compiled
def _place_grid(placed: PlacedRois, r: int) -> None:
    """Store the part of the map that RoI r can read, and the most pixels that one of its bins can read."""
    grid, shape, limits = grid_of(placed, r), placed.shape, offset(placed.limits, 3 * r)
    rows, columns = grid.rows, grid.columns
    placed.spans[2 * r] = placed.spans[2 * r + 1] = limits[0] = limits[1] = limits[2] = 0
    # If a size or a centre overflowed, no sample has a finite coordinate on the map.
    most = maximum(maximum(abs(rows.origin), abs(columns.origin)), maximum(abs(rows.size), abs(columns.size)))
    if rows.samples == 0 or columns.samples == 0 or most == np.inf:
        return
    left, top, right, bottom = np.inf, np.inf, -np.inf, -np.inf
    for corner in range(4):
        line_x, line_y = row_point(grid, rows.bins * rows.samples - 1 if corner // 2 else 0)
        u = columns.size * from_centre(columns, columns.bins * columns.samples - 1 if corner % 2 else 0)
        x, y = line_x + u * grid.cos, line_y - u * grid.sin
        left, top, right, bottom = minimum(left, x), minimum(top, y), maximum(right, x), maximum(bottom, y)
    line, lines = pixels_of_regions(region(rows, top, shape.height), region(rows, bottom, shape.height), shape.height)
    pixel, pixels = pixels_of_regions(
        region(columns, left, shape.width), region(columns, right, shape.width), shape.width
    )
    if lines == 0 or pixels == 0:
        return
    limits[0], limits[1] = line, pixel
    placed.spans[2 * r], placed.spans[2 * r + 1] = lines, pixels
    # A sample reads pixels up to 1 away along either axis. So a bin's pixels lie in the rectangle of its samples, extended
    # by 1 and by rounding. A convex body has at most area + perimeter/2 + 1 lattice points (Nosarzewska, 1948).
    a = abs(columns.size) / columns.bins
    b = abs(rows.size) / rows.bins
    a, b = a - a / columns.samples, b - b / rows.samples
    around = 1.0 + 2.0**-46 * most
    box = (a + b) * (abs(grid.cos) + abs(grid.sin))
    area = a * b + 2.0 * around * box + 4.0 * around * around + a + b + 4.0 * around + 2.0
    most = minimum(area, 4.0 * float(rows.samples) * float(columns.samples))
    limits[2] = int(minimum(most, float(lines) * float(pixels)))


@compiled
def place_rotated_rois(rois: Doubles, placed: PlacedRois, parameters: Words) -> int:
    """Place the samples of all rotated RoIs [R, 5], each cx, cy, w, h, angle; see `axis.place_onnx_rois`.

    The parameters are spatial_scale, as a float64's bits, aligned, sampling_ratio and clockwise.
    """
    shape, scale, aligned = placed.shape, float64_pointer(parameters)[0], parameters[1] != 0
    sampling_ratio, clockwise = parameters[2], parameters[3] != 0
    for r in range(shape.rois):
        if not is_valid_roi(rois, 5, placed, r):
            return r
        for k in range(2):
            centre, size = rois[5 * r + 1 - k], rois[5 * r + 3 - k]
            bins = shape.bins_x if k else shape.bins_y
            write_axis(placed, r, k, onnx_axis(centre, size, scale, aligned, bins, sampling_ratio))
        rotation = offset(placed.rotations, 3 * r)
        rotation[2] = -1.0 if clockwise else 1.0
        angle = rois[5 * r + 4] * rotation[2]
        rotation[0], rotation[1] = cos(angle), sin(angle)
        _place_grid(placed, r)
    return -1
