"""The maximum of a panel's LANES channels at once, in both of its meanings; panels are as in `average_panel.py`."""

from __future__ import annotations

from numba import njit

from ortops.kernels.candidates import Candidates
from ortops.kernels.compile import INNER
from ortops.kernels.element import Array
from ortops.kernels.lanes import LANES, larger, load, plus, same, store, times, zeros
from ortops.kernels.weights import Weights, runs_of


@njit(**INNER)
def largest_product_panel(
    panel: Array, width: int, rows: Weights, columns: Weights, runs: Array, line: Array, best: Array
) -> None:
    """The largest weighted corners into best [PH, PW]; runs and line are to work in."""
    bins, count = columns.start.size - 1, runs_of(columns, runs)
    for p in range(rows.start.size - 1):
        start, end = rows.start[p], rows.start[p + 1]
        for i in range(start, end):
            most, least, at = rows.weight[i], rows.near[i], rows.pixel[i] * width * LANES
            for n in range(count):
                for j in range(runs[n, 0] * LANES, runs[n, 1] * LANES, LANES):
                    pixel = load(panel, at + j)
                    product = times(most, pixel)
                    if least != most:
                        product = larger(product, times(least, pixel))
                    store(line, j, product if i == start else larger(load(line, j), product))
        for q in range(bins):
            total = zeros(line)
            begin = columns.start[q] if start < end else columns.start[q + 1]
            for i in range(begin, columns.start[q + 1]):
                most, least = columns.weight[i], columns.near[i]
                pixel = load(line, columns.pixel[i] * LANES)
                product = times(most, pixel)
                if least != most:
                    product = larger(product, times(least, pixel))
                total = product if i == begin else larger(total, product)
            if rows.inside[p] * columns.inside[q] == 0.0:
                total = larger(total, zeros(line))
            store(best, (p * bins + q) * LANES, total)


@njit(**INNER)
def largest_sample_panel(
    panel: Array, width: int, rows: Candidates, columns: Candidates, outside: float, best: Array
) -> None:
    """The largest interpolated samples into best [PH, PW]."""
    number, bins = panel.dtype.type, columns.start.size - 1
    for p in range(rows.start.size - 1):
        for q in range(bins):
            total, fresh = zeros(panel), True
            for i in range(rows.start[p], rows.start[p + 1]):
                fy, has_below = rows.fraction[i], rows.high[i] >= 0
                for j in range(columns.start[q], columns.start[q + 1]):
                    fx, has_beside = columns.fraction[j], columns.high[j] >= 0
                    value = same(panel, outside)
                    if rows.low[i] >= 0 and columns.low[j] >= 0:
                        at = (rows.low[i] * width + columns.low[j]) * LANES
                        below = (rows.high[i] - rows.low[i]) * width * LANES
                        beside = (columns.high[j] - columns.low[j]) * LANES
                        value = times(number((1.0 - fy) * (1.0 - fx)), load(panel, at))
                        if has_beside:
                            value = plus(value, number((1.0 - fy) * fx), load(panel, at + beside))
                        if has_below:
                            value = plus(value, number(fy * (1.0 - fx)), load(panel, at + below))
                        if has_below and has_beside:
                            value = plus(value, number(fy * fx), load(panel, at + below + beside))
                    total, fresh = value if fresh else larger(total, value), False
            store(best, (p * bins + q) * LANES, total)
