# SPDX-License-Identifier: MIT
"""Resample a tensor of four axes by a sparse matrix along each, in tasks with disjoint outputs.

First the lines along the last axis that an output line needs are combined elementwise. Then each output element is a short
sum over the combined line. A task computes some of the output lines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.parallel import allocate, release, task_of
from ortops.compiler.parallel import call as invoke
from ortops.compiler.scalar import (
    address_of,
    cast_like,
    compute_pointer,
    float64_pointer,
    fma,
    itemsize,
    load,
    maximum,
    minimum,
    offset,
    set_value,
    store,
    value_at,
)
from ortops.compiler.struct_types import struct_at
from ortops.native.elements import Address, Doubles, Elements, Stored, Words
from ortops.native.kernels.axis import resample_axis
from ortops.native.kernels.functions import ResampleDriver
from ortops.native.kernels.layout import CEIL, Dims
from ortops.native.kernels.pack import clear
from ortops.native.kernels.schedule import TARGET_TASKS
from ortops.native.kernels.tables import Weights, fill_weights
from ortops.native.kernels.types import ResampleEntry
from ortops.native.types import INVALID, MAX_RANK, OK, OUT_OF_MEMORY, Call, Node, Tensor

MIN_TASK_ELEMENTS = 1 << 12
"""The fewest elements of a task: starting a smaller task costs more than a thread saves."""

MAX_CHUNK_ELEMENTS = 1 << 27
"""The most elements to compute before signal handlers run: on one thread this takes 0.2 to 1 s."""

MIN_PARALLEL_ELEMENTS = 1 << 16
"""The fewest elements to compute on threads: starting a thread costs 20 us."""


class _Matrix(NamedTuple):
    """A sparse matrix (CSR) for one axis: row p has the entries start[p]:start[p + 1], each with column `at` and `weight`.

    has_pairs_only: whether each row has one or two entries.
    is_identity: whether this is the identity matrix.
    """

    start: Words
    at: Words
    weight: Elements
    has_pairs_only: bool
    is_identity: bool


class _Matrices(NamedTuple):
    """The matrices of the four axes."""

    a: _Matrix
    b: _Matrix
    c: _Matrix
    d: _Matrix


Lines: TypeAlias = Address[Callable[[Elements, Elements, Dims, Dims, _Matrices, int, int], int]]


@compiled
def _typed(matrix: _Matrix, like: Any) -> Any:
    """The matrix with a typed pointer to its weights, for specialised code; `like` gives the type."""
    weight = compute_pointer(matrix.weight, like)
    return _Matrix(matrix.start, matrix.at, weight, matrix.has_pairs_only, matrix.is_identity)


@compiled
def resample(node: Node, call: Call) -> int:
    """Fill OutputTensor from InputTensor, or OutputGradientTensor from InputGradientTensor, of rank 1 to 4; an entry."""
    entry, kind = _entry_of(node), _driver_of(node).kind
    of_x, of_y = call.tensors[entry.source], call.tensors[entry.target]
    source, target = _dims(of_x), _dims(of_y)
    x_size, size = source.a * source.b * source.c * source.d, target.a * target.b * target.c * target.d
    if x_size > 0 and size > 0:
        return _resample(node, call, Elements(of_x.address, kind), Elements(of_y.address, kind), source, target)
    if (x_size if entry.transposed else size) > 0:
        invoke(entry.write_error, (call, entry))
        return INVALID
    clear(Elements(of_y.address, kind), 0, 1, 0, size)
    return OK


@compiled
def _entry_of(node: Node) -> ResampleEntry:
    return struct_at(ResampleEntry, address_of(node.entry))


@compiled
def _driver_of(node: Node) -> ResampleDriver:
    return struct_at(ResampleDriver, address_of(node.driver))


@compiled
def _dims(tensor: Tensor) -> Dims:
    """The dimensions of a tensor of rank 1 to 4, extended to rank 4 by leading axes of length 1."""
    rank = tensor.rank
    d = offset(tensor.dims, rank - MAX_RANK)
    return Dims(d[0] if rank > 3 else 1, d[1] if rank > 2 else 1, d[2] if rank > 1 else 1, d[3])


@compiled
def _resample(node: Node, call: Call, x: Elements, y: Elements, source: Dims, target: Dims) -> int:
    entry, driver = _entry_of(node), _driver_of(node)
    transposed, runner, rank = entry.transposed != 0, call.runner, call.tensors[entry.target].rank
    is_linear = node.attributes[entry.mode].values.ints[0] == entry.linear
    rule = CEIL if is_linear else entry.rules[node.attributes[entry.rounding].values.ints[0]]
    lines_of: Lines = driver.copy_lines if rule != CEIL and not transposed else driver.sum_lines
    size, x_size = target.a * target.b * target.c * target.d, source.a * source.b * source.c * source.d
    tasks = maximum(minimum(TARGET_TASKS, size // MIN_TASK_ELEMENTS), 1)
    runner = runner if maximum(size, x_size) >= MIN_PARALLEL_ELEMENTS else 0
    words = _matrix_words(source.a, target.a) + _matrix_words(source.b, target.b) + _matrix_words(source.c, target.c)
    memory = allocate(1 + 3 * MAX_RANK + words + _matrix_words(source.d, target.d))
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    memory[0] = 0
    parameters = float64_pointer(offset(memory, 1))
    _read_parameters(node, entry, rank, parameters)
    at = offset(memory, 1 + 3 * MAX_RANK)
    a = _matrix(at, source.a, target.a, parameters, rule, transposed, x)
    at = offset(at, _matrix_words(source.a, target.a))
    b = _matrix(at, source.b, target.b, offset(parameters, 3), rule, transposed, x)
    at = offset(at, _matrix_words(source.b, target.b))
    c = _matrix(at, source.c, target.c, offset(parameters, 6), rule, transposed, x)
    at = offset(at, _matrix_words(source.c, target.c))
    d = _matrix(at, source.d, target.d, offset(parameters, 9), rule, transposed, x)
    lines, chunks = target.a * target.b * target.c, 1 + maximum(size, x_size) // MAX_CHUNK_ELEMENTS
    args = (tasks, lines_of, x, y, source, target, _Matrices(a, b, c, d), memory)
    task, data = task_of(_task, args)
    status = invoke(driver.run, (runner, call.context, driver.stop, tasks, lines, chunks, task, data))
    failed = memory[0] != 0
    release(memory)
    return OUT_OF_MEMORY if failed else status


@compiled
def _read_parameters(node: Node, entry: ResampleEntry, rank: int, parameters: Doubles) -> None:
    """Fill each axis's scale, input offset and output offset [4, 3]; an added leading axis keeps its single element."""
    leading = MAX_RANK - rank
    for k in range(3):
        per_axis = entry.per_axis[k]
        given = node.attributes[per_axis.attribute]
        for i in range(MAX_RANK):
            value = given.values.floats[i - leading] if given.count != 0 and i >= leading else per_axis.default
            parameters[3 * i + k] = value if i >= leading else 0.0


