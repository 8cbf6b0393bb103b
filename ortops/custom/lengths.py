"""Compiled checks of the lengths that functions of users return: those of shapes, and those that the data decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.parallel import call as invoke
from ortops.compiler.scalar import local_words
from ortops.compiler.text import text
from ortops.custom.arguments import Argument, Returned
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
