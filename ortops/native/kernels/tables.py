# SPDX-License-Identifier: MIT
"""Tables of the pixels that each bin reads along one axis, in four forms.

A table holds pixel weights, for averages; each pixel's largest and smallest weight, for maxima of weighted corners; pixels
alone, for MaxRoiPool (`pixel_bins.py`); or candidates, the samples that can be the largest, for maxima of samples. Its
length depends on the map and the bins, not on the number of samples.

Each form has a named tuple, made from a `layout.Table`. Its numbers have one type, or are `Elements` if only the run knows
their type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.scalar import compute_pointer, float64_pointer, maximum, minimum, set_value, value_at
from ortops.native.elements import Doubles, Elements, Words
from ortops.native.kernels.axis import (
    Axis,
    coordinate,
    coordinate_derivatives,
    is_between,
    is_inside,
    pixels_between,
    region_end,
    region_of_sample,
)
from ortops.native.kernels.layout import Table

OFF_MAP = -1
"""The region of a candidate that reads no pixel."""


class Weights(NamedTuple):
    """A sparse matrix A [bins, length].

    pixel: an entry's column, ascending in each bin.
    weight: an entry's value.
    d_start, d_end: the weight's derivatives with respect to the RoI's two stored coordinates.
    coverage: the fraction of a bin's samples that lie on the map.
    """

    bins: int
    start: Words
    coverage: Doubles
    pixel: Words
    weight: Elements
    d_start: Elements
    d_end: Elements
    ranges: Words


class Extremes(NamedTuple):
    """The largest and the smallest weight that the bin's samples give a pixel; not set in tables of whole pixels.

    reads_pairs: 1 if every sample of the bin reads two pixels, else 0, since a sample that reads fewer has a weight of 0.
    """

    bins: int
    start: Words
    reads_pairs: Doubles
    pixel: Words
    largest: Elements
    smallest: Elements
    ranges: Words


class Pixels(NamedTuple):
    """The pixels of each bin, without weights."""

    bins: int
    start: Words
    pixel: Words


class Candidates(NamedTuple):
    """The samples that can be the largest, in their order.

    region: the sample's region (`axis.region`) or OFF_MAP.
    weight: the weight of the second of the sample's two pixels.
    d_start, d_end: the derivatives of the sample's coordinate.
    """

    bins: int
    start: Words
    region: Words
    weight: Doubles
    d_start: Doubles
    d_end: Doubles


@compiled
def weights_in(table: Table, like: Any) -> Any:
    """A table as weights; `like` gives the type of their numbers."""
    weight, d_start = compute_pointer(table.first, like), compute_pointer(table.second, like)
    d_end = compute_pointer(table.third, like)
    return Weights(table.bins, table.start, table.coverage, table.place, weight, d_start, d_end, table.ranges)


@compiled
def extremes_in(table: Table, like: Any) -> Any:
    """A table of extremes or of whole pixels as extremes; `like` gives the type of their numbers."""
    largest, smallest = compute_pointer(table.first, like), compute_pointer(table.second, like)
    return Extremes(table.bins, table.start, table.coverage, table.place, largest, smallest, table.ranges)


@compiled
def pixels_in(table: Table) -> Pixels:
    """A table as whole pixels."""
    return Pixels(table.bins, table.start, table.place)


@compiled
def candidates_in(table: Table) -> Any:
    """A table as candidates; their numbers are float64."""
    weight, d_start, d_end = float64_pointer(table.first), float64_pointer(table.second), float64_pointer(table.third)
    return Candidates(table.bins, table.start, table.place, weight, d_start, d_end)


@noinline
def fill_weights(axis: Axis, length: int, with_grad: bool, table: Weights) -> None:
    """Fill a table of weights, with derivatives if with_grad."""
    table.start[0] = 0
    for p in range(axis.bins):
        start = table.start[p]
        low, count = pixels_between(axis, p, p, length)
        for at in range(start, start + count):
            table.pixel[at] = -1
            set_value(table.weight, at, 0.0)
            if with_grad:
                set_value(table.d_start, at, 0.0)
                set_value(table.d_end, at, 0.0)
        sampled = 0.0
        i = 0 if count else axis.samples
        where = region_of_sample(axis, p, i, length)
        while i < axis.samples:
            end, there = region_end(axis, p, i, where, length)
            if is_inside(where, length):
                pixel = where // 2
                at = start + pixel - low
                table.pixel[at] = pixel
                share = float(end - i) / axis.samples
                sampled += end - i
                if is_between(where):
                    table.pixel[at + 1] = pixel + 1
                    # Samples are evenly spaced, so the mean of the first and the last is the mean of all between them.
                    f = 0.5 * (coordinate(axis, p, i) + coordinate(axis, p, end - 1)) - pixel
                    _add_pair(table.weight, at, share * (1.0 - f), share * f)
                    if with_grad:
                        d_start, d_end = coordinate_derivatives(axis, p, i)
                        d_start_last, d_end_last = coordinate_derivatives(axis, p, end - 1)
                        d_start, d_end = 0.5 * share * (d_start + d_start_last), 0.5 * share * (d_end + d_end_last)
                        _add_pair(table.d_start, at, -d_start, d_start)
                        _add_pair(table.d_end, at, -d_end, d_end)
                else:
                    _add_pair(table.weight, at, share, 0.0)
            i, where = end, there
        table.coverage[p] = sampled / maximum(axis.samples, 1)
        end = start
        for at in range(start, start + count):
            if table.pixel[at] >= 0:
                table.pixel[end] = table.pixel[at]
                set_value(table.weight, end, value_at(table.weight, at))
                if with_grad:
                    set_value(table.d_start, end, value_at(table.d_start, at))
                    set_value(table.d_end, end, value_at(table.d_end, at))
                end += 1
        table.start[p + 1] = end


@compiled
def _add_pair(values: Elements, at: int, first: float, second: float) -> None:
    """Add to entry `at` and to the next entry."""
    set_value(values, at, value_at(values, at) + first)
    if second != 0.0:
        set_value(values, at + 1, value_at(values, at + 1) + second)


@noinline
def fill_extremes(axis: Axis, length: int, table: Extremes) -> None:
    """Fill a table of extremes."""
    table.start[0] = 0
    for p in range(axis.bins):
        start = table.start[p]
        low, count = pixels_between(axis, p, p, length)
        for at in range(start, start + count):
            table.pixel[at] = -1
        table.reads_pairs[p] = 1.0 if count else 0.0
        i = 0 if count else axis.samples
        where = region_of_sample(axis, p, i, length)
        while i < axis.samples:
            end, there = region_end(axis, p, i, where, length)
            pixel = where // 2
            between = is_inside(where, length) and is_between(where)
            if not between:
                table.reads_pairs[p] = 0.0
            if is_inside(where, length):
                # A weight is monotonic within a region, so its extremes are at the region's first and last sample.
                at = start + pixel - low
                f = coordinate(axis, p, i) - pixel if between else 0.0
                g = coordinate(axis, p, end - 1) - pixel if between else 0.0
                _extend(table, at, pixel, 1.0 - maximum(f, g), 1.0 - minimum(f, g))
                if between:
                    _extend(table, at + 1, pixel + 1, minimum(f, g), maximum(f, g))
            i, where = end, there
        end = start
        for at in range(start, start + count):
            if table.pixel[at] >= 0:
                table.pixel[end] = table.pixel[at]
                set_value(table.largest, end, value_at(table.largest, at))
                set_value(table.smallest, end, value_at(table.smallest, at))
                end += 1
        table.start[p + 1] = end


@compiled
def _extend(table: Extremes, at: int, pixel: int, low: float, high: float) -> None:
    """Extend the extremes of a pixel's weights by low and high."""
    if table.pixel[at] < 0:
        table.pixel[at] = pixel
        set_value(table.largest, at, high)
        set_value(table.smallest, at, low)
        return
    if high > value_at(table.largest, at):
        set_value(table.largest, at, high)
    if low < value_at(table.smallest, at):
        set_value(table.smallest, at, low)


