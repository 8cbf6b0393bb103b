"""Max pooling over samples, in two meanings.

The maximum *sample* is the largest interpolated value. The maximum *weighted corner* is the largest product of a weight and
a pixel of any sample, as in ONNX's reference evaluator and ONNX Runtime. The forward functions work on panels and planes,
with the arguments of `average.average`.
"""

from __future__ import annotations

from math import inf
from typing import Any

from ortops.kernels.average import for_count, no_rows
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled, inline
from ortops.kernels.jit.scalar import cast_like, fma, load, minimum, offset
from ortops.kernels.jit.simd import load_lanes, max_lanes, nan_max_lanes, scale_lanes, splat, store_lanes
from ortops.kernels.layout import Slot, Stored, Values
from ortops.kernels.tables import OFF_MAP, Candidates, Extremes, candidates_in, extremes_in

MAX_ROWS = 8
"""The most rows of a panel to find the maximum of for each pixel of a bin anew, although bins may share pixels."""

MAX_SHARED = 2.0
"""How many bins may share a pixel of a row on average, if the maximum is found for each bin by itself.

Measured: without a line in between, P4 takes 87 % of the time. Masks, where bins share more pixels, take 97 %, and
106 % without this limit.
"""


@compiled
def nan_max(first: float, second: float) -> float:
    """The larger value; NaN if either is NaN."""
    # Without a branch, which would be mispredicted.
    return first if (first >= second) | (first != first) else second


@compiled
def max_corner_of_panel(
    source: Values, stride: int, rows: Slot, columns: Slot, _outside: float, line: Values, best: Values
) -> None:
    """Compute the maximum weighted corner of each bin in best [PH, PW] of a panel, from tables of extremes.

    Weights are not negative, so the maximum over products can be taken along rows first, then along columns. `_outside` is
    not used.
    """
    _max_entries(
        _max_rows, True, source, stride, LANES, extremes_in(rows, best), extremes_in(columns, best), 0.0, line, best
    )


@compiled
def max_corner_of_plane(
    source: Stored, stride: int, rows: Slot, columns: Slot, _outside: float, line: Values, best: Values
) -> None:
    """`max_corner_of_panel` of one plane."""
    _max_entries(no_rows, True, source, stride, 1, extremes_in(rows, best), extremes_in(columns, best), 0.0, line, best)


@compiled
def max_pixel_of_panel(
    source: Values, stride: int, rows: Slot, columns: Slot, outside: float, line: Values, best: Values
) -> None:
    """Compute the maximum pixel of each bin in best [PH, PW] of a panel; `outside` for a bin without pixels."""
    _max_entries(
        _max_rows,
        False,
        source,
        stride,
        LANES,
        extremes_in(rows, best),
        extremes_in(columns, best),
        outside,
        line,
        best,
    )


@compiled
def max_pixel_of_plane(
    source: Stored, stride: int, rows: Slot, columns: Slot, outside: float, line: Values, best: Values
) -> None:
    """`max_pixel_of_panel` of one plane."""
    _max_entries(
        no_rows, False, source, stride, 1, extremes_in(rows, best), extremes_in(columns, best), outside, line, best
    )


@inline
def _max_entries(
    few_rows: Any,
    has_weights: bool,
    source: Any,
    stride: int,
    pixel_size: int,
    rows: Extremes,
    columns: Extremes,
    empty: float,
    line: Any,
    best: Any,
) -> None:
    """Compute the maxima of all bins along rows, then columns, in best [PH, PW]; `empty` for a bin without entries.

    The tables are of extremes if has_weights, else of whole pixels.
    """
    most_rows = _most_rows_at_once(pixel_size, columns)
    for p in range(rows.bins):
        count = rows.start[p + 1] - rows.start[p]
        if 0 < count <= most_rows:
            for_count(few_rows, count, MAX_ROWS, has_weights, source, stride, rows, columns, p, empty, best)
            continue
        for i in range(count):
            _max_row(has_weights, i, _row(has_weights, source, stride, rows, p, i), pixel_size, columns.ranges, line)
        for q in range(columns.bins):
            # A bin without rows has no entries.
            begin, end = columns.start[q], columns.start[q + 1] if count else columns.start[q]
            has_zero = has_weights and _has_zero(rows, columns, p, q)
            start = -inf if begin < end else empty
            at = p * columns.bins + q
            if pixel_size == 1:
                value = cast_like(line, start)
                for i in range(begin, end):
                    value = nan_max(
                        value, _value(has_weights, (*_weights(has_weights, columns, i), line), columns.pixel[i])
                    )
                best[at] = nan_max(value, cast_like(line, 0.0)) if has_zero else value
            else:
                values = splat(line, start)
                for i in range(begin, end):
                    entry = (*_weights(has_weights, columns, i), line)
                    values = nan_max_lanes(values, _values(has_weights, entry, columns.pixel[i] * LANES))
                values = nan_max_lanes(values, splat(line, 0.0)) if has_zero else values
                store_lanes(best, at * LANES, values)


