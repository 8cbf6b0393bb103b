"""Tables of the pixels that each bin reads along one axis.

A table has the weights of pixels, for averages; the largest and the smallest weight of each pixel, for maxima of weighted
corners; or candidates, the samples that can be the largest, for maxima of samples. Its length depends on the map and the
bins, not on the number of samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.axis import (
    Axis,
    coordinate,
    coordinate_derivatives,
    is_between,
    is_inside,
    pixels_between,
    region_end,
    region_of_sample,
)
from ortops.kernels.jit.compile import compiled, noinline
from ortops.kernels.jit.scalar import compute_pointer, maximum, minimum, offset, set_value, value_at
from ortops.kernels.layout import Doubles, Elements, Words

OFF_MAP = -1
"""In place of a candidate's region if it reads no pixel."""


class Table(NamedTuple):
    """The entries of one axis, in one of four forms; those of bin p are start[p]:start[p + 1].

    Weights are a sparse matrix A [bins, length]: pixel is an entry's column, ascending in each bin, and weight its value.
    near and far are the derivatives of weight with respect to the RoI's two stored coordinates. inside is the fraction of a
    bin's samples that lie on the map.

    Extremes: weight is the largest and near the smallest weight that a sample of the bin gives a pixel. inside is 1 if every
    sample of the bin reads two pixels, else 0: a sample that reads fewer also has a weight of 0.

    Whole pixels: only pixel is used.

    Candidates, in the order of the samples: pixel is the sample's region (`axis.region`) or OFF_MAP; weight is that of the
    second of its two pixels. near and far are the derivatives of its coordinate.

    Tables along x, except candidates, have ranges: the number of ranges of pixels that have entries, and for each, in
    ascending order, its first pixel and the one after its last.
    """

    bins: int
    start: Words
    inside: Doubles
    pixel: Words
    weight: Elements
    near: Elements
    far: Elements
    ranges: Words


@compiled
def typed(table: Table, like: Any) -> Any:
    """The table with pointers to numbers of the type of those at `like`, for the code of one type."""
    weight, near = compute_pointer(table.weight, like), compute_pointer(table.near, like)
    far = compute_pointer(table.far, like)
    return Table(table.bins, table.start, table.inside, table.pixel, weight, near, far, table.ranges)


@noinline
def fill_weights(axis: Axis, length: int, with_grad: bool, first: int, table: Table) -> None:
    """Fill a table of weights from entry `first` on, with derivatives if with_grad."""
    table.start[0] = first
    for p in range(axis.bins):
        start = table.start[p]
        low, count = pixels_between(axis, p, p, length)
        for at in range(start, start + count):
            table.pixel[at] = -1
            set_value(table.weight, at, 0.0)
            if with_grad:
                set_value(table.near, at, 0.0)
                set_value(table.far, at, 0.0)
        inside = 0.0
        i = 0 if count else axis.samples
        where = region_of_sample(axis, p, i, length)
        while i < axis.samples:
            end, there = region_end(axis, p, i, where, length)
            if is_inside(where, length):
                pixel = where // 2
                at = start + pixel - low
                table.pixel[at] = pixel
                share = float(end - i) / axis.samples
                inside += end - i
                if is_between(where):
                    table.pixel[at + 1] = pixel + 1
                    # Samples are evenly spaced, so the mean of the first and the last is the mean of all between them.
                    f = 0.5 * (coordinate(axis, p, i) + coordinate(axis, p, end - 1)) - pixel
                    _add_pair(table.weight, at, share * (1.0 - f), share * f)
                    if with_grad:
                        near, far = coordinate_derivatives(axis, p, i)
                        near_end, far_end = coordinate_derivatives(axis, p, end - 1)
                        near, far = 0.5 * share * (near + near_end), 0.5 * share * (far + far_end)
                        _add_pair(table.near, at, -near, near)
                        _add_pair(table.far, at, -far, far)
                else:
                    _add_pair(table.weight, at, share, 0.0)
            i, where = end, there
        table.inside[p] = inside / maximum(axis.samples, 1)
        table.start[p + 1] = _compact(table, start, start + count, with_grad, with_grad)


@compiled
def _add_pair(values: Elements, at: int, first: float, second: float) -> None:
    """Add to entry `at` and to the next one."""
    set_value(values, at, value_at(values, at) + first)
    if second != 0.0:
        set_value(values, at + 1, value_at(values, at + 1) + second)


@compiled
def _compact(table: Table, start: int, end: int, has_near: bool, has_far: bool) -> int:
    """Remove the entries in start:end that no sample reads; the new end."""
    to = start
    for at in range(start, end):
        if table.pixel[at] >= 0:
            table.pixel[to] = table.pixel[at]
            set_value(table.weight, to, value_at(table.weight, at))
            if has_near:
                set_value(table.near, to, value_at(table.near, at))
            if has_far:
                set_value(table.far, to, value_at(table.far, at))
            to += 1
    return to