@noinline
def fill_candidates(axis: Axis, length: int, with_grad: bool, table: Candidates) -> None:
    """Fill a table of candidates, with derivatives if with_grad.

    Within a region, interpolated values and products of weight and pixel are monotonic, so the first and the last sample are
    its candidates. At a pixel and off the map one sample is enough.
    """
    n = 0
    table.start[0] = 0
    for p in range(axis.bins):
        i = 0
        where = region_of_sample(axis, p, i, length)
        while i < axis.samples:
            end, there = region_end(axis, p, i, where, length)
            between = is_inside(where, length) and is_between(where)
            last = end - 1 if between else i
            at = i
            while at >= 0:
                table.region[n] = where if is_inside(where, length) else OFF_MAP
                table.weight[n] = coordinate(axis, p, at) - where // 2 if between else 0.0
                if with_grad:
                    table.d_start[n], table.d_end[n] = coordinate_derivatives(axis, p, at) if between else (0.0, 0.0)
                n += 1
                at = last if at < last else -1
            i, where = end, there
        table.start[p + 1] = n


@compiled
def find_span(table: Table, of_regions: bool) -> None:
    """Set the span of pixels that a table reads. Its entries hold regions if `of_regions`, as candidates do, else pixels."""
    table.low, table.high = span_of_bins(table, of_regions, 0, 1 << 62)


@compiled
def span_of_bins(table: Table, of_regions: bool, top: int, bottom: int) -> tuple[int, int]:
    """The span [low, high) of pixels that the bins whose spans meet top:bottom read; (0, 0) if no span does."""
    start, place, low, high = table.start, table.place, 0, 0
    for p in range(table.bins):
        bin_low, bin_high = 0, 0
        for n in range(start[p], start[p + 1]):
            where = place[n]
            if where != OFF_MAP:
                first, end = (where // 2, (where + 1) // 2 + 1) if of_regions else (where, where + 1)
                bin_low = minimum(bin_low, first) if bin_high > 0 else first
                bin_high = maximum(bin_high, end)
        if bin_low < bottom and top < bin_high:
            low = minimum(low, bin_low) if high > 0 else bin_low
            high = maximum(high, bin_high)
    return low, high


@noinline
def fill_ranges(table: Table) -> None:
    """Fill the ranges from the entries' pixels. An inverted RoI has its bins in descending order."""
    start, place, ranges = table.start, table.place, table.ranges
    bins, n, descends, last = table.bins, 0, False, -1
    for p in range(bins):
        if start[p] < start[p + 1]:
            descends |= place[start[p]] < last
            last = place[start[p]]
    for k in range(bins):
        p = bins - 1 - k if descends else k
        for i in range(start[p], start[p + 1]):
            pixel = place[i]
            if n and pixel <= ranges[2 * n]:
                ranges[2 * n] = maximum(ranges[2 * n], pixel + 1)
            else:
                ranges[2 * n + 1], ranges[2 * n + 2] = pixel, pixel + 1
                n += 1
    ranges[0] = n
