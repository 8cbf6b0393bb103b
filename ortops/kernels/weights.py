"""Samples of one axis, merged into weights of pixels: a table as long as the map and the bins ask for, however many samples.

A kernel takes sums (averages) or products (maxima) of the weights of two axes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ortops.kernels.compile import INNER
from ortops.kernels.element import Array
from ortops.kernels.sampling import Axis, coordinate, is_between, is_inside, region, run_end, sensitivity


class Weights(NamedTuple):
    """The matrix A of one axis, [bins, length], by its entries: those of bin p are start[p]:start[p + 1], ascending.

    pixel and weight tell where they are and what. near and far are the derivatives of A with respect to the RoI's two
    stored coordinates in the same places. inside is the share of a bin's samples that lie on the map.
    """

    start: Array
    pixel: Array
    weight: Array
    near: Array
    far: Array
    inside: Array


@njit(**INNER)
def weights_of(axis: Axis, length: int, dtype: Any, slopes: bool) -> Weights:
    """Merge all samples of each bin of `axis` into weights of pixels; with slopes, into near and far as well."""
    table = _empty(axis, length, dtype, slopes, slopes)
    fill_weights(axis, length, table)
    return table


@njit(**INNER)
def extremes_of(axis: Axis, length: int, dtype: Any) -> Weights:
    """The largest and the smallest weight that the samples of each bin of `axis` give to pixels: see `fill_extremes`."""
    table = _empty(axis, length, dtype, True, False)
    fill_extremes(axis, length, table)
    return table


@njit(**INNER)
def _empty(axis: Axis, length: int, dtype: Any, has_near: bool, has_far: bool) -> Weights:
    """A table with room for all that `axis` reads."""
    room = count_weights(axis, length)
    return Weights(
        np.zeros(axis.bins + 1, np.int64),
        np.empty(room, np.int64),
        np.empty(room, dtype),
        np.empty(room if has_near else 0, dtype),
        np.empty(room if has_far else 0, dtype),
        np.empty(axis.bins, np.float64),
    )


@njit(**INNER)
def count_weights(axis: Axis, length: int) -> int:
    """The room that `fill_weights` and `fill_extremes` need for an axis, pixels between samples included."""
    total = 0
    for p in range(axis.bins):
        total += _pixels(axis, p, length)[1]
    return total


@njit(**INNER)
def fill_weights(axis: Axis, length: int, table: Weights) -> None:
    """Fill a table from its entry start[0] on; derivatives only where it has room for them."""
    slopes = table.near.size > 0
    for p in range(axis.bins):
        start = table.start[p]
        first, count = _pixels(axis, p, length)
        for at in range(start, start + count):
            table.pixel[at], table.weight[at] = -1, 0.0
            if slopes:
                table.near[at], table.far[at] = 0.0, 0.0
        inside = 0.0
        i = 0 if count else axis.samples
        while i < axis.samples:
            c = coordinate(axis, p, i)
            where = region(axis, c, length)
            end = run_end(axis, p, i, where, length)
            if is_inside(where, length):
                pixel = where // 2
                at = start + pixel - first
                table.pixel[at] = pixel
                share = float(end - i) / axis.samples
                inside += end - i
                if is_between(where):
                    table.pixel[at + 1] = pixel + 1
                    # Samples are evenly spaced, so the mean of the two ends is the mean of the run.
                    last = c if end == i + 1 else coordinate(axis, p, end - 1)
                    f = 0.5 * (c + last) - pixel
                    table.weight[at] += share * (1.0 - f)
                    table.weight[at + 1] += share * f
                    if slopes:
                        near, far = sensitivity(axis, p, i)
                        near_end, far_end = sensitivity(axis, p, end - 1)
                        near, far = 0.5 * share * (near + near_end), 0.5 * share * (far + far_end)
                        table.near[at] -= near
                        table.near[at + 1] += near
                        table.far[at] -= far
                        table.far[at + 1] += far
                else:
                    table.weight[at] += share
            i = end
        table.inside[p] = inside / max(axis.samples, 1)
        table.start[p + 1] = _closed_up(table, start, start + count)


@njit(**INNER)
def fill_extremes(axis: Axis, length: int, table: Weights) -> None:
    """Fill a table for maxima: weight is the largest and near the smallest weight that a sample gives a pixel.

    inside is 1 where every sample of a bin reads two pixels, else 0: one that reads fewer has a weight 0, too.
    """
    for p in range(axis.bins):
        start = table.start[p]
        first, count = _pixels(axis, p, length)
        for at in range(start, start + count):
            table.pixel[at] = -1
        table.inside[p] = 1.0 if count else 0.0
        i = 0 if count else axis.samples
        while i < axis.samples:
            where = region(axis, coordinate(axis, p, i), length)
            end = run_end(axis, p, i, where, length)
            pixel = where // 2
            between = is_inside(where, length) and is_between(where)
            if not between:
                table.inside[p] = 0.0
            if is_inside(where, length):
                # A weight is monotonic within a cell: the first and the last sample of a cell stand for all between them.
                at = start + pixel - first
                f = coordinate(axis, p, i) - pixel if between else 0.0
                g = coordinate(axis, p, end - 1) - pixel if between else 0.0
                _widen(table.pixel, table.weight, table.near, at, pixel, 1.0 - max(f, g), 1.0 - min(f, g))
                if between:
                    _widen(table.pixel, table.weight, table.near, at + 1, pixel + 1, min(f, g), max(f, g))
            i = end
        table.start[p + 1] = _closed_up(table, start, start + count)


@njit(**INNER)
def _widen(pixels: Array, most: Array, least: Array, at: int, pixel: int, low: float, high: float) -> None:
    """Take the weights from low to high into the extremes of a pixel."""
    if pixels[at] < 0:
        pixels[at], most[at], least[at] = pixel, high, low
        return
    if high > most[at]:
        most[at] = high
    if low < least[at]:
        least[at] = low


@njit(**INNER)
def _closed_up(table: Weights, start: int, end: int) -> int:
    """Leave out the entries in start:end that no sample reads; the new end."""
    to = start
    for at in range(start, end):
        if table.pixel[at] >= 0:
            table.pixel[to], table.weight[to] = table.pixel[at], table.weight[at]
            if table.near.size:
                table.near[to] = table.near[at]
            if table.far.size:
                table.far[to] = table.far[at]
            to += 1
    return to


@njit(**INNER)
def _pixels(axis: Axis, p: int, length: int) -> tuple[int, int]:
    """The first pixel and the number of pixels that the samples of bin p can touch."""
    if axis.samples == 0:
        return 0, 0
    a = region(axis, coordinate(axis, p, 0), length)
    b = region(axis, coordinate(axis, p, axis.samples - 1), length)
    low, high = max(min(a, b), 0), min(max(a, b), 2 * (length - 1))
    if low > high:
        return 0, 0
    return low // 2, (high + 1) // 2 - low // 2 + 1


@njit(**INNER)
def span_of_weights(table: Weights) -> tuple[int, int]:
    """The pixels [low, high) between the first and the last of the table."""
    low, high = 0, 0
    for p in range(table.start.size - 1):
        start, end = table.start[p], table.start[p + 1]
        if start < end:
            first, last = table.pixel[start], table.pixel[end - 1] + 1
            low, high = (min(low, first), max(high, last)) if high > 0 else (first, last)
    return low, high


@njit(**INNER)
def move_weights(table: Weights, first: int) -> None:
    """Number the pixels from `first` on."""
    for i in range(table.start[0], table.start[-1]):
        table.pixel[i] -= first


@njit(**INNER)
def runs_of(table: Weights, runs: Array) -> int:
    """The pixels of the table as ascending runs [low, high), in rows of `runs` [length // 2 + 1, 2]; their number.

    The bins of an inverted RoI descend.
    """
    bins, n = table.start.size - 1, 0
    descends, last = False, -1
    for p in range(bins):
        if table.start[p] < table.start[p + 1]:
            descends |= table.pixel[table.start[p]] < last
            last = table.pixel[table.start[p]]
    for k in range(bins):
        p = bins - 1 - k if descends else k
        for i in range(table.start[p], table.start[p + 1]):
            pixel = table.pixel[i]
            if n and pixel <= runs[n - 1, 1]:
                runs[n - 1, 1] = max(runs[n - 1, 1], pixel + 1)
            else:
                runs[n, 0], runs[n, 1] = pixel, pixel + 1
                n += 1
    return n


@njit(**INNER)
def transposed(table: Weights, length: int) -> Weights:
    """The matrix A^T [length, bins] of a table without slopes."""
    bins = table.start.size - 1
    start = np.zeros(length + 1, np.int64)
    for i in range(table.start[bins]):
        start[table.pixel[i] + 1] += 1
    for k in range(length):
        start[k + 1] += start[k]
    bin_of, weight, to = (
        np.empty(start[length], np.int64),
        np.empty(start[length], table.weight.dtype),
        start[:-1].copy(),
    )
    for p in range(bins):
        for i in range(table.start[p], table.start[p + 1]):
            pixel = table.pixel[i]
            bin_of[to[pixel]], weight[to[pixel]] = p, table.weight[i]
            to[pixel] += 1
    return Weights(start, bin_of, weight, table.near, table.far, np.ones(length, np.float64))


@njit(**INNER)
def is_identity(table: Weights, length: int) -> bool:
    """Whether each bin is the pixel of its own number, of as many."""
    if table.start.size - 1 != length or table.start[-1] != length:
        return False
    numbers = np.arange(length)
    is_each_one = np.all(table.start[:-1] == numbers) and np.all(table.pixel[:length] == numbers)
    return bool(is_each_one and np.all(table.weight[:length] == 1.0))
