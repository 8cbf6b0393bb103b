"""Samples of one axis, merged into what a kernel needs: weights of pixels (average) or possible winners (maximum).

Both tables are as long as the map and the bins ask for, however many samples a bin has.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ortops.kernels.element import Array
from ortops.kernels.sampling import Axis, coordinate, is_between, is_inside, region, run_end, sensitivity


class Weights(NamedTuple):
    """The matrix A of one axis, [bins, length], as one run of pixels a bin.

    Bin p covers the pixels first[p], first[p] + 1, ...; their weights are weight[start[p]:start[p + 1]]. near and far are
    the derivatives of A with respect to the RoI's two stored coordinates in the same places. inside is the share of a
    bin's samples that lie on the map.
    """

    first: Array
    start: Array
    weight: Array
    near: Array
    far: Array
    inside: Array


class Candidates(NamedTuple):
    """The samples of one axis that can win a maximum, in their order; those of bin p are start[p]:start[p + 1].

    A product of weight and pixel, and an interpolation too, is monotonic within a cell: the first and the last sample of a
    cell stand for all between them. One sample off the map stands for its neighbours.

    low is the first of the two pixels, or -1 off the map; high the second, or -1 where the weight `fraction` of the second
    is always 0. near and far are the derivatives of the coordinate with respect to the RoI's two stored coordinates.
    """

    start: Array
    low: Array
    high: Array
    fraction: Array
    near: Array
    far: Array


@njit(nogil=True)
def weights_of(axis: Axis, length: int, dtype: Any, slopes: bool) -> Weights:
    """Merge all samples of each bin of `axis` into weights of pixels; with slopes, into near and far as well."""
    # Bins follow one another: two neighbours share at most two pixels.
    room = length + 2 * axis.bins
    sloped = room if slopes else 0
    table = Weights(
        np.empty(axis.bins, np.int64),
        np.empty(axis.bins + 1, np.int64),
        np.zeros(room, dtype),
        np.zeros(sloped, dtype),
        np.zeros(sloped, dtype),
        np.zeros(axis.bins, np.float64),
    )
    table.start[0] = 0
    for p in range(axis.bins):
        start = table.start[p]
        table.first[p], count = _pixels(axis, p, length)
        table.start[p + 1] = start + count
        i = 0 if count else axis.samples
        while i < axis.samples:
            c = coordinate(axis, p, i)
            where = region(axis, c, length)
            end = run_end(axis, p, i, where, length)
            if is_inside(where, length):
                pixel = where // 2
                at = start + pixel - table.first[p]
                share = float(end - i) / axis.samples
                table.inside[p] += end - i
                if is_between(where):
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
        table.inside[p] /= max(axis.samples, 1)
    return table


@njit(nogil=True)
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


@njit(nogil=True)
def candidates_of(axis: Axis, length: int) -> Candidates:
    """Find the candidates of each bin of `axis`."""
    # One for each pixel and each side, two between pixels, and two more for each region that a new bin cuts in two.
    room = 3 * length + 2 + 2 * axis.bins
    table = Candidates(
        np.empty(axis.bins + 1, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.float64),
        np.empty(room, np.float64),
        np.empty(room, np.float64),
    )
    n = 0
    table.start[0] = 0
    for p in range(axis.bins):
        i = 0
        while i < axis.samples:
            where = region(axis, coordinate(axis, p, i), length)
            end = run_end(axis, p, i, where, length)
            inside = is_inside(where, length)
            between = inside and is_between(where)
            pixel = where // 2
            for at in (i, end - 1):
                table.low[n] = pixel if inside else -1
                table.high[n] = pixel + 1 if between else -1
                table.fraction[n] = coordinate(axis, p, at) - pixel if between else 0.0
                table.near[n], table.far[n] = sensitivity(axis, p, at) if between else (0.0, 0.0)
                n += 1
                if end - i == 1 or not between:
                    break
            i = end
        table.start[p + 1] = n
    return table


@njit(nogil=True)
def span_of_weights(table: Weights) -> tuple[int, int]:
    """The pixels [low, high) that the bins of the table cover."""
    low, high = 0, 0
    for p in range(table.first.size):
        count = table.start[p + 1] - table.start[p]
        if count > 0:
            low, high = _joined(low, high, table.first[p], table.first[p] + count)
    return low, high


@njit(nogil=True)
def span_of_candidates(table: Candidates) -> tuple[int, int]:
    """The pixels [low, high) between the first and the last that a candidate reads."""
    low, high = 0, 0
    for n in range(table.start[-1]):
        if table.low[n] >= 0:
            low, high = _joined(low, high, table.low[n], max(table.low[n], table.high[n]) + 1)
    return low, high


@njit(nogil=True)
def _joined(low: int, high: int, first: int, end: int) -> tuple[int, int]:
    """The span of [low, high), empty where high is 0, and [first, end)."""
    return (min(low, first), max(high, end)) if high > 0 else (first, end)


@njit(nogil=True)
def move_weights(table: Weights, first: int) -> None:
    """Number the pixels from `first` on."""
    table.first[:] -= first


@njit(nogil=True)
def move_candidates(table: Candidates, first: int) -> None:
    """Number the pixels from `first` on."""
    for n in range(table.start[-1]):
        if table.low[n] >= 0:
            table.low[n] -= first
        if table.high[n] >= 0:
            table.high[n] -= first


@njit(nogil=True)
def transposed(table: Weights, length: int) -> Weights:
    """The matrix A^T [length, bins] of a table without slopes whose bins read ascending pixels, each bin one sample."""
    bins = table.first.size
    first, start = np.zeros(length, np.int64), np.zeros(length + 1, np.int64)
    for p in range(bins - 1, -1, -1):
        for i in range(table.start[p + 1] - table.start[p]):
            first[table.first[p] + i] = p
            start[table.first[p] + i + 1] += 1
    for k in range(length):
        start[k + 1] += start[k]
    weight = np.empty(start[length], table.weight.dtype)
    for p in range(bins):
        for i in range(table.start[p + 1] - table.start[p]):
            pixel = table.first[p] + i
            weight[start[pixel] + p - first[pixel]] = table.weight[table.start[p] + i]
    return Weights(first, start, weight, table.near, table.far, np.ones(length, np.float64))


@njit(nogil=True)
def is_identity(table: Weights, length: int) -> bool:
    """Whether each bin is the pixel of its own number, of as many."""
    if table.first.size != length or table.start[-1] != length:
        return False
    return bool(np.all(table.first == np.arange(length)) and np.all(table.weight[:length] == 1.0))
