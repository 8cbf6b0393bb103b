"""MaxRoiPool's bins, which consist of whole pixels, and its gradient.

A RoI's ends are rounded, so integers give its bins. The gradient of each bin is added to its argmax.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.argmax import is_new_max
from ortops.kernels.axis import Axis, write_axis
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled, noinline
from ortops.kernels.jit.scalar import load, maximum, minimum, offset
from ortops.kernels.jit.simd import load_lanes, select_new_max, splat, store_lanes
from ortops.kernels.layout import NEAREST, PlacedRois, Slot, Stored, Values
from ortops.kernels.tables import Pixels, pixels_in


@compiled
def _rounded(value: float, largest: int) -> int:
    """Round to the nearest integer, ties away from 0, and clip to [-largest, largest]."""
    size = minimum(abs(value), float(largest))
    whole = int(size)
    # Not int(size + 0.5), which is 1 for the largest float64 below 0.5.
    whole += 1 if size - whole >= 0.5 else 0
    return whole if value > 0.0 else -whole


@compiled
def place_whole_rois(rois: Any, placed: PlacedRois, scale: float, largest: int) -> int:
    """Store the ends and the batch indices of all RoIs [R, 5], each batch_id, x1, y1, x2, y2.

    Scaled and rounded ends are clipped to [-largest, largest].

    Returns:
        The number of the first RoI that is not finite or has an invalid batch_id; -1 if there is none.
    """
    shape = placed.shape
    for r in range(shape.rois):
        roi = offset(rois, 5 * r)
        for k in range(5):
            value = float(load(roi, k))
            if value - value != 0.0:
                return r
        image = float(load(roi, 0))
        if not (0.0 <= image < shape.images) or image != int(image):
            return r
        placed.batch_indices[r] = int(image)
        for k in range(2):
            # Axes are y, x; RoIs have x first.
            start = _rounded(float(load(roi, 2 - k)) * scale, largest)
            end = _rounded(float(load(roi, 4 - k)) * scale, largest)
            bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
            size = maximum(end - start + 1, 1)
            span = maximum(minimum(start + size, length) - maximum(start, 0), 0)
            # There are no samples; `fill_pixel_bins` reads only origin and size.
            write_axis(placed, r, k, Axis(float(start), float(size), bins, 0, 0.0, 1.0, 0.0, True, NEAREST, 0.0))
            placed.spans[2 * r + k] = span
    return -1


@noinline
def fill_pixel_bins(axis: Axis, length: int, first: int, table: Pixels) -> None:
    """Fill a table from entry `first` on with the pixels of each bin that lie on the map.

    Uses integers alone: bin p begins at pixel `low`, where low + rest/bins = start + p*size/bins.
    """
    bins, size = axis.bins, int(axis.size)
    low, rest, at = int(axis.origin), 0, first
    table.start[0] = first
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
def add_to_argmax_of_plane(
    plane: Stored,
    gradient: Values,
    row_pixels: Slot,
    column_pixels: Slot,
    _top: int,
    _bottom: int,
    _line: Values,
    dx: Values,
    width: int,
) -> None:
    """Add the gradient [PH, PW] of one channel to the argmax of each bin in dx [H, W]; of equals, to the first."""
    rows, columns = pixels_in(row_pixels), pixels_in(column_pixels)
    for p in range(rows.bins):
        for q in range(columns.bins):
            best, best_at = load(plane, 0), -1
            for i in range(rows.start[p], rows.start[p + 1]):
                for j in range(columns.start[q], columns.start[q + 1]):
                    at = rows.pixel[i] * width + columns.pixel[j]
                    value = load(plane, at)
                    if best_at < 0 or is_new_max(value, best):
                        best, best_at = value, at
            if best_at >= 0:
                dx[best_at] += gradient[p * columns.bins + q]


@compiled
def add_to_argmax_of_panel(
    panel: Values,
    gradient: Values,
    row_pixels: Slot,
    column_pixels: Slot,
    _top: int,
    _bottom: int,
    argmax: Values,
    dx: Values,
    stride: int,
) -> None:
    """`add_to_argmax_of_plane` for a panel; gradient and dx are panels, too, with rows `stride` values apart.

    The argmax of each lane is kept as a float32, which is exact: it is below MAX_MAP_PIXELS*LANES = 2**22.
    """
    rows, columns = pixels_in(row_pixels), pixels_in(column_pixels)
    for p in range(rows.bins):
        for q in range(columns.bins):
            top, left = rows.start[p], columns.start[q]
            bottom, right = rows.start[p + 1], columns.start[q + 1]
            if top == bottom or left == right:
                continue
            at = rows.pixel[top] * stride + columns.pixel[left] * LANES
            best, argmax_lanes = load_lanes(panel, at), splat(panel, float(at))
            for i in range(top, bottom):
                for j in range(left, right):
                    at = rows.pixel[i] * stride + columns.pixel[j] * LANES
                    values = load_lanes(panel, at)
                    argmax_lanes = select_new_max(values, best, splat(panel, float(at)), argmax_lanes)
                    best = select_new_max(values, best, values, best)
            store_lanes(argmax, 0, argmax_lanes)
            of_bin = offset(gradient, (p * columns.bins + q) * LANES)
            for k in range(LANES):
                dx[int(argmax[k]) + k] += of_bin[k]
