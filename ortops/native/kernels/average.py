# SPDX-License-Identifier: MIT
"""Average pooling as two sparse matrix products, Y = A_y X A_x^T, and its gradients.

First the map's rows that a bin needs are combined elementwise. Then each output is a short sum over the combined row. If the
rows are few, each bin combines its own pixels, and no combined row is stored.

The functions are specialised for panels, whose pixels are vectors of LANES channels, and for single planes. Both add in the
same order with the same instructions, so a channel gets the same bits from both.
"""

from __future__ import annotations

from typing import Any

from ortops.compiler.compile import compiled, inline, noinline
from ortops.compiler.parallel import for_count
from ortops.compiler.scalar import cast_like, compute_pointer, fma, lane_count, load, local, minimum, offset, store
from ortops.compiler.simd import add, widen
from ortops.native.elements import Doubles, Source, Sums, Wide
from ortops.native.kernels.layout import Tables
from ortops.native.kernels.tables import Weights, weights_in

MAX_ROWS = 8
"""Up to this many rows of a panel are recombined for each bin, without a stored row, although bins may share pixels.

Measured: without a stored row, P4 takes 76 % of the time, P2 81 %, P2 adaptive, which has up to 9 rows, 86 %, and bins of a
fifth of a pixel, which combine most pixels several times, 84 %. With four rows P2 adaptive takes 91 %.
"""

MAX_DERIVED_ROWS = 4
"""Up to this many rows of a panel are recombined with their derivatives for each bin, and no lines are stored.

Measured: P4 takes 73 % of the time, P2 80 %, C4 85 % and masks 90 %.
"""

ROWS_AT_ONCE = 4
"""The number of a panel's rows that one pass combines into a line, or adds a line to. In a plane the number is 1, since LLVM
makes vectors of neighbouring pixels only if it has to compare few addresses.

Measured: four rows of dX at once take 92 % of the time on P4, 95 % on P2, 94 % on C4. Four rows of drois take 88 % of the
time of two on thin maps and 96 % with small RoIs on P2.
"""


@compiled
def average(source: Source, stride: int, tables: Tables, outside: float, line: Sums, sums: Sums) -> None:
    """Compute sums [PH, PW] = A_y X A_x^T from X at `source`, whose rows are `stride` pixels apart.

    Samples off the map are `outside`; `line` is a buffer for a row of X.
    """
    rows, columns = weights_in(tables.rows, sums), weights_in(tables.columns, sums)
    for p in range(rows.bins):
        count = rows.start[p + 1] - rows.start[p]
        if lane_count(sums) > 1 and 0 < count <= MAX_ROWS:
            for_count(_sum_rows, count, MAX_ROWS, (source, stride, rows, columns, p, sums))
        else:
            _combine(source, stride, rows, p, columns.ranges, line)
            _sum_line(columns, p, line, sums)
        if outside != 0.0:
            _add_outside(rows, columns, p, outside, sums)


@inline
def _sum_rows(count: int, source: Any, stride: int, rows: Weights, columns: Weights, p: int, sums: Any) -> None:
    """Compute row p of the sums directly from its `count` rows of X, without a combined row."""
    at, weight = _rows(count, source, stride, rows, rows.start[p])
    for q in range(columns.bins):
        total = cast_like(sums, 0.0)
        for n in range(columns.start[q], columns.start[q + 1]):
            pixels, j = cast_like(sums, 0.0), columns.pixel[n]
            for k in range(count):
                pixels = fma(weight[k], load(at[k], j), pixels)
            total = fma(columns.weight[n], pixels, total)
        store(sums, p * columns.bins + q, total)


@inline
def _rows(count: int, source: Any, stride: int, rows: Weights, i: int) -> Any:
    """The start addresses in X and the weights of the rows in `count` table entries from entry i on."""
    at, weight = local(source), local(rows.weight[0])
    for k in range(count):
        at[k], weight[k] = offset(source, rows.pixel[i + k] * stride), rows.weight[i + k]
    return at, weight


@noinline
def _sum_line(columns: Weights, p: int, line: Any, sums: Any) -> None:
    """Compute row p of the sums from the combined row."""
    for q in range(columns.bins):
        total = cast_like(sums, 0.0)
        for n in range(columns.start[q], columns.start[q + 1]):
            total = fma(columns.weight[n], load(line, columns.pixel[n]), total)
        store(sums, p * columns.bins + q, total)


