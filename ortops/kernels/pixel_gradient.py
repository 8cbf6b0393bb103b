"""The arithmetic of the gradient of MaxRoiPool: the argmax of each bin, to which its gradient is added."""

from __future__ import annotations

from ortops.kernels.argmax import is_new_max
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.scalar import load, offset
from ortops.kernels.jit.simd import load_lanes, select_new_max, splat, store_lanes
from ortops.kernels.layout import Slot, Stored, Values
from ortops.kernels.tables import pixels_in


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
