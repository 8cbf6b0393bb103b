# SPDX-License-Identifier: MIT
"""Max pooling: two kinds over samples, and one over whole pixels.

The maximum *sample* is the largest interpolated value. The maximum *weighted corner* is the largest product of a pixel and
its weight in any sample, as in ONNX's reference evaluator and ONNX Runtime. Like `average.average`, the functions are
specialised for panels and for single planes; their arguments are the same.
"""

from __future__ import annotations

from math import inf
from typing import Any

from ortops.compiler.compile import compiled, inline
from ortops.compiler.parallel import for_count
from ortops.compiler.scalar import cast_like, fma, lane_count, load, local, minimum, offset, store
from ortops.compiler.simd import is_nan, larger, multiply, nan_max
from ortops.native.elements import Source, Sums
from ortops.native.kernels.layout import Tables
from ortops.native.kernels.tables import OFF_MAP, Extremes, candidates_in, extremes_in

MAX_ROWS = 8
"""Each bin finds its own maximum over up to this many rows of a panel, although bins may share pixels."""

ROWS_AT_ONCE = 4
"""The number of rows whose maxima one pass stores in a line."""

MAX_SHARED = 2.0
"""The most bins that may share a row's pixel, on average, where each bin finds its own maximum without a stored line.

Measured: without a stored line, P4 takes 87 % of the time. Masks, where bins share more pixels, take 97 %, and 106 % without
this limit.
"""


@compiled
def max_corner(source: Source, stride: int, tables: Tables, _outside: float, line: Sums, best: Sums) -> None:
    """Compute the maximum weighted corner of each bin in best [PH, PW], from tables of extremes.

    Weights are not negative, so the function can maximise the products along rows first, then along columns. It ignores
    `_outside`.
    """
    _max_entries(
        True, source, stride, extremes_in(tables.rows, best), extremes_in(tables.columns, best), 0.0, line, best
    )


@compiled
def max_pixel(source: Source, stride: int, tables: Tables, outside: float, line: Sums, best: Sums) -> None:
    """Compute each bin's maximum pixel in best [PH, PW]; `outside` for a bin without pixels."""
    rows, columns = extremes_in(tables.rows, best), extremes_in(tables.columns, best)
    _max_entries(False, source, stride, rows, columns, outside, line, best)


@inline
def _max_entries(
    has_weights: bool, source: Any, stride: int, rows: Extremes, columns: Extremes, empty: float, line: Any, best: Any
) -> None:
    """Compute all bins' maxima along rows, then columns, in best [PH, PW]; `empty` for a bin without entries.

    The tables hold extremes if has_weights, else whole pixels.
    """
    max_rows = _max_rows_at_once(columns) if lane_count(best) > 1 else 0
    for p in range(rows.bins):
        count = rows.start[p + 1] - rows.start[p]
        if 0 < count <= max_rows:
            for_count(_max_rows, count, MAX_ROWS, (has_weights, source, stride, rows, columns, p, empty, best))
            continue
        for k in range(0, count, ROWS_AT_ONCE):
            args = has_weights, k > 0, source, stride, rows, rows.start[p] + k, columns.ranges, line
            for_count(_max_in_line, minimum(count - k, ROWS_AT_ONCE), ROWS_AT_ONCE, args)
        for q in range(columns.bins):
            # A bin without rows has no entries.
            begin, end = columns.start[q], columns.start[q + 1] if count else columns.start[q]
            least = cast_like(best, -inf if begin < end else empty)
            # Measured, with NaN looked for beside the maximum: 77 % of the time for planes of MaxRoiPool, 93 % of RoiAlign.
            values, finds_nan = least, lane_count(best) > 1
            if not finds_nan:
                for n in range(begin, end):
                    product = _product_of_entry(has_weights, columns, n, load(line, columns.pixel[n]))
                    values, finds_nan = larger(product, values), finds_nan | is_nan(product)
            if finds_nan:
                values = least
                for n in range(begin, end):
                    values = nan_max(values, _product_of_entry(has_weights, columns, n, load(line, columns.pixel[n])))
            if has_weights and _has_zero(rows, columns, p, q):
                values = nan_max(values, cast_like(best, 0.0))
            store(best, p * columns.bins + q, values)


@compiled
def _has_zero(rows: Extremes, columns: Extremes, p: int, q: int) -> bool:
    """Whether a product is 0, as for samples that are off the map or read fewer than four pixels."""
    return rows.reads_pairs[p] * columns.reads_pairs[q] == 0.0


