"""Compiled checks of the lengths that functions of users return: those of shapes, and those that the data decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types

from ortops.calls.definition_words import (
    AXES,
    AXES_AT,
    AXIS_ITEM_WORDS,
    AXIS_NAME,
    NAME,
    TENSOR_ITEM_WORDS,
    TENSOR_NAME,
    TENSORS_AT,
)
from ortops.calls.layout import (
    ADDRESS,
    DEFINITION,
    DIMS,
    DIMS_COUNT,
    INVALID,
    OK,
    RUNNER,
    SHAPES,
    TENSOR_WORDS,
    TENSORS,
    TYPE,
)
from ortops.calls.messages import write_int, write_text
from ortops.calls.user_arguments import Argument, Length, Returned
from ortops.jit.compile import compiled, noinline
from ortops.jit.elements import Words
from ortops.jit.parallel import call_unchecked
from ortops.jit.scalar import int64_pointer, local_words, offset
from ortops.jit.text import text

_memmove = types.ExternalFunction("memmove", types.intp(types.intp, types.intp, types.intp))

INFER = 2
"""The index, in the record of a node's shapes, of the function that infers them from the names of axes."""


def set_lengths(lengths: Sequence[Length]) -> Any:
    """A compiled function ``finish(node, call, values)`` that gives outputs the lengths that the data has decided.

    The outputs have their largest shapes. Their elements are moved to where they are in arrays of the final shapes.
    """
    places = [
        (k, *place, itemsize)
        for k, length in enumerate(lengths)
        for place, itemsize in zip(length.places, length.itemsizes, strict=True)
    ]
    numbers, rows, axes, itemsizes = (tuple(column) for column in zip(*places, strict=True))
    count = len(places)

    @compiled
    def finish(node: Words, call: Words, values: Words) -> int:
        for k in range(count):
            value, most = values[numbers[k]], call[TENSORS + TENSOR_WORDS * rows[k] + DIMS + axes[k]]
            if value < 0 or value > most:
                return _refuse_room(node, call, rows[k], axes[k], value, most)
        for k in range(count):
            _cut(offset(call, TENSORS + TENSOR_WORDS * rows[k]), axes[k], values[numbers[k]], itemsizes[k])
        return OK

    return finish


def shapes_entry(run: Any, arguments: Sequence[Argument], returned: Returned) -> Any:
    """A compiled function ``infer(node, call)``, as `shapes.infer_shapes`, that also asks a function of a user.

    Args:
        run: calls the function, with the address where it puts the lengths.
        arguments: what its parameters get, in all variants.
        returned: what it returns.
    """
    given = {one.row: one.rank for one in arguments if one.kind == "shape"}
    rows, ranks = tuple(given), tuple(given.values())
    inputs, are_decided = len(given), returned.are_decided
    places = tuple(
        TENSORS + TENSOR_WORDS * row + DIMS + axis for ((row, axis),) in (one.places for one in returned.lengths)
    )
    names = [one.axis if isinstance(one.axis, str) else (one.axis, k) for k, one in enumerate(returned.lengths)]
    firsts = tuple(map(names.index, names))
    count, room = len(places), max(len(places), 1)
    # numba has no type for the elements of an empty tuple.
    rows, ranks, places, firsts = rows or (0,), ranks or (0,), places or (0,), firsts or (0,)

    @compiled
    def infer(node: Words, call: Words) -> int:
        status: int = call_unchecked(int64_pointer(node[SHAPES])[INFER], (node, call))
        if status != OK or (are_decided and call[RUNNER] == 0):  # in a model nobody knows what the data decides
            return status
        for k in range(inputs):
            if not _is_known(offset(call, TENSORS + TENSOR_WORDS * rows[k]), ranks[k]):
                return OK
        lengths = local_words(room)
        message = run(node, call, 0, 0, lengths)
        if message != 0:
            write_text(call, text("shapes: "))
            write_text(call, message)
            return INVALID
        for k in range(count):
            known, value = call[places[k]], lengths[k]
            expected = known if known >= 0 else lengths[firsts[k]]
            if value < 0 or value != expected:
                return _refuse_length(node, call, places[k], value, expected)
            call[places[k]] = value
        return OK

    return infer


@compiled
def _is_known(tensor: Words, rank: int) -> bool:
    """Whether all lengths of an input are known, which can be unknown in a model alone, or the input is absent."""
    if tensor[TYPE] == 0:
        return True
    found = tensor[DIMS_COUNT] == rank
    for i in range(rank):
        found = found and tensor[DIMS + i] >= 0
    return found


@compiled
def _cut(tensor: Words, axis: int, length: int, itemsize: int) -> None:
    """Keep the first elements along an axis of a C-contiguous array, in its memory."""
    blocks, block, most = 1, itemsize, tensor[DIMS + axis]
    for i in range(tensor[DIMS_COUNT]):
        if i < axis:
            blocks *= tensor[DIMS + i]
        elif i > axis:
            block *= tensor[DIMS + i]
    for i in range(1, blocks if length < most else 1):
        _memmove(tensor[ADDRESS] + i * length * block, tensor[ADDRESS] + i * most * block, length * block)
    tensor[DIMS + axis] = length


@noinline
def _refuse_room(node: Words, call: Words, row: int, axis: int, value: int, most: int) -> int:
    """The error of a length that the function has no room for."""
    definition = int64_pointer(node[DEFINITION])
    tensor = definition[TENSORS_AT] + TENSOR_ITEM_WORDS * row
    number = definition[tensor + AXES + axis]
    write_text(call, definition[NAME])
    write_text(call, text(" returned "))
    write_int(call, value)
    write_text(call, text(" for "))
    write_text(call, definition[definition[AXES_AT] + AXIS_ITEM_WORDS * number + AXIS_NAME])
    write_text(call, text(" of "))
    write_text(call, definition[tensor + TENSOR_NAME])
    write_text(call, text(": must be in [0, "))
    write_int(call, most)
    write_text(call, text("]"))
    return INVALID


@noinline
def _refuse_length(node: Words, call: Words, place: int, value: int, expected: int) -> int:
    """The error of a length that is negative, or not that of the axis in another tensor."""
    definition = int64_pointer(node[DEFINITION])
    row, axis = (place - TENSORS) // TENSOR_WORDS, (place - TENSORS) % TENSOR_WORDS - DIMS
    write_text(call, text("shapes returned "))
    write_int(call, value)
    write_text(call, text(" for "))
    write_text(call, definition[definition[TENSORS_AT] + TENSOR_ITEM_WORDS * row + TENSOR_NAME])
    write_text(call, text(".shape["))
    write_int(call, axis)
    write_text(call, text("]: must be "))
    if value < 0:
        write_text(call, text(">= 0"))
    else:
        write_int(call, expected)
    return INVALID
