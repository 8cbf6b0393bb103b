"""Average pooling as two sparse matrix products, Y = A_y X A_x^T, and its gradients.

The rows of the map that a bin needs are combined first, elementwise; then each output is a short sum over the combined row.
If the rows are few, they are combined for each bin by itself, and no combined row is stored.

The functions work on panels of LANES interleaved channels and on single planes: `pixel_size` is the number of values per
pixel, LANES or 1. They add in the same order with the same instructions, so a channel has the same bits in each.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled, inline, noinline
from ortops.kernels.jit.scalar import cast_like, fma, load, minimum, offset, store
from ortops.kernels.jit.simd import add_to_float64, load_lanes, splat, store_lanes
from ortops.kernels.layout import Doubles, Slot, Stored, Values
from ortops.kernels.tables import Weights, weights_in

MAX_ROWS = 8
"""The most rows of a panel to combine for each pixel of a bin anew, although bins may share pixels.

Measured: without storing a combined row, P4 takes 76 % of the time, P2 81 %, P2 adaptive, which has up to 9 rows, 86 %, and
bins of a fifth of a pixel, which combine most pixels several times, 84 %. With four rows P2 adaptive takes 91 %.
"""

MAX_DERIVED_ROWS = 4
"""The most rows of a panel to combine with their derivatives for each pixel of a bin anew, without storing three lines.