@compiled
def _has_zero(rows: Extremes, columns: Extremes, p: int, q: int) -> bool:
    """Whether a product is 0: samples off the map, and those that read fewer than four pixels, have one."""
    return rows.reads_pairs[p] * columns.reads_pairs[q] == 0.0


@compiled
def _max_row(has_weights: bool, i: int, row: Any, pixel_size: int, ranges: Any, line: Any) -> None:
    """Replace values in the ranges of a line by those of a bin's row i, where that is the first row or has larger ones."""
    for n in range(ranges[0]):
        low, high = ranges[2 * n + 1] * pixel_size, ranges[2 * n + 2] * pixel_size
        rest = high - (high - low) % LANES
        for j in range(low, rest, LANES):
            values = _values(has_weights, row, j)
            store_lanes(line, j, values if i == 0 else nan_max_lanes(load_lanes(line, j), values))
        for j in range(rest, high):
            value = _value(has_weights, row, j)
            line[j] = value if i == 0 else nan_max(line[j], value)


@compiled
def _most_rows_at_once(pixel_size: int, columns: Extremes) -> int:
    """The most rows to find the maximum of for each bin by itself: MAX_ROWS, or 0 if a line in between is faster."""
    ranges, pixels = columns.ranges, 0
    for n in range(ranges[0]):
        pixels += ranges[2 * n + 2] - ranges[2 * n + 1]
    entries = columns.start[columns.bins] - columns.start[0]
    return MAX_ROWS if pixel_size > 1 and entries <= MAX_SHARED * pixels else 0


@inline
def _max_rows(
    count: int,
    has_weights: bool,
    source: Any,
    stride: int,
    rows: Extremes,
    columns: Extremes,
    p: int,
    empty: float,
    best: Any,
) -> None:
    """Compute row p of the maxima of a panel from up to `count` rows of X, without a line in between.

    The last row may repeat. The other arguments are as in `_max_entries`.
    """
    a = _row(has_weights, source, stride, rows, p, 0)
    b = _row(has_weights, source, stride, rows, p, 1)
    c = _row(has_weights, source, stride, rows, p, 2)
    d = _row(has_weights, source, stride, rows, p, 3)
    e = _row(has_weights, source, stride, rows, p, 4)
    f = _row(has_weights, source, stride, rows, p, 5)
    g = _row(has_weights, source, stride, rows, p, 6)
    h = _row(has_weights, source, stride, rows, p, 7)
    for q in range(columns.bins):
        begin, end = columns.start[q], columns.start[q + 1]
        has_zero = has_weights and _has_zero(rows, columns, p, q)
        # Each value replaces -inf, unless it is the same.
        values = splat(best, -inf if begin < end else empty)
        for m in range(begin, end):
            j = columns.pixel[m] * LANES
            pixels = _values(has_weights, a, j)
            if count > 1:
                pixels = nan_max_lanes(pixels, _values(has_weights, b, j))
            if count > 2:
                pixels = nan_max_lanes(pixels, _values(has_weights, c, j))
            if count > 3:
                pixels = nan_max_lanes(pixels, _values(has_weights, d, j))
            if count > 4:
                pixels = nan_max_lanes(pixels, _values(has_weights, e, j))
                pixels = nan_max_lanes(pixels, _values(has_weights, f, j))
            if count > 6:
                pixels = nan_max_lanes(pixels, _values(has_weights, g, j))
                pixels = nan_max_lanes(pixels, _values(has_weights, h, j))
            weights = _weights(has_weights, columns, m)
            if has_weights:
                pixels = _larger_products(pixels, weights[0], weights[1])
            values = nan_max_lanes(values, pixels)
        values = nan_max_lanes(values, splat(best, 0.0)) if has_zero else values
        store_lanes(best, (p * columns.bins + q) * LANES, values)


