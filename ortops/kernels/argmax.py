"""The argmax of a bin, in the two meanings of `maximum.py`, and what its gradient adds to.

Weights and products are float64, so that rounding to float32 causes no ties.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ortops.kernels.jit.compile import compiled, noinline
from ortops.kernels.jit.scalar import cast_like, load
from ortops.kernels.tables import OFF_MAP, Table

WHOLE_SAMPLE = 4
"""In place of a corner's number (0 to 3) if the maximum is an interpolated sample."""


@compiled
def is_new_max(value: float, best: float) -> bool:
    """Whether value replaces best in an argmax: the first of equals and the first NaN stay, as in numpy.argmax."""
    return value > best or (value != value and best == best)


@compiled
def _pixel_or_zero(x: Any, stride: int, y: int, at: int) -> float:
    """A pixel as a float64; 0 if y or at is -1, where the weight is 0, too."""
    return float(load(x, y * stride + at)) if y >= 0 and at >= 0 else 0.0


@compiled
def _pixels_of(where: int) -> tuple[int, int]:
    """The two pixels of a candidate; -1 for a pixel that is off the map or not read."""
    if where == OFF_MAP:
        return -1, -1
    return where // 2, where // 2 + 1 if where % 2 == 1 else -1


@noinline
def _argmax(
    x: Any, width: int, rows: Table, columns: Table, p: int, q: int, takes_corners: bool
) -> tuple[int, int, int]:
    """The row candidate, the column candidate and the corner of bin (p, q)'s maximum; corner -1 if it is off the map.

    Weights and products are float64, so that rounding to float32 causes no ties.
    """
    best, best_i, best_j, best_corner = -np.inf, -1, -1, -1
    for i in range(rows.start[p], rows.start[p + 1]):
        fy = rows.weight[i]
        top, bottom = _pixels_of(rows.pixel[i])
        for j in range(columns.start[q], columns.start[q + 1]):
            fx = columns.weight[j]
            left, right = _pixels_of(columns.pixel[j])
            if top < 0 or left < 0:
                if best_i < 0 or is_new_max(0.0, best):
                    best, best_i, best_j, best_corner = 0.0, i, j, -1
                continue
            a = (1.0 - fy) * (1.0 - fx) * _pixel_or_zero(x, width, top, left)
            b = (1.0 - fy) * fx * _pixel_or_zero(x, width, top, right)
            c = fy * (1.0 - fx) * _pixel_or_zero(x, width, bottom, left)
            d = fy * fx * _pixel_or_zero(x, width, bottom, right)
            if not takes_corners:
                value = a + b + c + d
                if best_i < 0 or is_new_max(value, best):
                    best, best_i, best_j, best_corner = value, i, j, WHOLE_SAMPLE
                continue
            for corner in range(4):
                value = (a if corner == 0 else b) if corner < 2 else (c if corner == 2 else d)
                if best_i < 0 or is_new_max(value, best):
                    best, best_i, best_j, best_corner = value, i, j, corner
    return best_i, best_j, best_corner


@compiled
def add_maximum_gradient(
    x: Any, dy: Any, width: int, rows: Table, columns: Table, takes_corners: bool, dx: Any, drois: Any, has_dx: bool
) -> None:
    """Scatter the gradient dy [PH, PW] of one channel to each bin's argmax: into dx [H, W] if has_dx, else drois [4]."""
    for p in range(rows.bins):
        for q in range(columns.bins):
            i, j, winning = _argmax(x, width, rows, columns, p, q, takes_corners)
            if winning < 0:
                continue
            g = float(load(dy, p * columns.bins + q))
            top, bottom = _pixels_of(rows.pixel[i])
            left, right = _pixels_of(columns.pixel[j])
            for corner in range(4):
                below, beside = corner >= 2, corner % 2 == 1
                at_y, at_x = bottom if below else top, right if beside else left
                if (winning != corner and winning != WHOLE_SAMPLE) or at_y < 0 or at_x < 0:
                    continue
                wy = rows.weight[i] if below else 1.0 - rows.weight[i]
                wx = columns.weight[j] if beside else 1.0 - columns.weight[j]
                at = at_y * width + at_x
                if has_dx:
                    dx[at] = cast_like(dx, dx[at] + g * wy * wx)
                else:
                    value = g * float(load(x, at))
                    along_x = value * wy * (1.0 if beside else -1.0)
                    along_y = value * wx * (1.0 if below else -1.0)
                    drois[0] += along_x * columns.near[j]
                    drois[1] += along_y * rows.near[i]
                    drois[2] += along_x * columns.far[j]
                    drois[3] += along_y * rows.far[i]