Measured: P4 takes 73 % of the time, P2 80 %, C4 85 % and masks 90 %.
"""


@compiled
def average_of_panel(
    source: Values, stride: int, rows: Slot, columns: Slot, outside: float, line: Values, sums: Values
) -> None:
    """Compute sums [PH, PW] = A_y X A_x^T from a panel X at `source`, whose rows are `stride` values apart.

    Samples off the map are `outside`; `line` is a buffer for a row of X.
    """
    _average(_sum_rows, source, stride, LANES, weights_in(rows, sums), weights_in(columns, sums), outside, line, sums)


@compiled
def average_of_plane(
    source: Stored, stride: int, rows: Slot, columns: Slot, outside: float, line: Values, sums: Values
) -> None:
    """`average_of_panel` from one plane."""
    _average(no_rows, source, stride, 1, weights_in(rows, sums), weights_in(columns, sums), outside, line, sums)


@compiled
def no_rows(*_arguments: Any) -> None:
    """In place of the functions for few rows of panels, in the code of planes, which does not call it."""
    return  # numba, asked for debugging information, fails for a function that is a docstring alone


@inline
def _average(
    few_rows: Any,
    source: Any,
    stride: int,
    pixel_size: int,
    rows: Weights,
    columns: Weights,
    outside: float,
    line: Any,
    sums: Any,
) -> None:
    for p in range(rows.bins):
        count = rows.start[p + 1] - rows.start[p]
        if pixel_size == LANES and 0 < count <= MAX_ROWS:
            for_count(few_rows, count, MAX_ROWS, source, stride, rows, columns, p, sums)
        else:
            _combine(source, stride, pixel_size, rows, p, columns.ranges, line)
            _sum_line(pixel_size, columns, p, line, sums)
        if outside != 0.0:
            _add_outside(pixel_size, rows, columns, p, outside, sums)


@inline
def for_count(function: Any, count: int, most: int, *arguments: Any) -> None:
    """Call function(count, *arguments), compiled for each count up to `most`, 4 or 8: its loops have no branch left."""
    if count == 1:
        function(1, *arguments)
    elif count == 2:
        function(2, *arguments)
    elif count == 3:
        function(3, *arguments)
    elif count == 4 or most == 4:
        function(4, *arguments)
    elif count == 5:
        function(5, *arguments)
    elif count == 6:
        function(6, *arguments)
    elif count == 7:
        function(7, *arguments)
    else:
        function(8, *arguments)


@inline
def _sum_rows(count: int, source: Any, stride: int, rows: Weights, columns: Weights, p: int, sums: Any) -> None:
    """Compute row p of the sums of a panel from its `count` rows of X, without a combined row in between."""
    start, end = rows.start[p], rows.start[p] + count
    first, second = _four_rows(source, stride, rows, start, end), _four_rows(source, stride, rows, start + 4, end)
    for q in range(columns.bins):
        lanes = splat(sums, 0.0)
        for k in range(columns.start[q], columns.start[q + 1]):
            j = columns.pixel[k] * LANES
            pixels = _add_rows(load_lanes, count, first, j, splat(sums, 0.0))
            if count > 4:
                pixels = _add_rows(load_lanes, count - 4, second, j, pixels)
            lanes = fma(columns.weight[k], pixels, lanes)
        store_lanes(sums, (p * columns.bins + q) * LANES, lanes)


@compiled
def _four_rows(source: Any, stride: int, rows: Weights, i: int, end: int) -> Any:
    """The weights and the rows of X of four entries of a table from entry i on; the last one before `end` may repeat."""
    return (
        _row(source, stride, rows, i, end),
        _row(source, stride, rows, i + 1, end),
        _row(source, stride, rows, i + 2, end),
        _row(source, stride, rows, i + 3, end),
    )


@compiled
def _row(source: Any, stride: int, rows: Weights, i: int, end: int) -> Any:
    k = minimum(i, end - 1)
    return rows.weight[k], offset(source, rows.pixel[k] * stride)


@inline
def _add_rows(read: Any, count: int, four: Any, j: int, total: Any) -> Any:
    """Add the weighted values number j of up to four rows, the first `count` of them, to a sum."""
    (a, at_a), (b, at_b), (c, at_c), (d, at_d) = four
    total = fma(a, read(at_a, j), total)
    if count > 1:
        total = fma(b, read(at_b, j), total)
    if count > 2:
        total = fma(c, read(at_c, j), total)
    if count > 3:
        total = fma(d, read(at_d, j), total)
    return total


@noinline
def _sum_line(pixel_size: int, columns: Weights, p: int, line: Any, sums: Any) -> None:
    """Compute row p of the sums from the combined row."""
    for q in range(columns.bins):
        begin, end = columns.start[q], columns.start[q + 1]
        at = p * columns.bins + q
        if pixel_size == 1:
            total = cast_like(sums, 0.0)
            for i in range(begin, end):
                total = fma(columns.weight[i], line[columns.pixel[i]], total)
            sums[at] = total
        else:
            lanes = splat(sums, 0.0)
            for i in range(begin, end):
                lanes = fma(columns.weight[i], load_lanes(line, columns.pixel[i] * LANES), lanes)
            store_lanes(sums, at * LANES, lanes)


@compiled
def _add_outside(pixel_size: int, rows: Weights, columns: Weights, p: int, outside: float, sums: Any) -> None:
    """Add to row p of the sums the share of samples off the map, whose value is `outside`."""
    for q in range(columns.bins):
        off_map = 1.0 - rows.inside[p] * columns.inside[q]
        share = off_map * outside if off_map > 0.0 else 0.0
        if share != 0.0:
            at = (p * columns.bins + q) * pixel_size
            for k in range(at, at + pixel_size):
                sums[k] += cast_like(sums, share)


@compiled
def _combine(source: Any, stride: int, pixel_size: int, rows: Weights, p: int, ranges: Any, line: Any) -> None:
    """Compute row p of A_y X in the ranges of a line, from four rows of X at a time: the sums stay in registers."""
    start, end = rows.start[p], rows.start[p + 1]
    if start == end:
        _clear(ranges, pixel_size, line)
    for i in range(start, end, 4):
        four = _four_rows(source, stride, rows, i, end)
        for n in range(ranges[0]):
            low, high = ranges[2 * n + 1] * pixel_size, ranges[2 * n + 2] * pixel_size
            rest = high - (high - low) % LANES
            for j in range(low, rest, LANES):
                lanes = splat(line, 0.0) if i == start else load_lanes(line, j)
                store_lanes(line, j, _add_rows(load_lanes, end - i, four, j, lanes))
            for j in range(rest, high):
                line[j] = _add_rows(load, end - i, four, j, cast_like(line, 0.0) if i == start else line[j])


@compiled
def _clear(ranges: Any, pixel_size: int, line: Any) -> None:
    """Set the ranges of a line to 0."""
    for n in range(ranges[0]):
        for j in range(ranges[2 * n + 1] * pixel_size, ranges[2 * n + 2] * pixel_size):
            store(line, j, 0.0)


@compiled
def add_gradient_to_panel(
    _x: Values,
    gradient: Values,
    rows: Slot,
    columns: Slot,
    top: int,
    bottom: int,
    line: Values,
    dx: Values,
    stride: int,
) -> None:
    """Add A_y^T dY A_x to rows top:bottom of a panel dX; `gradient` is dY [PH, PW], `line` a buffer for a row."""
    _add_gradient(gradient, LANES, weights_in(rows, dx), weights_in(columns, dx), top, bottom, line, dx, stride)


@compiled
def add_gradient_to_plane(
    _x: Values,
    gradient: Values,
    rows: Slot,
    columns: Slot,
    top: int,
    bottom: int,
    line: Values,
    dx: Values,
    stride: int,
) -> None:
    """`add_gradient_to_panel` for one plane."""
    _add_gradient(gradient, 1, weights_in(rows, dx), weights_in(columns, dx), top, bottom, line, dx, stride)


@inline
def _add_gradient(
    gradient: Any,
    pixel_size: int,
    rows: Weights,
    columns: Weights,
    top: int,
    bottom: int,
    line: Any,
    dx: Any,
    stride: int,
) -> None:
    for p in range(rows.bins):
        begin, end = rows.start[p], rows.start[p + 1]
        while begin < end and rows.pixel[begin] < top:
            begin += 1
        while begin < end and rows.pixel[end - 1] >= bottom:
            end -= 1
        if begin < end:
            _scatter_row(gradient, pixel_size, columns, p, line)
        if pixel_size == 1:
            for i in range(begin, end):
                ranges, target, w = columns.ranges, offset(dx, rows.pixel[i] * stride), rows.weight[i]
                for n in range(ranges[0]):
                    low, high = ranges[2 * n + 1], ranges[2 * n + 2]
                    rest = high - (high - low) % LANES
                    for j in range(low, rest, LANES):
                        store_lanes(target, j, fma(w, load_lanes(line, j), load_lanes(target, j)))
                    for j in range(rest, high):
                        target[j] = fma(w, line[j], target[j])
        else:
            for i in range(begin, end, 4):
                # The line is loaded once for up to four rows: P4 takes 92 % of the time, P2 95 %, C4 94 %.
                for_count(_add_to_rows, end - i, 4, line, rows, i, columns.ranges, dx, stride)


@inline
def _add_to_rows(count: int, line: Any, rows: Weights, i: int, ranges: Any, dx: Any, stride: int) -> None:
    """Add the ranges of a panel's line to `count` rows of dX, those of the entries of the rows' table from entry i on."""
    (a, at_a), (b, at_b), (c, at_c), (d, at_d) = _four_rows(dx, stride, rows, i, i + count)
    for n in range(ranges[0]):
        for j in range(ranges[2 * n + 1] * LANES, ranges[2 * n + 2] * LANES, LANES):
            lanes = load_lanes(line, j)
            store_lanes(at_a, j, fma(a, lanes, load_lanes(at_a, j)))
            if count > 1:
                store_lanes(at_b, j, fma(b, lanes, load_lanes(at_b, j)))
            if count > 2:
                store_lanes(at_c, j, fma(c, lanes, load_lanes(at_c, j)))
            if count > 3:
                store_lanes(at_d, j, fma(d, lanes, load_lanes(at_d, j)))


@compiled
def _scatter_row(gradient: Any, pixel_size: int, columns: Weights, p: int, line: Any) -> None:
    """Compute row p of dY A_x in the ranges of a line."""
    _clear(columns.ranges, pixel_size, line)
    for q in range(columns.bins):
        at = p * columns.bins + q
        for i in range(columns.start[q], columns.start[q + 1]):
            w, pixel = columns.weight[i], columns.pixel[i]
            if pixel_size == 1:
                line[pixel] = fma(w, gradient[at], line[pixel])
            else:
                lanes = fma(w, load_lanes(gradient, at * LANES), load_lanes(line, pixel * LANES))
                store_lanes(line, pixel * LANES, lanes)


@compiled
def add_box_gradient_of_panel(
    source: Values,
    stride: int,
    gradient: Values,
    rows: Slot,
    columns: Slot,
    _outside: float,
    line: Values,
    of_channels: Doubles,
    drois: Doubles,
) -> None:
    """Add the derivatives with respect to x1, y1, x2 and y2, summed over channels one after the other, to drois [4].

    `line` has three buffers for a row, `stride` values apart; of_channels [4, LANES] is a buffer.
    """
    r, c = weights_in(rows, gradient), weights_in(columns, gradient)
    _add_channels(_add_products_of_rows, source, stride, LANES, gradient, r, c, line, of_channels, drois)


@compiled
def add_box_gradient_of_plane(
    source: Stored,
    stride: int,
    gradient: Values,
    rows: Slot,
    columns: Slot,
    _outside: float,
    line: Values,
    of_channels: Doubles,
    drois: Doubles,
) -> None:
    """`add_box_gradient_of_panel` for one plane."""
    r, c = weights_in(rows, gradient), weights_in(columns, gradient)
    _add_channels(no_rows, source, stride, 1, gradient, r, c, line, of_channels, drois)


@inline
def _add_channels(
    few_rows: Any,
    source: Any,
    stride: int,
    pixel_size: int,
    gradient: Any,
    rows: Weights,
    columns: Weights,
    line: Any,
    of_channels: Any,
    drois: Any,
) -> None:
    for i in range(4 * pixel_size):
        of_channels[i] = 0.0
    _add_box_gradient(few_rows, source, stride, pixel_size, gradient, rows, columns, line, of_channels)
    for k in range(4):
        for lane in range(pixel_size):
            drois[k] += of_channels[k * pixel_size + lane]


@inline
def _add_box_gradient(
    few_rows: Any,
    source: Any,
    stride: int,
    pixel_size: int,
    gradient: Any,
    rows: Weights,
    columns: Weights,
    line: Any,
    drois: Any,
) -> None:
    """Add the derivatives to the float64 drois [4, pixel_size].

    Each is the sum of dY * (A_y X A_x^T) with A_y or A_x replaced by its derivative. `line` has three
    buffers for a row, `stride` values apart.
    """
    d_near, d_far = offset(line, stride), offset(line, 2 * stride)
    for p in range(rows.bins):
        count = rows.start[p + 1] - rows.start[p]
        if pixel_size > 1 and 0 < count <= MAX_DERIVED_ROWS:
            for_count(few_rows, count, MAX_DERIVED_ROWS, source, stride, gradient, rows, columns, p, drois)
        elif count > 0:
            _combine_derivatives(source, stride, pixel_size, rows, p, columns.ranges, line, d_near, d_far)
            _add_products(gradient, pixel_size, p, columns, line, d_near, d_far, drois)


@inline
def _add_products_of_rows(
    count: int, source: Any, stride: int, gradient: Any, rows: Weights, columns: Weights, p: int, drois: Any
) -> None:
    """`_add_products` of row p from its `count` rows of a panel, without lines in between."""
    i, end = rows.start[p], rows.start[p] + count
    (a, at_a), (b, at_b), (c, at_c), (d, at_d) = _four_rows(source, stride, rows, i, end)
    near_a, far_a = _derivatives(rows, i, end)
    near_b, far_b = _derivatives(rows, i + 1, end)
    near_c, far_c = _derivatives(rows, i + 2, end)
    near_d, far_d = _derivatives(rows, i + 3, end)
    zeros = splat(gradient, 0.0)
    left, top, right, bottom = zeros, zeros, zeros, zeros
    for q in range(columns.bins):
        e, f, g, h = zeros, zeros, zeros, zeros
        for n in range(columns.start[q], columns.start[q + 1]):
            j, weight = columns.pixel[n] * LANES, columns.weight[n]
            pixels = load_lanes(at_a, j)
            values, near, far = fma(a, pixels, zeros), fma(near_a, pixels, zeros), fma(far_a, pixels, zeros)
            if count > 1:
                pixels = load_lanes(at_b, j)
                values, near, far = fma(b, pixels, values), fma(near_b, pixels, near), fma(far_b, pixels, far)
            if count > 2:
                pixels = load_lanes(at_c, j)
                values, near, far = fma(c, pixels, values), fma(near_c, pixels, near), fma(far_c, pixels, far)
            if count > 3:
                pixels = load_lanes(at_d, j)
                values, near, far = fma(d, pixels, values), fma(near_d, pixels, near), fma(far_d, pixels, far)
            e, g = fma(columns.d_start[n], values, e), fma(columns.d_end[n], values, g)
            f, h = fma(weight, near, f), fma(weight, far, h)
        dy = load_lanes(gradient, (p * columns.bins + q) * LANES)
        left, top, right, bottom = fma(dy, e, left), fma(dy, f, top), fma(dy, g, right), fma(dy, h, bottom)
    add_to_float64(drois, 0, left)
    add_to_float64(drois, LANES, top)
    add_to_float64(drois, 2 * LANES, right)
    add_to_float64(drois, 3 * LANES, bottom)


@compiled
def _derivatives(rows: Weights, i: int, end: int) -> Any:
    """The derivatives of the weight of entry i of a table, or of the last one before `end`."""
    k = minimum(i, end - 1)
    return rows.d_start[k], rows.d_end[k]


@compiled
def _combine_derivatives(
    source: Any,
    stride: int,
    pixel_size: int,
    rows: Weights,
    p: int,
    ranges: Any,
    line: Any,
    d_near: Any,
    d_far: Any,
) -> None:
    """Compute row p of A_y X and of its two derivatives in the ranges of three lines, from two rows of X at a time."""
    start, end = rows.start[p], rows.start[p + 1]
    for i in range(start, end, 2):
        k, has_two = minimum(i + 1, end - 1), i + 1 < end
        a, b, near_a, near_b = rows.weight[i], rows.weight[k], rows.d_start[i], rows.d_start[k]
        far_a, far_b = rows.d_end[i], rows.d_end[k]
        at_a, at_b = offset(source, rows.pixel[i] * stride), offset(source, rows.pixel[k] * stride)
        for n in range(ranges[0]):
            low, high = ranges[2 * n + 1] * pixel_size, ranges[2 * n + 2] * pixel_size
            rest = high - (high - low) % LANES
            for j in range(low, rest, LANES):
                first, second = load_lanes(at_a, j), load_lanes(at_b, j)
                lanes, near, far = splat(line, 0.0), splat(line, 0.0), splat(line, 0.0)
                if i > start:
                    lanes, near, far = load_lanes(line, j), load_lanes(d_near, j), load_lanes(d_far, j)
                lanes, near, far = fma(a, first, lanes), fma(near_a, first, near), fma(far_a, first, far)
                if has_two:
                    lanes, near, far = fma(b, second, lanes), fma(near_b, second, near), fma(far_b, second, far)
                store_lanes(line, j, lanes)
                store_lanes(d_near, j, near)
                store_lanes(d_far, j, far)
            for j in range(rest, high):
                value = load(at_a, j)
                line[j] = fma(a, value, cast_like(line, 0.0) if i == start else line[j])
                d_near[j] = fma(near_a, value, cast_like(line, 0.0) if i == start else d_near[j])
                d_far[j] = fma(far_a, value, cast_like(line, 0.0) if i == start else d_far[j])
                if has_two:
                    value = load(at_b, j)
                    line[j] = fma(b, value, line[j])
                    d_near[j] = fma(near_b, value, d_near[j])
                    d_far[j] = fma(far_b, value, d_far[j])


@compiled
def _add_products(
    gradient: Any, pixel_size: int, p: int, columns: Weights, line: Any, d_near: Any, d_far: Any, drois: Any
) -> None:
    """Add the dot products of row p of dY and of Y's four derivatives to drois."""
    if pixel_size == 1:
        zero = cast_like(line, 0.0)
        x1, y1, x2, y2 = zero, zero, zero, zero
        for q in range(columns.bins):
            a, b, c, d = zero, zero, zero, zero
            for i in range(columns.start[q], columns.start[q + 1]):
                at, weight = columns.pixel[i], columns.weight[i]
                a, c = fma(columns.d_start[i], line[at], a), fma(columns.d_end[i], line[at], c)
                b, d = fma(weight, d_near[at], b), fma(weight, d_far[at], d)
            g = gradient[p * columns.bins + q]
            x1, y1, x2, y2 = fma(g, a, x1), fma(g, b, y1), fma(g, c, x2), fma(g, d, y2)
        drois[0] += float(x1)
        drois[1] += float(y1)
        drois[2] += float(x2)
        drois[3] += float(y2)
    else:
        zeros = splat(line, 0.0)
        left, top, right, bottom = zeros, zeros, zeros, zeros
        for q in range(columns.bins):
            e, f, g, h = zeros, zeros, zeros, zeros
            for i in range(columns.start[q], columns.start[q + 1]):
                at, weight = columns.pixel[i] * LANES, columns.weight[i]
                values = load_lanes(line, at)
                e, g = fma(columns.d_start[i], values, e), fma(columns.d_end[i], values, g)
                f, h = fma(weight, load_lanes(d_near, at), f), fma(weight, load_lanes(d_far, at), h)
            dy = load_lanes(gradient, (p * columns.bins + q) * LANES)
            left, top, right, bottom = fma(dy, e, left), fma(dy, f, top), fma(dy, g, right), fma(dy, h, bottom)
        add_to_float64(drois, 0, left)
        add_to_float64(drois, LANES, top)
        add_to_float64(drois, 2 * LANES, right)
        add_to_float64(drois, 3 * LANES, bottom)
