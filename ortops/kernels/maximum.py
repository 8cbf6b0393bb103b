"""The maximum over samples, in both of its meanings, and where it is attained.

`products` False: the largest interpolated sample. True: the largest weighted corner w*x of any sample, as ONNX's reference
evaluator and ONNX Runtime have it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ortops.kernels.average import FAST
from ortops.kernels.candidates import Candidates
from ortops.kernels.compile import INNER
from ortops.kernels.element import Array, widen
from ortops.kernels.weights import Weights, span_of_weights

ALL_CORNERS = 4
"""The number of the winning "corner" where the winner is a whole interpolated sample."""


@njit(**INNER)
def _tap(x: Array, y: int, x_at: int) -> float:
    """The pixel as a number; 0 beyond the map, where its weight is 0 too."""
    return np.float64(widen(x[y, x_at])) if y >= 0 and x_at >= 0 else 0.0


@njit(**INNER)
def _beats(value: float, best: float) -> bool:
    """Whether value takes the lead: the first of equals keeps it, and NaN is above all, as in numpy.max."""
    return value > best or (value != value and best == best)


@njit(**INNER)
def winner(x: Array, rows: Candidates, columns: Candidates, p: int, q: int, products: bool) -> tuple[int, int, int]:
    """Row sample, column sample and corner of the maximum of bin (p, q); corner -1 where it is off the map.

    Weights and products are float64, so that ties are those of the specification and not of a rounding to float32.
    """
    best, best_i, best_j, best_corner = -np.inf, -1, -1, -1
    for i in range(rows.start[p], rows.start[p + 1]):
        top, bottom, fy = rows.low[i], rows.high[i], rows.fraction[i]
        for j in range(columns.start[q], columns.start[q + 1]):
            left, right, fx = columns.low[j], columns.high[j], columns.fraction[j]
            if top < 0 or left < 0:
                if best_i < 0 or _beats(0.0, best):
                    best, best_i, best_j, best_corner = 0.0, i, j, -1
                continue
            a = (1.0 - fy) * (1.0 - fx) * _tap(x, top, left)
            b = (1.0 - fy) * fx * _tap(x, top, right)
            c = fy * (1.0 - fx) * _tap(x, bottom, left)
            d = fy * fx * _tap(x, bottom, right)
            if not products:
                value = a + b + c + d
                if best_i < 0 or _beats(value, best):
                    best, best_i, best_j, best_corner = value, i, j, ALL_CORNERS
                continue
            for corner, value in enumerate((a, b, c, d)):
                if best_i < 0 or _beats(value, best):
                    best, best_i, best_j, best_corner = value, i, j, corner
    return best_i, best_j, best_corner


@njit(**INNER)
def larger(first: float, second: float) -> float:
    """The larger, NaN above all."""
    # No branch: which is larger cannot be foreseen.
    return first if (first >= second) | (first != first) else second


@njit(**INNER)
def largest_product(x: Array, rows: Weights, columns: Weights, line: Array, y: Array) -> None:
    """The largest weighted corner of each bin, of one map: x [H, W], y [PH, PW], line [W] to work in.

    Weights are not negative, so the largest of the products with both is found line by line, then pixel by pixel; the
    tables are those of `fill_extremes`.
    """
    low, high = span_of_weights(columns)
    for p in range(y.shape[0]):
        if rows.start[p] == rows.start[p + 1]:
            y[p] = 0.0
            continue
        for j in range(np.uintp(low), np.uintp(high)):
            line[j] = -np.inf
        for i in range(rows.start[p], rows.start[p + 1]):
            most, least, at = rows.weight[i], rows.near[i], rows.pixel[i]
            for j in range(np.uintp(low), np.uintp(high)):
                pixel = widen(x[at, j])
                line[j] = larger(line[j], larger(most * pixel, least * pixel))
        for q in range(y.shape[1]):
            best = -np.inf
            for i in range(columns.start[q], columns.start[q + 1]):
                pixel = line[np.uintp(columns.pixel[np.uintp(i)])]
                best = larger(best, larger(columns.weight[np.uintp(i)] * pixel, columns.near[np.uintp(i)] * pixel))
            # Samples off the map, and those that read fewer than four pixels, have products of 0.
            y[p, q] = larger(best, 0.0) if rows.inside[p] * columns.inside[q] == 0.0 else best


@njit(**INNER, fastmath=FAST)
def largest_sample(x: Array, rows: Candidates, columns: Candidates, outside: float, y: Array) -> None:
    """The largest interpolated sample of each bin, of one map: x [H, W], y [PH, PW].

    What `winner` finds, without its float64 and its record of the place: measured, 1.5 to 13 times faster.
    """
    number = y.dtype.type
    for p in range(y.shape[0]):
        for q in range(y.shape[1]):
            best, fresh = number(0.0), True
            for i in range(rows.start[p], rows.start[p + 1]):
                top, bottom, fy = rows.low[i], rows.high[i], rows.fraction[i]
                for j in range(columns.start[q], columns.start[q + 1]):
                    left, right, fx = columns.low[j], columns.high[j], columns.fraction[j]
                    value = number(outside)
                    if top >= 0 and left >= 0:
                        value = number((1.0 - fy) * (1.0 - fx)) * widen(x[top, left])
                        if right >= 0:
                            value += number((1.0 - fy) * fx) * widen(x[top, right])
                        if bottom >= 0:
                            value += number(fy * (1.0 - fx)) * widen(x[bottom, left])
                        if right >= 0 and bottom >= 0:
                            value += number(fy * fx) * widen(x[bottom, right])
                    best, fresh = value if fresh else larger(best, value), False
            y[p, q] = best


@njit(**INNER)
def add_maximum_gradient(
    x: Array, dy: Array, rows: Candidates, columns: Candidates, products: bool, dx: Array, drois: Array
) -> None:
    """Give the gradient dy [PH, PW] of one channel to the winners: in dx [H, W], and in drois [4] as x1, y1, x2, y2.

    Either may be empty: it is then not wanted.
    """
    for p in range(dy.shape[0]):
        for q in range(dy.shape[1]):
            i, j, winning = winner(x, rows, columns, p, q, products)
            if winning < 0:
                continue
            g = np.float64(widen(dy[p, q]))
            for corner in range(4):
                if winning not in (corner, ALL_CORNERS):
                    continue
                below, beside = corner >= 2, corner % 2 == 1
                at_y = rows.high[i] if below else rows.low[i]
                at_x = columns.high[j] if beside else columns.low[j]
                if at_y < 0 or at_x < 0:
                    continue
                wy = rows.fraction[i] if below else 1.0 - rows.fraction[i]
                wx = columns.fraction[j] if beside else 1.0 - columns.fraction[j]
                if dx.size:
                    dx[at_y, at_x] += g * wy * wx
                if drois.size:
                    value = g * np.float64(widen(x[at_y, at_x]))
                    along_x = value * wy * (1.0 if beside else -1.0)
                    along_y = value * wx * (1.0 if below else -1.0)
                    drois[0] += along_x * columns.near[j]
                    drois[1] += along_y * rows.near[i]
                    drois[2] += along_x * columns.far[j]
                    drois[3] += along_y * rows.far[i]