@compiled
def _matrix_words(source: int, target: int) -> int:
    """The number of int64 words for an axis's table and its transpose, with at most 2 entries for each sample."""
    length, bins = maximum(source, target), maximum(source, target)
    return 2 * (length + 1) + bins + 4 * (2 * bins)


@compiled
def _matrix(
    memory: Any, source: int, target: int, parameters: Any, rule: int, transposed: bool, like: Elements
) -> _Matrix:
    """An axis's matrix, which maps `source` elements to `target` elements."""
    length, bins = (target, source) if transposed else (source, target)
    axis = resample_axis(parameters[0], length, bins, parameters[1], parameters[2], rule)
    entries = 2 * maximum(source, target)
    start = offset(memory, maximum(source, target) + 1)
    inside = offset(start, maximum(source, target) + 1)
    pixel = offset(inside, maximum(source, target))
    weight = offset(pixel, entries)
    values = compute_pointer(weight, like)
    table = Weights(bins, start, float64_pointer(inside), pixel, values, values, values, memory)
    fill_weights(axis, length, False, table)
    if not transposed:
        return _make_matrix(start, pixel, values, bins, length)
    to, weights = offset(weight, entries), compute_pointer(offset(weight, 2 * entries), like)
    _transpose(table, length, memory, to, weights)
    return _make_matrix(memory, to, weights, length, bins)


@compiled
def _transpose(table: Weights, length: int, start: Any, bin_of: Any, weight: Any) -> None:
    """Fill start, bin_of and weight with the transpose of the table's matrix, of shape [length, bins]."""
    for k in range(length + 1):
        start[k] = 0
    for i in range(table.start[table.bins]):
        start[table.pixel[i]] += 1
    at = 0
    for k in range(length + 1):
        count = start[k]
        start[k] = at
        at += count
    for p in range(table.bins):
        for i in range(table.start[p], table.start[p + 1]):
            pixel = table.pixel[i]
            bin_of[start[pixel]] = p
            set_value(weight, start[pixel], value_at(table.weight, i))
            start[pixel] += 1
    # start[k] is now the end of row k's entries: shift by one.
    for k in range(length):
        start[length - k] = start[length - k - 1]
    start[0] = 0


