"""The average over samples as two thin matrix products, Y = A_y X A_x^T, and its transposes.

A map is a matrix of lines [H, W * lanes]: of one channel (lanes = 1), or of LANES channels side by side (`panels.py`).
The lines that a bin needs are combined first, elementwise; then each output is a short sum over one combined line. `lanes`
is a constant wherever these functions are called, so the loops over it become vector instructions.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ortops.kernels.element import Array, widen
from ortops.kernels.tables import Weights, span_of_weights

# No sum is reordered: the vectors run over pixels or lanes, and a short sum is faster as it stands.
FAST = {"contract"}

FAST_SUM = {"contract", "reassoc"}
"""For a long sum of its own, as many at once as a vector has: the same order in every run."""


@njit(nogil=True, fastmath=FAST)
def combine_lines(x: Array, rows: Weights, weight: Array, p: int, low: int, high: int, line: Array) -> None:
    """line[low:high] = row p of A_y X: weight is the rows' own or a derivative of it."""
    for j in range(np.uintp(low), np.uintp(high)):
        line[j] = 0.0
    start, end, top = rows.start[p], rows.start[p + 1], rows.first[p]
    for i in range(start, end):
        w = weight[i]
        if w != 0.0:
            at = top + i - start
            for j in range(np.uintp(low), np.uintp(high)):
                line[j] += w * widen(x[at, j])


@njit(nogil=True, fastmath=FAST)
def add_line(line: Array, rows: Weights, p: int, low: int, high: int, dx: Array) -> None:
    """The transpose of `combine_lines`: dX += A_y^T line, of row p."""
    start, end, top, weight = rows.start[p], rows.start[p + 1], rows.first[p], rows.weight
    for i in range(start, end):
        w = weight[i]
        if w != 0.0:
            at = top + i - start
            for j in range(np.uintp(low), np.uintp(high)):
                dx[at, j] += w * line[j]


@njit(nogil=True, fastmath=FAST, inline="always")
def sum_columns(line: Array, columns: Weights, lanes: int, p: int, y: Array) -> None:
    """Row p of Y = A_x line: each bin's weighted sum over the pixels of a combined line."""
    starts, firsts, weight = columns.start, columns.first, columns.weight
    for q in range(firsts.size):
        start, left = starts[q], firsts[q]
        if lanes == 1:  # in a register: measured, 6 % of a call with one RoI
            total = line.dtype.type(0.0)
            for i in range(starts[q + 1] - start):
                total += weight[start + i] * line[np.uintp(left + i)]
            y[p, np.uintp(q)] = total
            continue
        for k in range(lanes):
            y[p, np.uintp(q * lanes + k)] = 0.0
        for i in range(starts[q + 1] - start):
            w = weight[start + i]
            for k in range(lanes):
                y[p, np.uintp(q * lanes + k)] += w * line[np.uintp((left + i) * lanes + k)]


@njit(nogil=True, fastmath=FAST, inline="always")
def spread_columns(
    dy: Array, columns: Weights, weight: Array, lanes: int, p: int, low: int, high: int, line: Array
) -> None:
    """The transpose of `sum_columns`: line[low:high] = A_x^T dY, of row p; weight is the columns' own or a derivative."""
    for j in range(np.uintp(low), np.uintp(high)):
        line[j] = 0.0
    starts, firsts = columns.start, columns.first
    for q in range(firsts.size):
        start, left = starts[q], firsts[q]
        for i in range(starts[q + 1] - start):
            w = weight[start + i]
            for k in range(lanes):
                line[np.uintp((left + i) * lanes + k)] += w * widen(dy[p, np.uintp(q * lanes + k)])


@njit(nogil=True)
def _add_outside(rows: Weights, columns: Weights, outside: float, lanes: int, y: Array) -> None:
    """Add the samples off the map to the averages y [PH, PW * lanes]."""
    for p in range(y.shape[0]):
        for q in range(columns.first.size):
            share = 1.0 - rows.inside[p] * columns.inside[q]
            if share > 0.0:
                for k in range(lanes):
                    y[p, q * lanes + k] += share * outside


@njit(nogil=True, fastmath=FAST, inline="always")
def average(x: Array, rows: Weights, columns: Weights, outside: float, lanes: int, line: Array, y: Array) -> None:
    """Y = A_y X A_x^T of one map: x [H, W * lanes], y [PH, PW * lanes], line [W * lanes] to work in.

    A sample off the map has the value `outside`.
    """
    low, high = span_of_weights(columns)
    for p in range(y.shape[0]):
        combine_lines(x, rows, rows.weight, p, low * lanes, high * lanes, line)
        sum_columns(line, columns, lanes, p, y)
    if outside != 0.0:
        _add_outside(rows, columns, outside, lanes, y)


@njit(nogil=True, fastmath=FAST, inline="always")
def add_average_gradient(dy: Array, rows: Weights, columns: Weights, lanes: int, line: Array, dx: Array) -> None:
    """Add A_y^T dY A_x to dX, of one map: dy [PH, PW * lanes], dx [H, W * lanes], line [W * lanes] to work in."""
    low, high = span_of_weights(columns)
    for p in range(dy.shape[0]):
        spread_columns(dy, columns, columns.weight, lanes, p, low * lanes, high * lanes, line)
        add_line(line, rows, p, low * lanes, high * lanes, dx)


@njit(nogil=True, fastmath=FAST_SUM, inline="always")
def _dot(lines: Array, i: int, line: Array, low: int, high: int) -> float:
    """The sum over [low, high) of the products of line i of some and of another line."""
    total = line.dtype.type(0.0)
    for j in range(np.uintp(low), np.uintp(high)):
        total += widen(lines[i, j]) * line[j]
    return total


@njit(nogil=True, fastmath=FAST, inline="always")
def add_average_box_gradient(
    x: Array, dy: Array, rows: Weights, columns: Weights, lanes: int, work: Array, drois: Array
) -> None:
    """Add the derivatives with respect to x1, y1, x2, y2 to drois [4], of one map: x [H, W * lanes], dy [PH, PW * lanes].

    They are sums of dY * (A_y X A_x^T) with the derivative of A_y or of A_x in place of the matrix itself, done as
    (A_y X) * (dY^T A_x') and as A_y' * (X (dY A_x)^T): of the lines of X only one sum has to be made. work [4, W * lanes].
    """
    low, high = span_of_weights(columns)
    low, high = low * lanes, high * lanes
    line, spread, spread_near, spread_far = work
    for p in range(dy.shape[0]):
        combine_lines(x, rows, rows.weight, p, low, high, line)
        spread_columns(dy, columns, columns.weight, lanes, p, low, high, spread)
        spread_columns(dy, columns, columns.near, lanes, p, low, high, spread_near)
        spread_columns(dy, columns, columns.far, lanes, p, low, high, spread_far)
        drois[0] += _dot(work, 2, line, low, high)
        drois[2] += _dot(work, 3, line, low, high)
        for i in range(rows.start[p], rows.start[p + 1]):
            if rows.near[i] != 0.0 or rows.far[i] != 0.0:
                total = _dot(x, rows.first[p] + i - rows.start[p], spread, low, high)
                drois[1] += rows.near[i] * total
                drois[3] += rows.far[i] * total