@noinline
def fill_extremes(axis: Axis, length: int, first: int, table: Table) -> None:
    """Fill a table of extremes from entry `first` on."""
    table.start[0] = first
    for p in range(axis.bins):
        start = table.start[p]
        low, count = pixels_between(axis, p, p, length)
        for at in range(start, start + count):
            table.pixel[at] = -1
        table.inside[p] = 1.0 if count else 0.0
        i = 0 if count else axis.samples
        where = region_of_sample(axis, p, i, length)
        while i < axis.samples:
            end, there = region_end(axis, p, i, where, length)
            pixel = where // 2
            between = is_inside(where, length) and is_between(where)
            if not between:
                table.inside[p] = 0.0
            if is_inside(where, length):
                # A weight is monotonic within a region, so its extremes are at the region's first and last sample.
                at = start + pixel - low
                f = coordinate(axis, p, i) - pixel if between else 0.0
                g = coordinate(axis, p, end - 1) - pixel if between else 0.0
                _extend(table, at, pixel, 1.0 - maximum(f, g), 1.0 - minimum(f, g))
                if between:
                    _extend(table, at + 1, pixel + 1, minimum(f, g), maximum(f, g))
            i, where = end, there
        table.start[p + 1] = _compact(table, start, start + count, True, False)


@compiled
def _extend(table: Table, at: int, pixel: int, low: float, high: float) -> None:
    """Extend the extremes of a pixel's weights by low and high."""
    if table.pixel[at] < 0:
        table.pixel[at] = pixel
        set_value(table.weight, at, high)
        set_value(table.near, at, low)
        return
    if high > value_at(table.weight, at):
        set_value(table.weight, at, high)
    if low < value_at(table.near, at):
        set_value(table.near, at, low)


@noinline
def fill_candidates(axis: Axis, length: int, with_grad: bool, first: int, table: Table) -> None:
    """Fill a table of candidates from entry `first` on, with derivatives if with_grad.

    Within a region, interpolated values and products of weight and pixel are monotonic, so the first and the last sample are
    its candidates. At a pixel and off the map one sample is enough.
    """
    n = first
    table.start[0] = first
    for p in range(axis.bins):
        i = 0
        where = region_of_sample(axis, p, i, length)
        while i < axis.samples:
            end, there = region_end(axis, p, i, where, length)
            between = is_inside(where, length) and is_between(where)
            last = end - 1 if between else i
            at = i
            while at >= 0:
                table.pixel[n] = where if is_inside(where, length) else OFF_MAP
                set_value(table.weight, n, coordinate(axis, p, at) - where // 2 if between else 0.0)
                if with_grad:
                    near, far = coordinate_derivatives(axis, p, at) if between else (0.0, 0.0)
                    set_value(table.near, n, near)
                    set_value(table.far, n, far)
                n += 1
                at = last if at < last else -1
            i, where = end, there
        table.start[p + 1] = n


@compiled
def span_of(table: Table) -> tuple[int, int]:
    """The span [low, high) of the table's pixels."""
    low, high = 0, 0
    for p in range(table.bins):
        start, end = table.start[p], table.start[p + 1]
        if start < end:
            first, last = table.pixel[start], table.pixel[end - 1] + 1
            low, high = (minimum(low, first), maximum(high, last)) if high > 0 else (first, last)
    return low, high


@compiled
def span_of_candidates(table: Table) -> tuple[int, int]:
    """The span [low, high) of the pixels that a table's candidates read."""
    low, high = 0, 0
    for n in range(table.start[0], table.start[table.bins]):
        where = table.pixel[n]
        if where != OFF_MAP:
            first, end = where // 2, (where + 1) // 2 + 1
            low, high = (minimum(low, first), maximum(high, end)) if high > 0 else (first, end)
    return low, high


@compiled
def bins_in_band(table: Table, top: int, bottom: int) -> tuple[int, int]:
    """The bins [first, end) of a table of candidates that read a pixel of top:bottom; (0, 0) if there are none."""
    first, end = table.bins, 0
    for p in range(table.bins):
        for n in range(table.start[p], table.start[p + 1]):
            where = table.pixel[n]
            if where != OFF_MAP and where // 2 < bottom and (where + 1) // 2 >= top:
                first, end = minimum(first, p), p + 1
    return (first, end) if first < end else (0, 0)


@compiled
def some_bins(table: Table, first: int, end: int) -> Table:
    """A table of the bins first:end of a table of candidates."""
    start, inside = offset(table.start, first), offset(table.inside, first)
    return Table(end - first, start, inside, table.pixel, table.weight, table.near, table.far, table.ranges)


@noinline
def fill_ranges(table: Table) -> None:
    """Fill the ranges from the entries. The bins of an inverted RoI are in descending order."""
    ranges, n, descends, last = table.ranges, 0, False, -1
    for p in range(table.bins):
        if table.start[p] < table.start[p + 1]:
            descends |= table.pixel[table.start[p]] < last
            last = table.pixel[table.start[p]]
    for k in range(table.bins):
        p = table.bins - 1 - k if descends else k
        for i in range(table.start[p], table.start[p + 1]):
            pixel = table.pixel[i]
            if n and pixel <= ranges[2 * n]:
                ranges[2 * n] = maximum(ranges[2 * n], pixel + 1)
            else:
                ranges[2 * n + 1], ranges[2 * n + 2] = pixel, pixel + 1
                n += 1
    ranges[0] = n
