"""Compute a node in a session, in compiled code alone."""

from __future__ import annotations

from typing import Any

from numba import types

from ortops.calls.definition_words import (
    ELEMENT_TYPES,
    OUTPUT_MEMORY,
    OWN_FOR_ALL,
    OWN_FOR_NONE,
    TENSOR_ITEM_WORDS,
    TENSORS_AT,
    TYPE_ITEM_WORDS,
    TYPE_VARIABLE,
    TYPES_AT,
)
from ortops.calls.definition_words import INPUT_COUNT as INPUTS
from ortops.calls.definition_words import OUTPUT_COUNT as OUTPUTS
from ortops.calls.layout import (
    ADDRESS,
    CALL_WORDS,
    CONTEXT,
    DEFINITION,
    DIMS,
    DIMS_COUNT,
    ENTER,
    ENTRY,
    FAILED,
    INTERRUPTED,
    INVALID,
    LABEL,
    MAX_DIMS,
    OK,
    OUT_OF_MEMORY,
    RUNNER,
    SHAPES,
    SHORT_OF_MEMORY,
    STATUS,
    TENSOR_WORDS,
    TENSORS,
    TEXT,
    TYPE,
)
from ortops.calls.messages import write_text
from ortops.engine.compiled.inputs import describe
from ortops.engine.compiled.layout import API_FUNCTIONS, FAIL, INVALID_ARGUMENT
from ortops.engine.compiled.ort_api import call_api
from ortops.jit.compile import compiled
from ortops.jit.parallel import allocate, call_unchecked, release
from ortops.jit.python_api import enter, leave, name_of_saved
from ortops.jit.scalar import address_of, int64_pointer, minimum, offset
from ortops.jit.text import text

_memcpy = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_calloc = types.ExternalFunction("calloc", types.intp(types.intp, types.intp))

_TOO_MANY = 2**62
"""Bytes that no process has."""

_PARALLEL_FOR = API_FUNCTIONS["KernelContext_ParallelFor"]
_EIGHT_BYTES = (1 << 7) | (1 << 11) | (1 << 13)
_TWO_BYTES = (1 << 4) | (1 << 5) | (1 << 10) | (1 << 16)
_FOUR_BYTES = (1 << 1) | (1 << 6) | (1 << 12)


@compiled
def compute_node(node: Any, api: int, context: int) -> int:
    """Compute a node.

    Args:
        node: the node (`calls.layout`).
        api: the address of OrtApi.
        context: the OrtKernelContext of the call.

    Returns:
        The OrtStatus, 0 for success.
    """
    call = allocate(CALL_WORDS)
    if address_of(call) == 0:
        return call_api(api, "CreateStatus", (FAIL, text("out of memory")))
    enter()
    result = _compute(node, api, context, call)
    answer = call[STATUS] if result == FAILED else 0
    if result == INTERRUPTED:
        call[TEXT] = 0
        write_text(call, text("interrupted by "))
        write_text(call, name_of_saved())
    if result != OK and result != FAILED:
        answer = make_status(node, api, call, INVALID_ARGUMENT if result == INVALID else FAIL)
    leave()
    release(call)
    return answer


@compiled
def make_status(node: Any, api: int, call: Any, code: int) -> int:
    """An OrtStatus of the text in a call, after the label of the node."""
    whole = allocate(CALL_WORDS)
    if address_of(whole) == 0:
        return call_api(api, "CreateStatus", (code, address_of(offset(call, TEXT + 1))))
    whole[TEXT] = 0
    write_text(whole, node[LABEL])
    write_text(whole, text(": "))
    short_of_memory = int64_pointer(node[ENTRY])[SHORT_OF_MEMORY]
    write_text(whole, address_of(offset(call, TEXT + 1)) if call[TEXT] else short_of_memory)
    status: int = call_api(api, "CreateStatus", (code, address_of(offset(whole, TEXT + 1))))
    release(whole)
    return status


@compiled
def _compute(node: Any, api: int, context: int, call: Any) -> int:
    """Compute a node; what `layout` has for the result of a call."""
    definition = int64_pointer(node[DEFINITION])
    tensors = definition[INPUTS] + definition[OUTPUTS]
    for i in range(TENSORS, TENSORS + tensors * TENSOR_WORDS):
        call[i] = 0
    call[TEXT] = 0
    call[RUNNER], call[CONTEXT] = int64_pointer(api)[_PARALLEL_FOR], context
    inputs = offset(call, TENSORS)
    failure: int = call_api(api, "KernelContext_GetInputCount", (context, address_of(offset(call, STATUS))))
    if failure == 0:
        failure = describe(api, context, minimum(call[STATUS], definition[INPUTS]), MAX_DIMS, inputs)
    if failure != 0:
        call[STATUS] = failure
        return FAILED
    copied = _align(inputs, definition[INPUTS], True)
    if copied < 0:
        return OUT_OF_MEMORY
    status = _compute_outputs(node, definition, api, context, call)
    _free(inputs, definition[INPUTS], copied)
    return status


