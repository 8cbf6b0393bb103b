# SPDX-License-Identifier: MIT
"""MaxRoiPool's bins, which consist of whole pixels, and its gradient.

A RoI's ends are rounded, so integer arithmetic gives its bins. Each bin's gradient is added to its argmax.
"""

from __future__ import annotations

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.scalar import (
    cast_like,
    compute_pointer,
    float64_pointer,
    lane_count,
    load,
    maximum,
    minimum,
    offset,
    store,
)
from ortops.compiler.simd import select_new_max
from ortops.native.elements import Doubles, Places, Source, Sums, Words
from ortops.native.kernels.axis import Axis, write_axis
from ortops.native.kernels.layout import NEAREST, PlacedRois, Tables
from ortops.native.kernels.tables import Pixels, pixels_in


@compiled
def _rounded(value: float, largest: int) -> int:
    """Round to the nearest integer, ties away from 0, and clip to [-largest, largest]."""
    size = minimum(abs(value), float(largest))
    whole = int(size)
    # int(size + 0.5) would be wrong: it is 1 for the largest float64 below 0.5.
    whole += 1 if size - whole >= 0.5 else 0
    return whole if value > 0.0 else -whole


@compiled
def place_whole_rois(rois: Doubles, placed: PlacedRois, parameters: Words) -> int:
    """Store the ends and batch indices of all RoIs [R, 5], each batch_id, x1, y1, x2, y2; see `axis.place_onnx_rois`.

    The parameters are spatial_scale, as a float64's bits, and the limit to which scaled and rounded ends are clipped.

    Returns:
        The number of the first RoI that is not finite or has an invalid batch_id; -1 if all RoIs are valid.
    """
    shape, scale, largest = placed.shape, float64_pointer(parameters)[0], parameters[1]
    for r in range(shape.rois):
        roi = offset(rois, 5 * r)
        for k in range(5):
            value = roi[k]
            if value - value != 0.0:
                return r
        image = roi[0]
        if not (0.0 <= image < shape.images) or image != int(image):
            return r
        placed.batch_indices[r] = int(image)
        for k in range(2):
            # Axes are y, x; RoIs have x first.
            start = _rounded(roi[2 - k] * scale, largest)
            end = _rounded(roi[4 - k] * scale, largest)
            bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
            size = maximum(end - start + 1, 1)
            span = maximum(minimum(start + size, length) - maximum(start, 0), 0)
            # There are no samples; `fill_pixel_bins` reads only origin and size.
            write_axis(placed, r, k, Axis(float(start), float(size), bins, 0, 0.0, 1.0, 0.0, True, NEAREST, 0.0, 0.0))
            placed.spans[2 * r + k] = span
    return -1


@noinline
def fill_pixel_bins(axis: Axis, length: int, table: Pixels) -> None:
    """Fill a table with the pixels of each bin that lie on the map.

    Uses integers alone: bin p begins at pixel `low`, where low + rest/bins = start + p*size/bins.
    """
    bins, size = axis.bins, int(axis.size)
    low, rest, at = int(axis.origin), 0, 0
    table.start[0] = 0
    for p in range(bins):
        following, left = low + size // bins, rest + size % bins
        if left >= bins:
            following, left = following + 1, left - bins
        end = following + 1 if left else following
        for pixel in range(maximum(low, 0), minimum(end, length)):
            table.pixel[at] = pixel
            at += 1
        table.start[p + 1] = at
        low, rest = following, left


@compiled
def add_to_argmax(
    source: Source, gradient: Sums, tables: Tables, first_row: int, end_row: int, argmax: Places, dx: Sums, stride: int
) -> None:
    """Add each channel's gradient [PH, PW] to each bin's argmax, if it lies in the given rows of dx [H, W].

    The argmax is the first of equal pixels. Rows of the source and of dx are `stride` pixels apart; `argmax` is a buffer for
    a pixel.
    """
    rows, columns = pixels_in(tables.rows), pixels_in(tables.columns)
    lanes, gradients, to, winners = (
        lane_count(dx), compute_pointer(gradient, dx), compute_pointer(dx, dx), compute_pointer(argmax, argmax)
    )  # fmt: skip
    for p in range(rows.bins):
        for q in range(columns.bins):
            top, left = rows.start[p], columns.start[q]
            bottom, right = rows.start[p + 1], columns.start[q + 1]
            if top == bottom or left == right or rows.pixel[top] >= end_row or rows.pixel[bottom - 1] < first_row:
                continue
            at = rows.pixel[top] * stride + columns.pixel[left]
            best, places = load(source, at), cast_like(argmax, float(at))
            for i in range(top, bottom):
                for j in range(left, right):
                    at = rows.pixel[i] * stride + columns.pixel[j]
                    values = load(source, at)
                    places = select_new_max(values, best, cast_like(argmax, float(at)), places)
                    best = select_new_max(values, best, values, best)
            store(argmax, 0, places)
            is_inside = rows.pixel[top] >= first_row and rows.pixel[bottom - 1] < end_row
            for k in range(lanes):
                at = int(winners[k])
                if is_inside or first_row * stride <= at < end_row * stride:
                    to[at * lanes + k] += gradients[(p * columns.bins + q) * lanes + k]
