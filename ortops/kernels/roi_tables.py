"""The tables of all RoIs, made once for all panels of channels: of many RoIs they take longer than one panel's sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ortops.kernels.compile import INNER, cached
from ortops.kernels.element import Array
from ortops.kernels.parallel import Runner, parallel_for
from ortops.kernels.sampling import axis_of
from ortops.kernels.weights import Weights, count_weights, extremes_of, fill_extremes, fill_weights, weights_of

MOST_BYTES = 8 << 20
"""Larger tables are made by each task for itself, one RoI at a time."""

BLOCK = 16
"""RoIs of a task."""


class RoiTables(NamedTuple):
    """The `Weights` of one axis of all RoIs: start [R, bins + 1], inside [R, bins], and one long list of each number.

    Without RoIs where each task makes its own.
    """

    start: Array
    pixel: Array
    weight: Array
    near: Array
    far: Array
    inside: Array


BothAxes = tuple[RoiTables, RoiTables]


def roi_weights(
    axes: Array, bins: tuple[int, int], lengths: tuple[int, int], number: np.dtype[Any], slopes: bool, runner: Runner
) -> BothAxes:
    """The weights along y and along x of the RoIs that axes [R, 2, NUMBERS] places."""
    tables = _room(axes, bins, lengths, number, slopes, slopes, runner)
    _fill_weights(*runner, -(-len(tables[0].start) // BLOCK), axes, *lengths, *tables)
    return tables


def roi_extremes(
    axes: Array, bins: tuple[int, int], lengths: tuple[int, int], number: np.dtype[Any], runner: Runner
) -> BothAxes:
    """The same for maxima."""
    tables = _room(axes, bins, lengths, number, True, False, runner)
    _fill_extremes(*runner, -(-len(tables[0].start) // BLOCK), axes, *lengths, *tables)
    return tables


def _room(
    axes: Array,
    bins: tuple[int, int],
    lengths: tuple[int, int],
    number: np.dtype[Any],
    has_near: bool,
    has_far: bool,
    runner: Runner,
) -> BothAxes:
    """Tables with nothing in them but where each RoI's begin; without RoIs if they were too large."""
    ends = np.zeros((2, len(axes) + 1), np.int64)
    _count(*runner, -(-len(axes) // BLOCK), axes, *bins, *lengths, ends)
    np.cumsum(ends, axis=1, out=ends)
    entry, own = 8 + number.itemsize * (1 + has_near + has_far), 16 * sum(bins)
    count = len(axes) if int(ends[:, -1].sum()) * entry + len(axes) * own <= MOST_BYTES else 0
    rows, columns = (
        RoiTables(
            np.empty((count, bins[k] + 1), np.int64),
            np.empty(ends[k, count], np.int64),
            np.empty(ends[k, count], number),
            np.empty(ends[k, count] if has_near else 0, number),
            np.empty(ends[k, count] if has_far else 0, number),
            np.empty((count, bins[k])),
        )
        for k in range(2)
    )
    rows.start[:, 0], columns.start[:, 0] = ends[:, :count]
    return rows, columns


@njit(**INNER)
def _of_roi(every: RoiTables, r: int) -> Weights:
    return Weights(every.start[r], every.pixel, every.weight, every.near, every.far, every.inside[r])


@njit(**INNER)
def weights_of_roi(
    every: RoiTables, r: int, numbers: Array, bins: int, length: int, dtype: Any, slopes: bool
) -> Weights:
    """The weights of RoI r along one axis."""
    if len(every.start):
        return _of_roi(every, r)
    return weights_of(axis_of(numbers, bins), length, dtype, slopes)


@njit(**INNER)
def extremes_of_roi(every: RoiTables, r: int, numbers: Array, bins: int, length: int, dtype: Any) -> Weights:
    """The same for maxima."""
    if len(every.start):
        return _of_roi(every, r)
    return extremes_of(axis_of(numbers, bins), length, dtype)


@njit(**INNER)
def _count_task(axes: Array, bins_y: int, bins_x: int, height: int, width: int, ends: Array, block: int) -> None:
    for r in range(block * BLOCK, min((block + 1) * BLOCK, len(axes))):
        ends[0, r + 1] = count_weights(axis_of(axes[r, 0], bins_y), height)
        ends[1, r + 1] = count_weights(axis_of(axes[r, 1], bins_x), width)


@cached
def _count(
    runner: int, context: int, blocks: int, axes: Array, bins_y: int, bins_x: int, height: int, width: int, ends: Array
) -> bool:
    return parallel_for(runner, context, blocks, _count_task, (axes, bins_y, bins_x, height, width, ends))


@njit(**INNER)
def _fill_weights_task(axes: Array, height: int, width: int, rows: RoiTables, columns: RoiTables, block: int) -> None:
    for r in range(block * BLOCK, min((block + 1) * BLOCK, len(axes))):
        for every, k, length in ((rows, 0, height), (columns, 1, width)):
            fill_weights(axis_of(axes[r, k], every.inside.shape[1]), length, _of_roi(every, r))


@cached
def _fill_weights(
    runner: int, context: int, blocks: int, axes: Array, height: int, width: int, rows: RoiTables, columns: RoiTables
) -> bool:
    return parallel_for(runner, context, blocks, _fill_weights_task, (axes, height, width, rows, columns))


@njit(**INNER)
def _fill_extremes_task(axes: Array, height: int, width: int, rows: RoiTables, columns: RoiTables, block: int) -> None:
    for r in range(block * BLOCK, min((block + 1) * BLOCK, len(axes))):
        for every, k, length in ((rows, 0, height), (columns, 1, width)):
            fill_extremes(axis_of(axes[r, k], every.inside.shape[1]), length, _of_roi(every, r))


@cached
def _fill_extremes(
    runner: int, context: int, blocks: int, axes: Array, height: int, width: int, rows: RoiTables, columns: RoiTables
) -> bool:
    return parallel_for(runner, context, blocks, _fill_extremes_task, (axes, height, width, rows, columns))