@compiled
def _compute_outputs(node: Any, definition: Any, api: int, context: int, call: Any) -> int:
    """Allocate the outputs and fill them, from inputs that the call has."""
    inputs, count = offset(call, TENSORS), definition[OUTPUTS]
    outputs = offset(inputs, definition[INPUTS] * TENSOR_WORDS)
    status: int = call_unchecked(int64_pointer(node[SHAPES])[0], (node, call))
    if status != OK:
        return status
    failure: int = call_api(api, "KernelContext_GetOutputCount", (context, address_of(offset(call, STATUS))))
    given, own = minimum(call[STATUS], count), definition[OUTPUT_MEMORY]
    for i in range(given if own == OWN_FOR_NONE else count):
        row = offset(outputs, i * TENSOR_WORDS)
        element_type = _type_of_output(definition, inputs, i)
        if failure == 0 and i < given and own != OWN_FOR_ALL:
            failure = _output(api, context, i, element_type, row)
        if own != OWN_FOR_NONE:
            row[TYPE] = element_type
    if failure != 0:
        call[STATUS] = failure
        return FAILED
    status = call_unchecked(int64_pointer(node[SHAPES])[1], (node, call))
    if status != OK:
        return status
    made = _align(outputs, count, False)
    if made < 0:
        return OUT_OF_MEMORY
    status = call_unchecked(int64_pointer(node[ENTRY])[ENTER], (node, call))
    for i in range(given if made != 0 and status == OK else 0):
        if made >> i & 1:
            row = offset(outputs, i * TENSOR_WORDS)
            temporary, row[ADDRESS] = row[ADDRESS], 0
            failure = _output(api, context, i, row[TYPE], row)
            if failure != 0:
                call[STATUS], status = failure, FAILED
            elif row[ADDRESS] != 0:
                _memcpy(row[ADDRESS], temporary, _bytes(row))
            row[ADDRESS] = temporary
            if status != OK:
                break
    _free(outputs, count, made)
    return status


@compiled
def _output(api: int, context: int, i: int, element_type: int, row: Any) -> int:
    """Allocate an output of the dimensions in its row, and set its address and type; the OrtStatus of a failure, or 0."""
    here = address_of(row)
    status: int = call_api(
        api, "KernelContext_GetOutput", (context, i, here + 8 * DIMS, row[DIMS_COUNT], here + 8 * ADDRESS)
    )
    if status == 0 and row[ADDRESS] != 0:
        row[TYPE] = element_type
        status = call_api(api, "GetTensorMutableData", (row[ADDRESS], here + 8 * ADDRESS))
    return status


@compiled
def _type_of_output(definition: Any, inputs: Any, i: int) -> int:
    """The element type of an output: that of the first input of the same type variable, or its only one."""
    tensors = offset(definition, definition[TENSORS_AT])
    variable = tensors[(definition[INPUTS] + i) * TENSOR_ITEM_WORDS + TYPE_VARIABLE]
    for k in range(definition[INPUTS]):
        element_type = inputs[k * TENSOR_WORDS + TYPE]
        if element_type != 0 and tensors[k * TENSOR_ITEM_WORDS + TYPE_VARIABLE] == variable:
            return element_type
    only: int = definition[definition[TYPES_AT] + variable * TYPE_ITEM_WORDS + ELEMENT_TYPES]
    return only


@compiled
def _itemsize(element_type: int) -> int:
    kind = 1 << element_type
    return 8 if kind & _EIGHT_BYTES else 4 if kind & _FOUR_BYTES else 2 if kind & _TWO_BYTES else 1


@compiled
def _bytes(row: Any) -> int:
    """The number of bytes of a tensor's elements; _TOO_MANY if there are as many or more."""
    size = _itemsize(row[TYPE])
    for k in range(row[DIMS_COUNT]):
        if row[DIMS + k] == 0:
            return 0
        size = _TOO_MANY if size > _TOO_MANY // row[DIMS + k] else size * row[DIMS + k]
    return size


@compiled
def _align(rows: Any, count: int, copies: bool) -> int:
    """Replace the memory of unaligned tensors, as a binding or a NumPy array that is fed may have, and where there is none.

    Returns:
        A bit for each tensor that has memory of its own now; -1 if memory ran out, and then none has.
    """
    replaced = 0
    for i in range(count):
        row = offset(rows, i * TENSOR_WORDS)
        if row[TYPE] != 0 and (row[ADDRESS] == 0 or row[ADDRESS] % _itemsize(row[TYPE]) != 0):
            memory = _calloc(_bytes(row) // 8 + 1, 8)  # zeros, since users' functions may leave some as they are
            if memory == 0:
                _free(rows, count, replaced)
                return -1
            if copies:
                _memcpy(memory, row[ADDRESS], _bytes(row))
            row[ADDRESS] = memory
            replaced |= 1 << i
    return replaced


@compiled
def _free(rows: Any, count: int, replaced: int) -> None:
    for i in range(count):
        if replaced >> i & 1:
            release(int64_pointer(rows[i * TENSOR_WORDS + ADDRESS]))
