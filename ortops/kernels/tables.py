"""The samples of one axis as tables: for each bin what it reads of which pixels.

`Weights` hold each bin's weights of pixels, for averages; with the largest and the smallest weight of each pixel, for maxima
of weighted corners. `Candidates` hold the samples of each bin that can be the largest. Their lengths depend on the map and on
the bins, not on the number of samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.axis import (
    Axis,
    axis_of,
    coordinate,
    is_between,
    is_inside,
    pixels_between,
    region_of_sample,
    run_end,
    sensitivity,
)
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import inner, outlined
from ortops.kernels.jit.scalar import bytes_of, doubles_at, maximum, minimum, numbers_at, offset, store
from ortops.kernels.layout import Placed

MOST_PIXELS_OF_WINDOW = 1 << 14
"""The window of a RoI is packed if it has at most as many pixels: a larger one would leave the cache of a core."""


class Weights(NamedTuple):
    """The matrix A of one axis, [bins, length], by its entries: those of bin p are start[p]:start[p + 1], ascending.

    pixel and weight tell where they are and what. near and far are the derivatives of A with respect to the RoI's two
    stored coordinates in the same places; in a table of extremes weight is the largest and near the smallest weight.
    inside is the share of a bin's samples that lie on the map.
    """

    bins: int
    start: Any
    inside: Any
    pixel: Any
    weight: Any
    near: Any
    far: Any


class RoiTables(NamedTuple):
    """The weights of all RoIs along one axis, each in a slot; or one slot for each worker, where all took too much memory.

    first [slots] is where the entries of a slot begin. start [slots, bins + 1], inside [slots, bins]; the rest are lists of the
    entries of all slots, where near and far are empty if no derivatives are wanted.
    """

    first: Any
    start: Any
    inside: Any
    pixel: Any
    weight: Any
    near: Any
    far: Any


@inner
def _slot(tables: RoiTables, slot: int, bins: int) -> Weights:
    """The table in a slot."""
    start, inside = offset(tables.start, slot * (bins + 1)), offset(tables.inside, slot * bins)
    return Weights(bins, start, inside, tables.pixel, tables.weight, tables.near, tables.far)


@inner
def room_of_weights(placed: Placed, r: int, k: int) -> int:
    """The most entries that the table of RoI r along an axis needs: neighbouring bins share at most two pixels."""
    span = placed.spans[2 * r + k]
    return span + 2 * (placed.shape.bins_x if k else placed.shape.bins_y) if span > 0 else 0


@inner
def carve_tables(memory: Any, slots: int, bins: int, entries: int, slopes: int, like: Any) -> Any:
    """Tables in memory, and the memory behind them. slopes: how many of near and far there are."""
    start = offset(memory, slots + 1)
    inside = offset(start, slots * (bins + 1))
    pixel = offset(inside, slots * bins)
    weight = offset(pixel, entries)
    numbers = (entries * bytes_of(numbers_at(memory, like)) + 7) // 8
    near = offset(weight, numbers)
    far = offset(near, numbers if slopes > 0 else 0)
    end = offset(far, numbers if slopes > 1 else 0)
    tables = RoiTables(
        memory,
        start,
        doubles_at(inside),
        pixel,
        numbers_at(weight, like),
        numbers_at(near, like),
        numbers_at(far, like),
    )
    return tables, end


@inner
def weights_of(tables: RoiTables, slot: int, is_filled: bool, placed: Placed, r: int, k: int, has_slopes: bool) -> Weights:
    """The weights of RoI r along y for k = 0, along x for k = 1, from its slot, which is filled first where it is not."""
    shape = placed.shape
    bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
    table = _slot(tables, slot, bins)
    if not is_filled:
        fill_weights(axis_of(placed.axes, r, k, bins), length, has_slopes, tables.first[slot], table)
    return table


@outlined
def fill_weights(axis: Axis, length: int, has_slopes: bool, first: int, table: Weights) -> None:
    """Fill a table from entry `first` on; the derivatives only with has_slopes."""
    table.start[0] = first
    for p in range(axis.bins):
        start = table.start[p]
        low, count = pixels_between(axis, p, p, length)
        for at in range(start, start + count):
            table.pixel[at] = -1
            store(table.weight, at, 0.0)
            if has_slopes:
                store(table.near, at, 0.0)
                store(table.far, at, 0.0)
        inside = 0.0
        i = 0 if count else axis.samples
        while i < axis.samples:
            where = region_of_sample(axis, p, i, length)
            end = run_end(axis, p, i, where, length)
            if is_inside(where, length):
                pixel = where // 2
                at = start + pixel - low
                table.pixel[at] = pixel
                share = float(end - i) / axis.samples
                inside += end - i
                if is_between(where):
                    table.pixel[at + 1] = pixel + 1
                    # Samples are evenly spaced, so the mean of the two ends is the mean of the run.
                    f = 0.5 * (coordinate(axis, p, i) + coordinate(axis, p, end - 1)) - pixel
                    _add(table.weight, at, share * (1.0 - f), share * f)
                    if has_slopes:
                        near, far = sensitivity(axis, p, i)
                        near_end, far_end = sensitivity(axis, p, end - 1)
                        near, far = 0.5 * share * (near + near_end), 0.5 * share * (far + far_end)
                        _add(table.near, at, -near, near)
                        _add(table.far, at, -far, far)
                else:
                    _add(table.weight, at, share, 0.0)
            i = end
        table.inside[p] = inside / maximum(axis.samples, 1)
        table.start[p + 1] = _closed_up(table, start, start + count, has_slopes, has_slopes)


@inner
def _add(numbers: Any, at: int, first: float, second: float) -> None:
    """Add to the numbers of a pixel and of the next one."""
    store(numbers, at, numbers[at] + first)
    if second != 0.0:
        store(numbers, at + 1, numbers[at + 1] + second)


@inner
def _closed_up(table: Weights, start: int, end: int, has_near: bool, has_far: bool) -> int:
    """Leave out the entries in start:end that no sample reads; the new end."""
    to = start
    for at in range(start, end):
        if table.pixel[at] >= 0:
            table.pixel[to], table.weight[to] = table.pixel[at], table.weight[at]
            if has_near:
                table.near[to] = table.near[at]
            if has_far:
                table.far[to] = table.far[at]
            to += 1
    return to


@inner
def span_of(table: Weights) -> tuple[int, int]:
    """The pixels [low, high) between the first and the last of the table."""
    low, high = 0, 0
    for p in range(table.bins):
        start, end = table.start[p], table.start[p + 1]
        if start < end:
            first, last = table.pixel[start], table.pixel[end - 1] + 1
            low, high = (minimum(low, first), maximum(high, last)) if high > 0 else (first, last)
    return low, high


@outlined
def runs_of(table: Weights, runs: Any) -> int:
    """The pixels of the table as ascending runs [low, high), in pairs of `runs` [length // 2 + 1, 2]; their number.

    The bins of an inverted RoI descend.
    """
    n, descends, last = 0, False, -1
    for p in range(table.bins):
        if table.start[p] < table.start[p + 1]:
            descends |= table.pixel[table.start[p]] < last
            last = table.pixel[table.start[p]]
    for k in range(table.bins):
        p = table.bins - 1 - k if descends else k
        for i in range(table.start[p], table.start[p + 1]):
            pixel = table.pixel[i]
            if n and pixel <= runs[2 * n - 1]:
                runs[2 * n - 1] = maximum(runs[2 * n - 1], pixel + 1)
            else:
                runs[2 * n], runs[2 * n + 1] = pixel, pixel + 1
                n += 1
    return n


class Window(NamedTuple):
    """A part of the map."""

    top: int
    left: int
    height: int
    width: int


@inner
def window_of(rows: tuple[int, int], columns: tuple[int, int], map_width: int) -> Window:
    """The part that the two spans [low, high) cover, no narrower than LANES pixels where the map is not."""
    width = maximum(columns[1] - columns[0], minimum(LANES, map_width))
    return Window(rows[0], minimum(columns[0], map_width - width), rows[1] - rows[0], width)


@inner
def is_packed(window: Window, channels: int) -> bool:
    """Whether to pack a window for itself: it fits into a core's cache, and the lanes are at least half full."""
    return channels >= LANES // 2 and window.height * window.width <= MOST_PIXELS_OF_WINDOW