@compiled
def _weights(has_weights: bool, table: Extremes, i: int) -> Any:
    """The largest and the smallest weight of entry i of a table."""
    return (table.largest[i], table.smallest[i]) if has_weights else (1.0, 1.0)


@compiled
def _row(has_weights: bool, source: Any, stride: int, rows: Extremes, p: int, k: int) -> Any:
    """The largest and the smallest weight and the row of X of bin p's entry k, or of its last one."""
    i = minimum(rows.start[p] + k, rows.start[p + 1] - 1)
    return (*_weights(has_weights, rows, i), offset(source, rows.pixel[i] * stride))


@compiled
def _value(has_weights: bool, entry: Any, j: int) -> float:
    """Value j of an entry's row, or the larger product of it and the largest or the smallest weight if has_weights."""
    largest, smallest, source = entry
    pixel = load(source, j)
    return nan_max(cast_like(source, largest) * pixel, cast_like(source, smallest) * pixel) if has_weights else pixel


@compiled
def _values(has_weights: bool, entry: Any, j: int) -> Any:
    """`_value` for LANES channels."""
    largest, smallest, source = entry
    pixels = load_lanes(source, j)
    return _larger_products(pixels, largest, smallest) if has_weights else pixels


@compiled
def _larger_products(pixels: Any, largest: float, smallest: float) -> Any:
    """The larger products of LANES pixels and a largest or a smallest weight."""
    # If the first product is NaN, so is the second, and `max_lanes` takes the second.
    return max_lanes(scale_lanes(largest, pixels), scale_lanes(smallest, pixels))


@compiled
def max_sample_of_panel(
    source: Values, stride: int, rows: Slot, columns: Slot, outside: float, _line: Values, best: Values
) -> None:
    """Compute the maximum interpolated sample of each bin in best [PH, PW] of a panel, from tables of candidates."""
    _max_sample(source, stride, LANES, candidates_in(rows), candidates_in(columns), outside, best)


@compiled
def max_sample_of_plane(
    source: Stored, stride: int, rows: Slot, columns: Slot, outside: float, _line: Values, best: Values
) -> None:
    """`max_sample_of_panel` of one plane."""
    _max_sample(source, stride, 1, candidates_in(rows), candidates_in(columns), outside, best)


@inline
def _max_sample(
    source: Any, stride: int, pixel_size: int, rows: Candidates, columns: Candidates, outside: float, best: Any
) -> None:
    """`max_sample_of_panel`, without the float64 and the argmax of `argmax.py`. Measured: 1.5 to 13 times as fast."""
    for p in range(rows.bins):
        for q in range(columns.bins):
            value, values, is_first = cast_like(best, 0.0), splat(best, 0.0), True
            for i in range(rows.start[p], rows.start[p + 1]):
                y, fy = rows.region[i], rows.weight[i]
                has_below = y % 2 == 1
                for j in range(columns.start[q], columns.start[q + 1]):
                    x, fx = columns.region[j], columns.weight[j]
                    has_beside = x % 2 == 1
                    is_on_map = y != OFF_MAP and x != OFF_MAP
                    at = y // 2 * stride + x // 2 * pixel_size
                    a, b = cast_like(best, (1.0 - fy) * (1.0 - fx)), cast_like(best, (1.0 - fy) * fx)
                    c, d = cast_like(best, fy * (1.0 - fx)), cast_like(best, fy * fx)
                    if pixel_size == 1:
                        other = cast_like(best, outside)
                        if is_on_map:
                            other = a * load(source, at)
                            if has_beside:
                                other = fma(b, load(source, at + pixel_size), other)
                            if has_below:
                                other = fma(c, load(source, at + stride), other)
                            if has_below and has_beside:
                                other = fma(d, load(source, at + stride + pixel_size), other)
                        value = other if is_first else nan_max(value, other)
                    else:
                        others = splat(best, outside)
                        if is_on_map:
                            others = scale_lanes(a, load_lanes(source, at))
                            if has_beside:
                                others = fma(b, load_lanes(source, at + pixel_size), others)
                            if has_below:
                                others = fma(c, load_lanes(source, at + stride), others)
                            if has_below and has_beside:
                                others = fma(d, load_lanes(source, at + stride + pixel_size), others)
                        values = others if is_first else nan_max_lanes(values, others)
                    is_first = False
            at = p * columns.bins + q
            if pixel_size == 1:
                best[at] = value
            else:
                store_lanes(best, at * LANES, values)