@noinline
def _make_matrix(start: Any, at: Any, weight: Any, rows: int, length: int) -> _Matrix:
    has_pairs_only, is_identity = True, rows == length
    for p in range(rows):
        count = start[p + 1] - start[p]
        has_pairs_only = has_pairs_only and 1 <= count <= 2
        is_identity = is_identity and count == 1 and at[start[p]] == p and value_at(weight, start[p]) == 1.0
    return _Matrix(start, at, weight, has_pairs_only, is_identity)


@compiled
def _index_of_line(target: Dims, n: int) -> tuple[int, int, int]:
    """Output line n's indices on the first three axes."""
    plane = n // target.c
    return plane // target.b, plane % target.b, n % target.c


@compiled
def _task(
    tasks: int,
    lines_of: Lines,
    x: Elements,
    y: Elements,
    source: Dims,
    target: Dims,
    matrices: _Matrices,
    failed: Any,
    first: int,
    last: int,
    task: int,
) -> None:
    lines = last - first
    begin, end = first + lines * task // tasks, first + lines * (task + 1) // tasks
    if invoke(lines_of, (x, y, source, target, matrices, begin, end)) != 0:
        failed[0] = 1


@compiled
def copy_lines(x: Stored, y: Stored, source: Dims, target: Dims, matrices: _Matrices, begin: int, end: int) -> int:
    """`sum_lines` for nearest neighbours: every output is one element of x. Measured: 3 times as fast."""
    a, b, c, d = matrices
    for n in range(begin, end):
        i, j, k = _index_of_line(target, n)
        line = offset(x, ((a.at[i] * source.b + b.at[j]) * source.c + c.at[k]) * source.d)
        out = offset(y, n * target.d)
        for q in range(target.d):
            out[q] = line[d.at[q]]
    return 0


@compiled
def sum_lines(x: Stored, y: Stored, source: Dims, target: Dims, matrices: _Matrices, begin: int, end: int) -> int:
    """Compute the output lines begin:end; 0 or OUT_OF_MEMORY."""
    like = compute_pointer(x, x)
    a, b, c, d = _typed(matrices.a, like), _typed(matrices.b, like), _typed(matrices.c, like), _typed(matrices.d, like)
    # Rows with a single entry read an extra element, which is 0, as their second.
    words = ((source.d + 1) * itemsize(compute_pointer(x, x)) + 7) // 8
    memory = allocate(words + 4 * target.d)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    line = compute_pointer(memory, x)
    line[source.d] = 0.0
    first = offset(memory, words)
    second, first_weight = offset(first, target.d), compute_pointer(offset(first, 2 * target.d), x)
    second_weight = compute_pointer(offset(first, 3 * target.d), x)
    if d.has_pairs_only:
        for q in range(target.d):
            e, has_two = d.start[q], d.start[q + 1] - d.start[q] == 2
            first[q], first_weight[q] = d.at[e], d.weight[e]
            second[q] = d.at[e + 1] if has_two else source.d
            second_weight[q] = d.weight[e + 1] if has_two else cast_like(line, 0.0)
    for n in range(begin, end):
        i, j, k = _index_of_line(target, n)
        _combine(x, source, a, b, c, i, j, k, line)
        out = offset(y, n * target.d)
        if d.is_identity:
            for q in range(target.d):
                store(out, q, line[q])
        elif d.has_pairs_only:
            # The same result as below in half the time.
            for q in range(target.d):
                total = first_weight[q] * line[first[q]]
                store(out, q, fma(second_weight[q], line[second[q]], total))
        else:
            for q in range(target.d):
                total = cast_like(line, 0.0)
                for e in range(d.start[q], d.start[q + 1]):
                    total = fma(d.weight[e], line[d.at[e]], total)
                store(out, q, total)
    release(memory)
    return 0


@compiled
def _combine(x: Any, source: Dims, a: _Matrix, b: _Matrix, c: _Matrix, i: int, j: int, k: int, line: Any) -> None:
    """Compute the weighted sum of the lines of x that output line (i, j, k) needs."""
    for q in range(source.d):
        line[q] = 0.0
    for at_a in range(a.start[i], a.start[i + 1]):
        for at_b in range(b.start[j], b.start[j + 1]):
            for at_c in range(c.start[k], c.start[k + 1]):
                w = a.weight[at_a] * b.weight[at_b] * c.weight[at_c]
                plane = (a.at[at_a] * source.b + b.at[at_b]) * source.c + c.at[at_c]
                from_line = offset(x, plane * source.d)
                for q in range(source.d):
                    line[q] = fma(w, load(from_line, q), line[q])
