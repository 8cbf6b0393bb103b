"""The average of a panel's LANES channels at once: Y = A_y X A_x^T as in `average.py`, with its transposes.

Panels are flat: pixel j of line i begins at (i*width + j)*LANES. Only columns that a bin reads are combined; of a large RoI
with few samples they are few. Four lines of the map are taken at once: their weights and the sum stay in registers.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from ortops.kernels.average import FAST
from ortops.kernels.compile import INNER
from ortops.kernels.element import Array
from ortops.kernels.lanes import LANES, add_doubles, load, plus, store, times, zeros
from ortops.kernels.weights import Weights, runs_of


@njit(**INNER, fastmath=FAST)
def average_panel(
    panel: Array, width: int, rows: Weights, columns: Weights, outside: float, runs: Array, line: Array, sums: Array
) -> None:
    """Y = A_y X A_x^T into sums [PH, PW]; a sample off the map has the value `outside`. runs and line are to work in."""
    bins, count = columns.start.size - 1, runs_of(columns, runs)
    for p in range(rows.start.size - 1):
        _combine(panel, width, rows, p, runs, count, line)
        for q in range(bins):
            total = zeros(line)
            for i in range(columns.start[q], columns.start[q + 1]):
                total = plus(total, columns.weight[i], load(line, columns.pixel[i] * LANES))
            store(sums, (p * bins + q) * LANES, total)
    if outside != 0.0:
        _add_outside(rows, columns, outside, sums)


@njit(**INNER, fastmath=FAST)
def _combine(panel: Array, width: int, rows: Weights, p: int, runs: Array, count: int, line: Array) -> None:
    """Row p of A_y X in the runs of a line."""
    start, end = rows.start[p], rows.start[p + 1]
    if start == end:
        _clear(runs, count, line)
    for i in range(start, end, 4):
        left, (a, b, c, d), (at, at_b, at_c, at_d) = _four(rows, i, end, width)
        for n in range(count):
            for j in range(runs[n, 0] * LANES, runs[n, 1] * LANES, LANES):
                total = zeros(line) if i == start else load(line, j)
                total = plus(total, a, load(panel, at + j))
                if left > 1:
                    total = plus(total, b, load(panel, at_b + j))
                if left > 2:
                    total = plus(total, c, load(panel, at_c + j))
                if left > 3:
                    total = plus(total, d, load(panel, at_d + j))
                store(line, j, total)


@njit(**INNER, inline="always")
def _four(rows: Weights, i: int, end: int, width: int) -> Any:
    """How many of row weight i and the three after it there are before `end`, what they are, and where their lines begin."""
    b, c, d = min(i + 1, end - 1), min(i + 2, end - 1), min(i + 3, end - 1)
    step, pixel, weight = width * LANES, rows.pixel, rows.weight
    return (
        end - i,
        (weight[i], weight[b], weight[c], weight[d]),
        (pixel[i] * step, pixel[b] * step, pixel[c] * step, pixel[d] * step),
    )


@njit(**INNER)
def _clear(runs: Array, count: int, line: Array) -> None:
    """Zeros in the runs of a line."""
    for n in range(count):
        for j in range(runs[n, 0] * LANES, runs[n, 1] * LANES, LANES):
            store(line, j, zeros(line))


@njit(**INNER)
def _add_outside(rows: Weights, columns: Weights, outside: float, sums: Array) -> None:
    """Add the samples off the map to the averages."""
    bins = columns.start.size - 1
    for p in range(rows.start.size - 1):
        for q in range(bins):
            share = 1.0 - rows.inside[p] * columns.inside[q]
            if share > 0.0:
                for k in range(LANES):
                    sums[(p * bins + q) * LANES + k] += share * outside


@njit(**INNER, fastmath=FAST)
def _spread(gradient: Array, columns: Weights, p: int, runs: Array, count: int, line: Array) -> None:
    """Row p of dY A_x in the runs of a line."""
    _clear(runs, count, line)
    bins = columns.start.size - 1
    for q in range(bins):
        g = load(gradient, (p * bins + q) * LANES)
        for i in range(columns.start[q], columns.start[q + 1]):
            at = columns.pixel[i] * LANES
            store(line, at, plus(load(line, at), columns.weight[i], g))


@njit(**INNER, fastmath=FAST)
def add_average_panel_gradient(
    gradient: Array, rows: Weights, columns: Weights, width: int, runs: Array, line: Array, panel: Array
) -> None:
    """Add A_y^T dY A_x to the panel dX: gradient [PH, PW]; runs and line are to work in."""
    count = runs_of(columns, runs)
    for p in range(rows.start.size - 1):
        _spread(gradient, columns, p, runs, count, line)
        for i in range(rows.start[p], rows.start[p + 1]):
            at, w = rows.pixel[i] * width * LANES, rows.weight[i]
            for n in range(count):
                for j in range(runs[n, 0] * LANES, runs[n, 1] * LANES, LANES):
                    store(panel, at + j, plus(load(panel, at + j), w, load(line, j)))


@njit(**INNER, fastmath=FAST)
def add_average_panel_box_gradient(
    panel: Array,
    width: int,
    gradient: Array,
    rows: Weights,
    columns: Weights,
    runs: Array,
    line: Array,
    spread: Array,
    drois: Array,
) -> None:
    """Add each channel's derivatives with respect to x1, y1, x2, y2 to the float64 panel drois [4].

    As `average.add_average_box_gradient`, with one look at each pixel: a line of the map goes into the sum that A_y makes
    and is multiplied by dY A_x in one step. line and spread, of the map's width, and runs are to work in.
    """
    bins, count = columns.start.size - 1, runs_of(columns, runs)
    for p in range(rows.start.size - 1):
        start, end = rows.start[p], rows.start[p + 1]
        if start == end:
            continue
        _spread(gradient, columns, p, runs, count, spread)
        for i in range(start, end, 4):
            left, (a, b, c, d), (at, at_b, at_c, at_d) = _four(rows, i, end, width)
            sum_a, sum_b, sum_c, sum_d = zeros(line), zeros(line), zeros(line), zeros(line)
            for n in range(count):
                for j in range(runs[n, 0] * LANES, runs[n, 1] * LANES, LANES):
                    g, x = load(spread, j), load(panel, at + j)
                    total = zeros(line) if i == start else load(line, j)
                    total, sum_a = plus(total, a, x), plus(sum_a, g, x)
                    if left > 1:
                        x = load(panel, at_b + j)
                        total, sum_b = plus(total, b, x), plus(sum_b, g, x)
                    if left > 2:
                        x = load(panel, at_c + j)
                        total, sum_c = plus(total, c, x), plus(sum_c, g, x)
                    if left > 3:
                        x = load(panel, at_d + j)
                        total, sum_d = plus(total, d, x), plus(sum_d, g, x)
                    store(line, j, total)
            _add_slopes(rows, i, sum_a, drois)
            if left > 1:
                _add_slopes(rows, i + 1, sum_b, drois)
            if left > 2:
                _add_slopes(rows, i + 2, sum_c, drois)
            if left > 3:
                _add_slopes(rows, i + 3, sum_d, drois)
        by_near, by_far = zeros(line), zeros(line)
        for q in range(bins):
            near, far = zeros(line), zeros(line)
            for i in range(columns.start[q], columns.start[q + 1]):
                x = load(line, columns.pixel[i] * LANES)
                near, far = plus(near, columns.near[i], x), plus(far, columns.far[i], x)
            g = load(gradient, (p * bins + q) * LANES)
            by_near, by_far = plus(by_near, g, near), plus(by_far, g, far)
        add_doubles(drois, 0, by_near)
        add_doubles(drois, 2 * LANES, by_far)


@njit(**INNER, fastmath=FAST, inline="always")
def _add_slopes(rows: Weights, i: int, lanes: Any, drois: Array) -> None:
    add_doubles(drois, LANES, times(rows.near[i], lanes))
    add_doubles(drois, 3 * LANES, times(rows.far[i], lanes))