@inline
def _rows(count: int, has_weights: bool, source: Any, stride: int, rows: Extremes, i: int) -> Any:
    """The start addresses in X and the weights of the rows in `count` table entries from entry i on."""
    at, largest, smallest = local(source), local(rows.largest[0]), local(rows.largest[0])
    for k in range(count):
        at[k] = offset(source, rows.pixel[i + k] * stride)
        if has_weights:
            largest[k], smallest[k] = rows.largest[i + k], rows.smallest[i + k]
    return at, largest, smallest


@inline
def _max_at(count: int, has_weights: bool, rows: Any, j: int, pixels: Any) -> Any:
    """The maximum of `pixels` and of pixel j in `count` rows."""
    at, largest, smallest = rows
    for k in range(count):
        pixels = nan_max(pixels, _product(has_weights, largest[k], smallest[k], load(at[k], j)))
    return pixels


@inline
def _max_in_line(
    count: int, has_weights: bool, adds: bool, source: Any, stride: int, rows: Extremes, i: int, ranges: Any, line: Any
) -> None:
    """Store the maximum of `count` rows of X in a line; if `adds`, the line's old values take part."""
    rows_read = _rows(count, has_weights, source, stride, rows, i)
    for n in range(ranges[0]):
        for j in range(ranges[2 * n + 1], ranges[2 * n + 2]):
            # Each value replaces -inf, unless it is the same.
            start = load(line, j) if adds else cast_like(line, -inf)
            store(line, j, _max_at(count, has_weights, rows_read, j, start))


@compiled
def _max_rows_at_once(columns: Extremes) -> int:
    """The most rows over which each bin finds its own maximum: MAX_ROWS, or 0 if a stored line is faster."""
    ranges, pixels = columns.ranges, 0
    for n in range(ranges[0]):
        pixels += ranges[2 * n + 2] - ranges[2 * n + 1]
    entries = columns.start[columns.bins] - columns.start[0]
    return MAX_ROWS if entries <= MAX_SHARED * pixels else 0


@inline
def _max_rows(
    count: int, has_weights: bool, x: Any, stride: int, rows: Extremes, columns: Extremes, p: int, empty: float, y: Any
) -> None:
    """Compute row p of the maxima directly from its `count` rows of X, without a stored line."""
    rows_read = _rows(count, has_weights, x, stride, rows, rows.start[p])
    for q in range(columns.bins):
        begin, end = columns.start[q], columns.start[q + 1]
        values = cast_like(y, -inf if begin < end else empty)
        for n in range(begin, end):
            pixels = _max_at(count, has_weights, rows_read, columns.pixel[n], cast_like(y, -inf))
            values = nan_max(values, _product_of_entry(has_weights, columns, n, pixels))
        if has_weights and _has_zero(rows, columns, p, q):
            values = nan_max(values, cast_like(y, 0.0))
        store(y, p * columns.bins + q, values)


@inline
def _product(has_weights: bool, largest: float, smallest: float, pixels: Any) -> Any:
    """The larger of each pixel's products with its largest and its smallest weight; without weights, the pixels."""
    # If the first product is NaN, so is the second, and `larger` takes the second.
    return larger(multiply(largest, pixels), multiply(smallest, pixels)) if has_weights else pixels


@inline
def _product_of_entry(has_weights: bool, table: Extremes, i: int, pixels: Any) -> Any:
    """`_product` with the weights of entry i of a table."""
    return _product(True, table.largest[i], table.smallest[i], pixels) if has_weights else pixels


@compiled
def max_sample(source: Source, stride: int, tables: Tables, outside: float, _line: Sums, best: Sums) -> None:
    """Compute each bin's maximum interpolated sample in best [PH, PW], from tables of candidates.

    Unlike `argmax.py`, it finds no argmax and does not widen to float64. Measured: 1.5 to 13 times as fast.
    """
    rows, columns = candidates_in(tables.rows), candidates_in(tables.columns)
    for p in range(rows.bins):
        for q in range(columns.bins):
            values, is_first = cast_like(best, 0.0), True
            for i in range(rows.start[p], rows.start[p + 1]):
                y, fy = rows.region[i], rows.weight[i]
                has_below = y % 2 == 1
                for j in range(columns.start[q], columns.start[q + 1]):
                    x, fx = columns.region[j], columns.weight[j]
                    has_beside = x % 2 == 1
                    others = cast_like(best, outside)
                    if y != OFF_MAP and x != OFF_MAP:
                        at = y // 2 * stride + x // 2
                        others = multiply((1.0 - fy) * (1.0 - fx), load(source, at))
                        if has_beside:
                            others = fma((1.0 - fy) * fx, load(source, at + 1), others)
                        if has_below:
                            others = fma(fy * (1.0 - fx), load(source, at + stride), others)
                        if has_below and has_beside:
                            others = fma(fy * fx, load(source, at + stride + 1), others)
                    values = others if is_first else nan_max(values, others)
                    is_first = False
            store(best, p * columns.bins + q, values)
