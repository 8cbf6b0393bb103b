# SPDX-License-Identifier: MIT
"""The lengths that functions of users return, those of shapes and those that the data decides: types, compiled checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.parallel import call as invoke
from ortops.compiler.scalar import local_words
from ortops.compiler.text import text
from ortops.custom.arguments import Argument, CompileError, Returned
from ortops.native.elements import Words
from ortops.native.node.messages import write_int, write_text
from ortops.native.types import INVALID, OK, Call, Node, Tensor

_memmove = types.ExternalFunction("memmove", types.intp(types.intp, types.intp, types.intp))


def set_lengths(returned: Returned) -> Any:
    """A compiled function ``finish(node, call, values)`` that gives outputs the lengths that the data has decided.

    The outputs have their largest shapes. Their elements are moved to where they are in arrays of the final shapes.
    """
    rows, axes, numbers, itemsizes = (tuple(column) for column in zip(*returned.places, strict=True))
    count = len(rows)

    @compiled
    def finish(node: Node, call: Call, values: Words) -> int:
        for k in range(count):
            value, most = values[numbers[k]], call.tensors[rows[k]].dims[axes[k]]
            if value < 0 or value > most:
                return _write_room_error(node, call, rows[k], axes[k], value, most)
        for k in range(count):
            _cut(call.tensors[rows[k]], axes[k], values[numbers[k]], itemsizes[k])
        return OK

    return finish


def check_returned(function: Callable[..., Any], result: Any, returned: Returned) -> None:
    """Check what a function returns: None, an int, a tuple of ints, or for several outputs a tuple of such tuples."""
    if not returned.length_count and returned.ranks is None:
        if result != types.none:
            raise CompileError(f"{function.__qualname__} returns {result}: must fill its outputs and return nothing")
        return
    due = [returned.length_count if returned.length_count > 1 else -1] if returned.ranks is None else [*returned.ranks]
    are_shapes = returned.ranks is not None and _is_tuple(result)
    parts = list(result) if are_shapes and (len(due) > 1 or any(map(_is_tuple, result))) else [result]
    counts = [len(part) if _is_tuple(part) else -1 for part in parts]
    lengths = [length for part in parts for length in (part if _is_tuple(part) else [part])]
    if counts != due or not all(isinstance(length, types.Integer) for length in lengths):
        rules = ["an int" if count < 0 else f"a tuple of {count} int" for count in due]
        rule = rules[0] if len(rules) == 1 else f"a tuple of {', '.join(rules)}"
        raise CompileError(f"{function.__qualname__} returns {result}: must return {rule}")


def _is_tuple(numba_type: Any) -> bool:
    return isinstance(numba_type, types.BaseTuple)


def store_lengths(context: Any, builder: Any, value: Any, numba_type: Any, target: Any, at: int) -> int:
    """Emit stores of the integers in nested tuples at an index of words; the index behind them."""
    if not _is_tuple(numba_type):
        word = context.cast(builder, value, numba_type, types.int64)
        builder.store(word, builder.gep(target, [ir.IntType(64)(at)]))
        return at + 1
    for i, part in enumerate(numba_type):
        at = store_lengths(context, builder, builder.extract_value(value, i), part, target, at)
    return at


def shapes_entry(run: Any, arguments: Sequence[Argument], returned: Returned) -> Any:
    """A compiled function ``infer(node, call)``, as `shapes.infer_shapes`, that also asks a function of a user.

    Args:
        run: calls the function, with the address where it puts the lengths.
        arguments: what its parameters get, in all variants.
        returned: what it returns.
    """
    given = {argument.row: argument.rank for argument in arguments if argument.kind == "shape"}
    inputs, count, are_upper_bounds = len(given), returned.length_count, returned.are_upper_bounds
    # numba has no type for the elements of an empty tuple.
    rows, ranks, room = tuple(given) or (0,), tuple(given.values()) or (0,), max(count, 1)
    outputs, axes, firsts, _ = (tuple(column) for column in zip(*returned.places or [(0,) * 4], strict=True))

    @compiled
    def infer(node: Node, call: Call) -> int:
        status = invoke(node.shapes.infer_by_names, (node, call))
        if status != OK or (are_upper_bounds and call.runner == 0):  # in a model nobody knows what the data decides
            return status
        for k in range(inputs):
            if not _is_known(call.tensors[rows[k]], ranks[k]):
                return OK
        lengths = local_words(room)
        message = run(node, call, 0, 0, lengths)
        if message != 0:
            write_text(call, text("shapes: "))
            write_text(call, message)
            return INVALID
        for k in range(count):
            dims, value = call.tensors[outputs[k]].dims, lengths[k]
            expected = dims[axes[k]] if dims[axes[k]] >= 0 else lengths[firsts[k]]
            if value < 0 or value != expected:
                return _write_length_error(node, call, outputs[k], axes[k], value, expected)
            dims[axes[k]] = value
        return OK

    return infer


@compiled
def _is_known(tensor: Tensor, rank: int) -> bool:
    """Whether all lengths of an input are known, which can be unknown in a model alone, or the input is absent."""
    if tensor.type == 0:
        return True
    is_known = tensor.rank == rank
    for i in range(rank):
        is_known = is_known and tensor.dims[i] >= 0
    return is_known


@compiled
def _cut(tensor: Tensor, axis: int, length: int, itemsize: int) -> None:
    """Keep the first elements along an axis of a C-contiguous array, in its memory."""
    blocks, block, most = 1, itemsize, tensor.dims[axis]
    for i in range(tensor.rank):
        if i < axis:
            blocks *= tensor.dims[i]
        elif i > axis:
            block *= tensor.dims[i]
    for i in range(1, blocks if length < most else 1):
        _memmove(tensor.address + i * length * block, tensor.address + i * most * block, length * block)
    tensor.dims[axis] = length


@noinline
def _write_room_error(node: Node, call: Call, row: int, axis: int, value: int, most: int) -> int:
    """The error of a length that the function has no room for."""
    definition, tensor = node.definition, node.definition.tensors[row]
    write_text(call, definition.name)
    write_text(call, text(" returned "))
    write_int(call, value)
    write_text(call, text(" for "))
    write_text(call, definition.axes[tensor.axes[axis]].name)
    write_text(call, text(" of "))
    write_text(call, tensor.name)
    write_text(call, text(": must be in [0, "))
    write_int(call, most)
    write_text(call, text("]"))
    return INVALID


@noinline
def _write_length_error(node: Node, call: Call, row: int, axis: int, value: int, expected: int) -> int:
    """The error of a length that is negative, or not that of the axis in another tensor."""
    write_text(call, text("shapes returned "))
    write_int(call, value)
    write_text(call, text(" for "))
    write_text(call, node.definition.tensors[row].name)
    write_text(call, text(".shape["))
    write_int(call, axis)
    write_text(call, text("]: must be "))
    if value < 0:
        write_text(call, text(">= 0"))
    else:
        write_int(call, expected)
    return INVALID
