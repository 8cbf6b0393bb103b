"""The maximum over samples, in both of its meanings, and where it is attained.

The largest *sample* is the largest interpolated one. The largest *corner* is the largest product of a weight and a pixel of
any sample, as ONNX's reference evaluator and ONNX Runtime have it. Forwards both work on a panel, where a pixel is LANES
numbers, and on one plane: `unit` is the numbers of a pixel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import inner, outlined
from ortops.kernels.jit.lanes import larger_lanes, load_lanes, product, splat, store_lanes
from ortops.kernels.jit.scalar import fma, load, number, offset
from ortops.kernels.tables import OFF_MAP, Table

WHOLE_SAMPLE = 4
"""The number of the winning "corner" where the winner is a whole interpolated sample."""


@inner
def larger(first: float, second: float) -> float:
    """The larger, NaN above all."""
    # No branch: which is larger cannot be foreseen.
    return first if (first >= second) | (first != first) else second


@inner
def _corner(source: Any, j: int, most: float, least: float) -> float:
    """The larger product of a pixel with its largest and with its smallest weight."""
    pixel = load(source, j)
    return most * pixel if least == most else larger(most * pixel, least * pixel)


@inner
def _corners(source: Any, j: int, most: float, least: float) -> Any:
    """The same for LANES numbers."""
    pixels = load_lanes(source, j)
    products = product(most, pixels)
    if least != most:
        products = larger_lanes(products, product(least, pixels))
    return products


@outlined
def largest_corner(
    source: Any, stride: int, unit: int, rows: Table, columns: Table, _outside: float, line: Any, best: Any
) -> None:
    """The largest weighted corner of each bin into best [PH, PW], from tables of extremes.

    Weights are not negative, so the largest of the products with both is found line by line, then pixel by pixel.
    """
    runs = columns.runs
    for p in range(rows.bins):
        start, end = rows.start[p], rows.start[p + 1]
        for i in range(start, end):
            most, least, at = rows.weight[i], rows.near[i], offset(source, rows.pixel[i] * stride)
            for n in range(runs[0]):
                low, high = runs[2 * n + 1] * unit, runs[2 * n + 2] * unit
                rest = high - (high - low) % LANES
                for j in range(low, rest, LANES):
                    products = _corners(at, j, most, least)
                    store_lanes(line, j, products if i == start else larger_lanes(load_lanes(line, j), products))
                for j in range(rest, high):
                    value = _corner(at, j, most, least)
                    line[j] = value if i == start else larger(line[j], value)
        for q in range(columns.bins):
            begin, stop = columns.start[q], columns.start[q + 1]
            # Samples off the map, and those that read fewer than four pixels, have products of 0.
            has_zero = rows.inside[p] * columns.inside[q] == 0.0
            if start == end:
                begin = stop
            at = p * columns.bins + q
            if unit == 1:
                value = number(line, 0.0)
                for i in range(begin, stop):
                    other = _corner(line, columns.pixel[i], columns.weight[i], columns.near[i])
                    value = other if i == begin else larger(value, other)
                best[at] = larger(value, number(line, 0.0)) if has_zero else value
            else:
                values = splat(line, 0.0)
                for i in range(begin, stop):
                    others = _corners(line, columns.pixel[i] * LANES, columns.weight[i], columns.near[i])
                    values = others if i == begin else larger_lanes(values, others)
                store_lanes(best, at * LANES, larger_lanes(values, splat(line, 0.0)) if has_zero else values)


@outlined
def largest_sample(
    source: Any, stride: int, unit: int, rows: Table, columns: Table, outside: float, _line: Any, best: Any
) -> None:
    """The largest interpolated sample of each bin into best [PH, PW], from tables of candidates.

    What `_winner` finds, without its float64 and its record of the place: measured, 1.5 to 13 times faster.
    """
    for p in range(rows.bins):
        for q in range(columns.bins):
            value, values, is_first = number(best, 0.0), splat(best, 0.0), True
            for i in range(rows.start[p], rows.start[p + 1]):
                y, fy = rows.pixel[i], rows.weight[i]
                has_below = y % 2 == 1
                for j in range(columns.start[q], columns.start[q + 1]):
                    x, fx = columns.pixel[j], columns.weight[j]
                    has_beside = x % 2 == 1
                    is_on_map = y != OFF_MAP and x != OFF_MAP
                    at = y // 2 * stride + x // 2 * unit
                    a, b = number(best, (1.0 - fy) * (1.0 - fx)), number(best, (1.0 - fy) * fx)
                    c, d = number(best, fy * (1.0 - fx)), number(best, fy * fx)
                    if unit == 1:
                        other = number(best, outside)
                        if is_on_map:
                            other = a * load(source, at)
                            if has_beside:
                                other = fma(b, load(source, at + 1), other)
                            if has_below:
                                other = fma(c, load(source, at + stride), other)
                            if has_below and has_beside:
                                other = fma(d, load(source, at + stride + 1), other)
                        value = other if is_first else larger(value, other)
                    else:
                        others = splat(best, outside)
                        if is_on_map:
                            others = product(a, load_lanes(source, at))
                            if has_beside:
                                others = fma(b, load_lanes(source, at + LANES), others)
                            if has_below:
                                others = fma(c, load_lanes(source, at + stride), others)
                            if has_below and has_beside:
                                others = fma(d, load_lanes(source, at + stride + LANES), others)
                        values = others if is_first else larger_lanes(values, others)
                    is_first = False
            at = p * columns.bins + q
            if unit == 1:
                best[at] = value
            else:
                store_lanes(best, at * LANES, values)


@inner
def beats(value: float, best: float) -> bool:
    """Whether value takes the lead: the first of equals keeps it, and NaN is above all, as in numpy.max."""
    return value > best or (value != value and best == best)


@inner
def _tap(x: Any, stride: int, y: int, at: int) -> float:
    """The pixel as a number; 0 beyond the map, where its weight is 0 too."""
    return float(load(x, y * stride + at)) if y >= 0 and at >= 0 else 0.0


@inner
def _pixels(where: int) -> tuple[int, int]:
    """The two pixels of a candidate; -1 for one that is off the map, or whose weight is always 0."""
    if where == OFF_MAP:
        return -1, -1
    return where // 2, where // 2 + 1 if where % 2 == 1 else -1


@outlined
def _winner(
    x: Any, width: int, rows: Table, columns: Table, p: int, q: int, takes_corners: bool
) -> tuple[int, int, int]:
    """Row sample, column sample and corner of the maximum of bin (p, q); corner -1 where it is off the map.

    Weights and products are float64, so that ties are those of the specification and not of a rounding to float32.
    """
    best, best_i, best_j, best_corner = -np.inf, -1, -1, -1
    for i in range(rows.start[p], rows.start[p + 1]):
        fy = rows.weight[i]
        top, bottom = _pixels(rows.pixel[i])
        for j in range(columns.start[q], columns.start[q + 1]):
            fx = columns.weight[j]
            left, right = _pixels(columns.pixel[j])
            if top < 0 or left < 0:
                if best_i < 0 or beats(0.0, best):
                    best, best_i, best_j, best_corner = 0.0, i, j, -1
                continue
            a = (1.0 - fy) * (1.0 - fx) * _tap(x, width, top, left)
            b = (1.0 - fy) * fx * _tap(x, width, top, right)
            c = fy * (1.0 - fx) * _tap(x, width, bottom, left)
            d = fy * fx * _tap(x, width, bottom, right)
            if not takes_corners:
                value = a + b + c + d
                if best_i < 0 or beats(value, best):
                    best, best_i, best_j, best_corner = value, i, j, WHOLE_SAMPLE
                continue
            for corner in range(4):
                value = (a if corner == 0 else b) if corner < 2 else (c if corner == 2 else d)
                if best_i < 0 or beats(value, best):
                    best, best_i, best_j, best_corner = value, i, j, corner
    return best_i, best_j, best_corner


@inner
def add_maximum_gradient(
    x: Any, dy: Any, width: int, rows: Table, columns: Table, takes_corners: bool, dx: Any, drois: Any, has_dx: bool
) -> None:
    """Give the gradient dy [PH, PW] of one channel to the winners: to dx [H, W], or to drois [4] as x1, y1, x2, y2."""
    for p in range(rows.bins):
        for q in range(columns.bins):
            i, j, winning = _winner(x, width, rows, columns, p, q, takes_corners)
            if winning < 0:
                continue
            g = float(load(dy, p * columns.bins + q))
            top, bottom = _pixels(rows.pixel[i])
            left, right = _pixels(columns.pixel[j])
            for corner in range(4):
                below, beside = corner >= 2, corner % 2 == 1
                at_y, at_x = bottom if below else top, right if beside else left
                if (winning != corner and winning != WHOLE_SAMPLE) or at_y < 0 or at_x < 0:
                    continue
                wy = rows.weight[i] if below else 1.0 - rows.weight[i]
                wx = columns.weight[j] if beside else 1.0 - columns.weight[j]
                at = at_y * width + at_x
                if has_dx:
                    dx[at] = number(dx, dx[at] + g * wy * wx)
                else:
                    value = g * float(load(x, at))
                    along_x = value * wy * (1.0 if beside else -1.0)
                    along_y = value * wx * (1.0 if below else -1.0)
                    drois[0] += along_x * columns.near[j]
                    drois[1] += along_y * rows.near[i]
                    drois[2] += along_x * columns.far[j]
                    drois[3] += along_y * rows.far[i]
