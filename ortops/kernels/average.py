"""The average over samples as two thin matrix products, Y = A_y X A_x^T, and its transposes, for one channel.

The lines of the map that a bin needs are combined first, elementwise; then each output is a short sum over one combined
line. `average_panel.py` does the same for many channels at once.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ortops.kernels.compile import INNER
from ortops.kernels.element import Array, widen
from ortops.kernels.weights import Weights, span_of_weights

# No sum is reordered: the vectors run over pixels or lanes, and a short sum is faster as it stands.
FAST = {"contract"}

FAST_SUM = {"contract", "reassoc"}
"""For a long sum of its own, as many at once as a vector has: the same order in every run."""


@njit(**INNER, fastmath=FAST)
def combine_lines(x: Array, rows: Weights, p: int, low: int, high: int, line: Array) -> None:
    """line[low:high] = row p of A_y X."""
    for j in range(np.uintp(low), np.uintp(high)):
        line[j] = 0.0
    for i in range(rows.start[p], rows.start[p + 1]):
        w, at = rows.weight[i], rows.pixel[i]
        for j in range(np.uintp(low), np.uintp(high)):
            line[j] += w * widen(x[at, j])


@njit(**INNER, fastmath=FAST, inline="always")
def sum_columns(line: Array, columns: Weights, p: int, y: Array) -> None:
    """Row p of Y = A_x line: each bin's weighted sum over the pixels of a combined line."""
    start, pixel, weight = columns.start, columns.pixel, columns.weight
    for q in range(start.size - 1):
        total = line.dtype.type(0.0)  # in a register: measured, 6 % of a call with one RoI
        for i in range(start[q], start[q + 1]):
            total += weight[np.uintp(i)] * line[np.uintp(pixel[np.uintp(i)])]
        y[p, np.uintp(q)] = total


@njit(**INNER, fastmath=FAST)
def _spread_columns(dy: Array, columns: Weights, p: int, low: int, high: int, line: Array) -> None:
    """The transpose of `sum_columns`: line[low:high] = A_x^T dY, of row p."""
    for j in range(np.uintp(low), np.uintp(high)):
        line[j] = 0.0
    start, pixel, weight = columns.start, columns.pixel, columns.weight
    for q in range(start.size - 1):
        g = widen(dy[p, np.uintp(q)])
        for i in range(start[q], start[q + 1]):
            line[np.uintp(pixel[np.uintp(i)])] += weight[np.uintp(i)] * g


@njit(**INNER)
def _add_outside(rows: Weights, columns: Weights, outside: float, y: Array) -> None:
    """Add the samples off the map to the averages y [PH, PW]."""
    for p in range(y.shape[0]):
        for q in range(y.shape[1]):
            share = 1.0 - rows.inside[p] * columns.inside[q]
            if share > 0.0:
                y[p, q] += share * outside


@njit(**INNER, fastmath=FAST)
def average(x: Array, rows: Weights, columns: Weights, outside: float, line: Array, y: Array) -> None:
    """Y = A_y X A_x^T of one map: x [H, W], y [PH, PW], line [W] to work in; a sample off the map is `outside`."""
    low, high = span_of_weights(columns)
    for p in range(y.shape[0]):
        combine_lines(x, rows, p, low, high, line)
        sum_columns(line, columns, p, y)
    if outside != 0.0:
        _add_outside(rows, columns, outside, y)


@njit(**INNER, fastmath=FAST)
def add_average_gradient(dy: Array, rows: Weights, columns: Weights, top: int, line: Array, dx: Array) -> None:
    """Add A_y^T dY A_x to dX, of one map: dy [PH, PW], dx its lines from `top` on, line [W] to work in."""
    low, high = span_of_weights(columns)
    for p in range(dy.shape[0]):
        begin, end = rows.start[p], rows.start[p + 1]
        while begin < end and rows.pixel[begin] < top:
            begin += 1
        while begin < end and rows.pixel[end - 1] >= top + len(dx):
            end -= 1
        if begin < end:
            _spread_columns(dy, columns, p, low, high, line)
        for i in range(begin, end):
            w, at = rows.weight[i], rows.pixel[i] - top
            for j in range(np.uintp(low), np.uintp(high)):
                dx[at, j] += w * line[j]


@njit(**INNER, fastmath=FAST_SUM)
def _dot(lines: Array, i: int, line: Array, low: int, high: int) -> float:
    """The sum over [low, high) of the products of line i of some and of another line."""
    total = line.dtype.type(0.0)
    for j in range(np.uintp(low), np.uintp(high)):
        total += widen(lines[i, j]) * line[j]
    return total


@njit(**INNER, fastmath=FAST)
def add_average_box_gradient(
    x: Array, dy: Array, rows: Weights, columns: Weights, line: Array, spread: Array, drois: Array
) -> None:
    """Add the derivatives with respect to x1, y1, x2, y2 to drois [4], of one map: x [H, W], dy [PH, PW].

    They are sums of dY * (A_y X A_x^T) with the derivative of A_y or of A_x in place of the matrix itself, done as
    dY * ((A_y X) A_x') and as A_y' * (X (dY A_x)^T): of the lines of X only one sum has to be made. line and spread [W].
    """
    low, high = span_of_weights(columns)
    for p in range(dy.shape[0]):
        combine_lines(x, rows, p, low, high, line)
        for q in range(dy.shape[1]):
            near, far = line.dtype.type(0.0), line.dtype.type(0.0)
            for i in range(columns.start[q], columns.start[q + 1]):
                value = line[np.uintp(columns.pixel[np.uintp(i)])]
                near += columns.near[np.uintp(i)] * value
                far += columns.far[np.uintp(i)] * value
            g = widen(dy[p, q])
            drois[0] += g * near
            drois[2] += g * far
        _spread_columns(dy, columns, p, low, high, spread)
        for i in range(rows.start[p], rows.start[p + 1]):
            if rows.near[i] != 0.0 or rows.far[i] != 0.0:
                total = _dot(x, rows.pixel[i], spread, low, high)
                drois[1] += rows.near[i] * total
                drois[3] += rows.far[i] * total
