"""Scaling a tensor of four axes by a thin matrix on each, cut into tasks that share no output.

The lines along the last axis that an output line needs are combined first, elementwise; then each of its elements is a
short sum over the combined line. A task is some output lines. Whatever thread runs it, the result is the same, bit for bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ortops.kernels.average import FAST, sum_columns
from ortops.kernels.compile import INNER, cached
from ortops.kernels.element import Array, accumulator, put, widen, words
from ortops.kernels.parallel import Runner, parallel_for
from ortops.kernels.sampling import CEIL, resample_axis
from ortops.kernels.weights import Weights, is_identity, transposed, weights_of

TASKS = 64
"""Tasks to aim for: enough for any session's threads to share them evenly."""

LEAST_ELEMENTS = 1 << 12
"""Of a task: with fewer, starting it costs more than a thread saves."""


def resample(x: Array, places: Array, rule: int, y: Array, backwards: bool, runner: Runner) -> None:
    """Fill y [M0, M1, M2, M3] from x [N0, N1, N2, N3], both with elements.

    Args:
        places: of each axis its scale, or 0 for the ratio of the lengths, its input and its output offset, [4, 3].
        rule: which pixels a sample reads (`sampling`).
        backwards: whether x is the gradient by the output and y that by the input.

    Raises:
        MemoryError: there is none left to work in.
    """
    tasks = max(min(TASKS, y.size // LEAST_ELEMENTS), 1)
    if _resample(*runner, tasks, words(x), places, rule, words(y), backwards, accumulator(x)):
        raise MemoryError("out of memory for a line of the tensor")


@cached
def _resample(
    runner: int, context: int, tasks: int, x: Array, places: Array, rule: int, y: Array, backwards: bool, dtype: Any
) -> bool:
    a = _matrix(x.shape[0], y.shape[0], places[0], rule, backwards, dtype)
    b = _matrix(x.shape[1], y.shape[1], places[1], rule, backwards, dtype)
    c = _matrix(x.shape[2], y.shape[2], places[2], rule, backwards, dtype)
    d = _matrix(x.shape[3], y.shape[3], places[3], rule, backwards, dtype)
    if not backwards and rule != CEIL:
        places_read = (tasks, x, a.pixel, b.pixel, c.pixel, d.pixel, y)
        return parallel_for(runner, context, tasks, _copy_task, places_read)
    args = (tasks, x, a, b, c, d, _pairs(d, x.shape[3]), is_identity(d, x.shape[3]), y, dtype)
    return parallel_for(runner, context, tasks, _sum_task, args)


@njit(**INNER)
def _matrix(source: int, target: int, place: Array, rule: int, backwards: bool, dtype: Any) -> Weights:
    """From `source` to `target` elements of an axis."""
    length, bins = (target, source) if backwards else (source, target)
    table = weights_of(resample_axis(place[0], length, bins, place[1], place[2], rule), length, dtype, False)
    return transposed(table, length) if backwards else table


class _Pairs(NamedTuple):
    """A matrix with at most two weights a bin: each bin's two elements, the second beyond the line where it has but one."""

    first: Array
    second: Array
    first_weight: Array
    second_weight: Array


@njit(**INNER)
def _pairs(table: Weights, length: int) -> _Pairs:
    """The table as pairs; without bins where one has more than two weights."""
    counts = table.start[1:] - table.start[:-1]
    bins = 0 if np.any(counts > 2) or np.any(counts < 1) else counts.size
    pairs = _Pairs(
        np.empty(bins, np.uintp),
        np.full(bins, length, np.uintp),
        np.empty(bins, table.weight.dtype),
        np.zeros(bins, table.weight.dtype),
    )
    for p in range(bins):
        pairs.first[p], pairs.first_weight[p] = table.pixel[table.start[p]], table.weight[table.start[p]]
        if counts[p] == 2:
            pairs.second[p], pairs.second_weight[p] = table.pixel[table.start[p] + 1], table.weight[table.start[p] + 1]
    return pairs


@njit(**INNER)
def _lines(y: Array, tasks: int, index: int) -> tuple[int, int]:
    """The lines of y, by number, of a task."""
    lines = y.shape[0] * y.shape[1] * y.shape[2]
    return lines * index // tasks, lines * (index + 1) // tasks


@njit(**INNER)
def _copy_task(tasks: int, x: Array, a: Array, b: Array, c: Array, d: Array, y: Array, index: int) -> None:
    """Each output is one element of x: measured, 3 times as fast as sums of one term."""
    low, high = _lines(y, tasks, index)
    for number in range(low, high):
        plane, k = divmod(number, y.shape[2])
        i, j = divmod(plane, y.shape[1])
        line, out = x[a[i], b[j], c[k]], y[i, j, k]
        for q in range(out.size):
            out[np.uintp(q)] = line[np.uintp(d[q])]


@njit(**INNER)
def _sum_task(
    tasks: int,
    x: Array,
    a: Weights,
    b: Weights,
    c: Weights,
    d: Weights,
    pairs: _Pairs,
    is_last_kept: bool,
    y: Array,
    dtype: Any,
    index: int,
) -> None:
    # One element more, which stays 0, for the pairs that have but one.
    line, sums = np.zeros(x.shape[3] + 1, dtype), np.empty((1, y.shape[3]), dtype)
    low, high = _lines(y, tasks, index)
    for number in range(low, high):
        plane, k = divmod(number, y.shape[2])
        i, j = divmod(plane, y.shape[1])
        _combine(x, a, b, c, i, j, k, line)
        out = y[i, j, k]
        if is_last_kept:
            _put_line(line, out)
        elif pairs.first.size:
            _sum_pairs(line, pairs, out)
        else:
            sum_columns(line, d, 0, sums)
            _put_line(sums[0], out)


@njit(**INNER)
def _put_line(line: Array, out: Array) -> None:
    for q in range(out.size):
        put(out, np.uintp(q), line[np.uintp(q)])


@njit(**INNER, fastmath=FAST)
def _sum_pairs(line: Array, pairs: _Pairs, out: Array) -> None:
    """As `sum_columns`, in half its time."""
    first, second, first_weight, second_weight = pairs
    for q in range(out.size):
        total = line[first[q]] * first_weight[q] + line[second[q]] * second_weight[q]
        put(out, np.uintp(q), total)


@njit(**INNER, fastmath=FAST)
def _combine(x: Array, a: Weights, b: Weights, c: Weights, i: int, j: int, k: int, line: Array) -> None:
    """The weighted sum of the lines of x that output line (i, j, k) needs."""
    length = np.uintp(x.shape[3])
    for q in range(length):
        line[q] = 0.0
    for at_a in range(a.start[i], a.start[i + 1]):
        for at_b in range(b.start[j], b.start[j + 1]):
            plane = x[a.pixel[at_a], b.pixel[at_b]]
            for at_c in range(c.start[k], c.start[k + 1]):
                w = a.weight[at_a] * b.weight[at_b] * c.weight[at_c]
                source = c.pixel[at_c]
                for q in range(length):
                    line[q] += w * widen(plane[source, q])
