"""Samples of one axis as possible winners of a maximum, as many as the map and the bins ask for, however many there are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ortops.kernels.compile import INNER
from ortops.kernels.element import Array
from ortops.kernels.sampling import Axis, coordinate, is_between, is_inside, region, run_end, sensitivity


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


@njit(**INNER)
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


@njit(**INNER)
def span_of_candidates(table: Candidates) -> tuple[int, int]:
    """The pixels [low, high) between the first and the last that a candidate reads."""
    low, high = 0, 0
    for n in range(table.start[-1]):
        if table.low[n] >= 0:
            first, end = table.low[n], max(table.low[n], table.high[n]) + 1
            low, high = (min(low, first), max(high, end)) if high > 0 else (first, end)
    return low, high


@njit(**INNER)
def move_candidates(table: Candidates, first: int) -> None:
    """Number the pixels from `first` on."""
    for n in range(table.start[-1]):
        if table.low[n] >= 0:
            table.low[n] -= first
        if table.high[n] >= 0:
            table.high[n] -= first