@compiled
def _add_outside(rows: Weights, columns: Weights, p: int, outside: float, sums: Any) -> None:
    """Add the samples off the map, whose value is `outside`, to row p of the sums."""
    for q in range(columns.bins):
        off_map = 1.0 - rows.coverage[p] * columns.coverage[q]
        share = off_map * outside if off_map > 0.0 else 0.0
        if share != 0.0:
            at = p * columns.bins + q
            store(sums, at, add(load(sums, at), cast_like(sums, share)))


@compiled
def _combine(source: Any, stride: int, rows: Weights, p: int, ranges: Any, line: Any) -> None:
    """Compute row p of A_y X in the ranges of a line."""
    start, end = rows.start[p], rows.start[p + 1]
    if start == end:
        _clear(ranges, line)
    for i in range(start, end, ROWS_AT_ONCE):
        count = minimum(end - i, ROWS_AT_ONCE)
        for_count(_combine_rows, count, ROWS_AT_ONCE, (i > start, source, stride, rows, i, ranges, line))


@inline
def _combine_rows(
    count: int, adds: bool, source: Any, stride: int, rows: Weights, i: int, ranges: Any, line: Any
) -> None:
    """Add `count` weighted rows of X to a line, or store their sum."""
    at, weight = _rows(count, source, stride, rows, i)
    for n in range(ranges[0]):
        for j in range(ranges[2 * n + 1], ranges[2 * n + 2]):
            values = load(line, j) if adds else cast_like(line, 0.0)
            for k in range(count):
                values = fma(weight[k], load(at[k], j), values)
            store(line, j, values)


@compiled
def _clear(ranges: Any, line: Any) -> None:
    """Set the ranges of a line to 0."""
    for n in range(ranges[0]):
        for j in range(ranges[2 * n + 1], ranges[2 * n + 2]):
            store(line, j, cast_like(line, 0.0))


@compiled
def add_gradient(
    _x: Source, gradient: Sums, tables: Tables, top: int, bottom: int, line: Sums, dx: Sums, stride: int
) -> None:
    """Add A_y^T dY A_x to rows top:bottom of dX; `gradient` is dY [PH, PW], `line` a buffer for a row."""
    rows, columns = weights_in(tables.rows, dx), weights_in(tables.columns, dx)
    step = ROWS_AT_ONCE if lane_count(dx) > 1 else 1
    for p in range(rows.bins):
        begin, end = rows.start[p], rows.start[p + 1]
        while begin < end and rows.pixel[begin] < top:
            begin += 1
        while begin < end and rows.pixel[end - 1] >= bottom:
            end -= 1
        if begin < end:
            _scatter_row(gradient, columns, p, line)
        for i in range(begin, end, step):
            for_count(_add_to_rows, minimum(end - i, step), ROWS_AT_ONCE, (line, rows, i, columns.ranges, dx, stride))


@inline
def _add_to_rows(count: int, line: Any, rows: Weights, i: int, ranges: Any, dx: Any, stride: int) -> None:
    """Add a line's ranges to the `count` rows of dX in the row table's entries from entry i on."""
    at, weight = _rows(count, dx, stride, rows, i)
    for n in range(ranges[0]):
        for j in range(ranges[2 * n + 1], ranges[2 * n + 2]):
            values = load(line, j)
            for k in range(count):
                store(at[k], j, fma(weight[k], values, load(at[k], j)))


@compiled
def _scatter_row(gradient: Any, columns: Weights, p: int, line: Any) -> None:
    """Compute row p of dY A_x in the ranges of a line."""
    _clear(columns.ranges, line)
    for q in range(columns.bins):
        values = load(gradient, p * columns.bins + q)
        for n in range(columns.start[q], columns.start[q + 1]):
            j = columns.pixel[n]
            store(line, j, fma(columns.weight[n], values, load(line, j)))


@compiled
def add_box_gradient(
    source: Source, stride: int, gradient: Sums, tables: Tables, line: Sums, of_channels: Wide, drois: Doubles
) -> None:
    """Add the derivatives with respect to x1, y1, x2 and y2 to drois [4], channel by channel.

    A derivative is the sum of dY * (A_y X A_x^T), where the derivative of A_y or A_x replaces that matrix. `line` has three
    row buffers, `stride` pixels apart; of_channels [4] is a buffer.
    """
    rows, columns = weights_in(tables.rows, gradient), weights_in(tables.columns, gradient)
    lanes, sums = lane_count(gradient), compute_pointer(of_channels, of_channels)
    for k in range(4 * lanes):
        sums[k] = 0.0
    for p in range(rows.bins):
        count = rows.start[p + 1] - rows.start[p]
        if lanes > 1 and 0 < count <= MAX_DERIVED_ROWS:
            args = source, stride, gradient, rows, columns, p, line, of_channels
            for_count(_add_products, count, MAX_DERIVED_ROWS, args)
        elif count > 0:
            _combine_derivatives(source, stride, rows, p, columns.ranges, line)
            _add_products(0, source, stride, gradient, rows, columns, p, line, of_channels)
    for k in range(4):
        for lane in range(lanes):
            drois[k] += sums[k * lanes + lane]


@inline
def _add_products(
    count: int, source: Any, stride: int, gradient: Any, rows: Weights, columns: Weights, p: int, line: Any, sums: Any
) -> None:
    """Add the dot products of dY and Y's four derivatives in row p, from `count` rows of X, or from lines if it is 0."""
    at, weight, d_start, d_end = _derived_rows(count, source, stride, rows, rows.start[p])
    zeros = cast_like(gradient, 0.0)
    x1, y1, x2, y2 = zeros, zeros, zeros, zeros
    for q in range(columns.bins):
        a, b, c, d = zeros, zeros, zeros, zeros
        for n in range(columns.start[q], columns.start[q + 1]):
            values, start, end, j = zeros, zeros, zeros, columns.pixel[n]
            if count == 0:
                values, start, end = load(line, j), load(line, stride + j), load(line, 2 * stride + j)
            for k in range(count):
                pixels = load(at[k], j)
                values, start = fma(weight[k], pixels, values), fma(d_start[k], pixels, start)
                end = fma(d_end[k], pixels, end)
            a, c = fma(columns.d_start[n], values, a), fma(columns.d_end[n], values, c)
            b, d = fma(columns.weight[n], start, b), fma(columns.weight[n], end, d)
        dy = load(gradient, p * columns.bins + q)
        x1, y1, x2, y2 = fma(dy, a, x1), fma(dy, b, y1), fma(dy, c, x2), fma(dy, d, y2)
    store(sums, 0, add(load(sums, 0), widen(x1)))
    store(sums, 1, add(load(sums, 1), widen(y1)))
    store(sums, 2, add(load(sums, 2), widen(x2)))
    store(sums, 3, add(load(sums, 3), widen(y2)))


@inline
def _derived_rows(count: int, source: Any, stride: int, rows: Weights, i: int) -> Any:
    """`_rows` with the derivatives of the weights."""
    at, weight = _rows(count, source, stride, rows, i)
    d_start, d_end = local(weight[0]), local(weight[0])
    for k in range(count):
        d_start[k], d_end[k] = rows.d_start[i + k], rows.d_end[i + k]
    return at, weight, d_start, d_end


@compiled
def _combine_derivatives(source: Any, stride: int, rows: Weights, p: int, ranges: Any, line: Any) -> None:
    """Compute row p of A_y X and of its two derivatives in the ranges of three lines."""
    start, end = rows.start[p], rows.start[p + 1]
    for i in range(start, end, ROWS_AT_ONCE):
        args = i > start, source, stride, rows, i, ranges, line
        for_count(_combine_derived_rows, minimum(end - i, ROWS_AT_ONCE), ROWS_AT_ONCE, args)


@inline
def _combine_derived_rows(
    count: int, adds: bool, source: Any, stride: int, rows: Weights, i: int, ranges: Any, line: Any
) -> None:
    """`_combine_rows` with derivatives, in lines `stride` pixels apart."""
    at, weight, d_start, d_end = _derived_rows(count, source, stride, rows, i)
    first, second, zeros = offset(line, stride), offset(line, 2 * stride), cast_like(line, 0.0)
    for n in range(ranges[0]):
        for j in range(ranges[2 * n + 1], ranges[2 * n + 2]):
            values, start, end = zeros, zeros, zeros
            if adds:
                values, start, end = load(line, j), load(first, j), load(second, j)
            for k in range(count):
                pixels = load(at[k], j)
                values, start = fma(weight[k], pixels, values), fma(d_start[k], pixels, start)
                end = fma(d_end[k], pixels, end)
            store(line, j, values)
            store(first, j, start)
            store(second, j, end)
