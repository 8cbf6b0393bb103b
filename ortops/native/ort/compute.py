# SPDX-License-Identifier: MIT
"""Compute a node in a session, in compiled code alone."""

from __future__ import annotations

from numba import types

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import call as invoke
from ortops.compiler.parallel import release
from ortops.compiler.scalar import address_of, int64_pointer, minimum, offset
from ortops.compiler.struct_types import allocate_struct, clear_struct, field_address
from ortops.compiler.text import text
from ortops.native.node.messages import write_text
from ortops.native.node.shapes import given_type
from ortops.native.ort.inputs import describe
from ortops.native.ort.ort_api import call_api, out_of_memory
from ortops.native.ort.types import API_FUNCTIONS, FAIL, INVALID_ARGUMENT
from ortops.native.python_api import enter, leave, name_of_saved
from ortops.native.types import (
    BUFFERS_FOR_ALL,
    BUFFERS_FOR_NONE,
    FAILED,
    INTERRUPTED,
    INVALID,
    MAX_DIMS,
    OK,
    OUT_OF_MEMORY,
    Call,
    Definition,
    Node,
    Tensor,
)

_memcpy = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_calloc = types.ExternalFunction("calloc", types.intp(types.intp, types.intp))

_TOO_MANY = 2**62
"""Bytes that no process has."""

_PARALLEL_FOR, *_ = API_FUNCTIONS["KernelContext_ParallelFor"]
_EIGHT_BYTES = (1 << 7) | (1 << 11) | (1 << 13)
_TWO_BYTES = (1 << 4) | (1 << 5) | (1 << 10) | (1 << 16)
_FOUR_BYTES = (1 << 1) | (1 << 6) | (1 << 12)


@compiled
def compute_node(node: Node, api: int, context: int) -> int:
    """Compute a node from the OrtKernelContext of a call; the OrtStatus, 0 for success."""
    call = allocate_struct(Call)
    if call is None:
        return out_of_memory(api)
    enter()
    result = _compute(node, api, context, call)
    answer = call.status if result == FAILED else 0
    if result == INTERRUPTED:
        call.text_size = 0
        write_text(call, text("interrupted by "))
        write_text(call, name_of_saved())
    if result != OK and result != FAILED:
        answer = make_status(node, api, call, INVALID_ARGUMENT if result == INVALID else FAIL)
    leave()
    release(call)
    return answer


@compiled
def make_status(node: Node, api: int, call: Call, code: int) -> int:
    """An OrtStatus of the text in a call, after the label of the node."""
    whole = allocate_struct(Call)
    if whole is None:
        return call_api(api, "CreateStatus", (code, address_of(call.text)))
    whole.text_size = 0
    write_text(whole, node.label)
    write_text(whole, text(": "))
    write_text(whole, address_of(call.text) if call.text_size != 0 else node.entry.short_of_memory)
    status = call_api(api, "CreateStatus", (code, address_of(whole.text)))
    release(whole)
    return status


@compiled
def _compute(node: Node, api: int, context: int, call: Call) -> int:
    definition = node.definition
    for i in range(definition.input_count + definition.output_count):
        clear_struct(call.tensors[i])
    call.text_size = 0
    call.runner, call.context = int64_pointer(api)[_PARALLEL_FOR], context
    inputs = definition.input_count
    failure = call_api(api, "KernelContext_GetInputCount", (context, field_address(call, "status")))
    if failure == 0:
        failure = describe(api, context, minimum(call.status, inputs), MAX_DIMS, int64_pointer(call.tensors))
    if failure != 0:
        call.status = failure
        return FAILED
    copied = _align(call.tensors, inputs, True)
    if copied < 0:
        return OUT_OF_MEMORY
    status = _compute_outputs(node, definition, api, context, call)
    _free(call.tensors, inputs, copied)
    return status


@compiled
def _compute_outputs(node: Node, definition: Definition, api: int, context: int, call: Call) -> int:
    """Allocate the outputs and fill them, from inputs that the call has."""
    outputs, count = offset(call.tensors, definition.input_count), definition.output_count
    status = invoke(node.shapes.infer, (node, call))
    if status != OK:
        return status
    failure = call_api(api, "KernelContext_GetOutputCount", (context, field_address(call, "status")))
    given, memory_kind = minimum(call.status, count), definition.output_memory
    for i in range(given if memory_kind == BUFFERS_FOR_NONE else count):
        element_type = _type_of_output(definition, call, i)
        if failure == 0 and i < given and memory_kind != BUFFERS_FOR_ALL:
            failure = _output(api, context, i, element_type, outputs[i])
        if memory_kind != BUFFERS_FOR_NONE:
            outputs[i].type = element_type
    if failure != 0:
        call.status = failure
        return FAILED
    status = invoke(node.shapes.check, (node, call))
    if status != OK:
        return status
    aligned = _align(outputs, count, False)
    if aligned < 0:
        return OUT_OF_MEMORY
    status = invoke(node.entry.enter, (node, call))
    for i in range(given if aligned != 0 and status == OK else 0):
        if aligned >> i & 1:
            output = outputs[i]
            temporary, output.address = output.address, 0
            failure = _output(api, context, i, output.type, output)
            if failure != 0:
                call.status, status = failure, FAILED
            elif output.address != 0:
                _memcpy(output.address, temporary, _bytes(output))
            output.address = temporary
            if status != OK:
                break
    _free(outputs, count, aligned)
    return status


@compiled
def _output(api: int, context: int, i: int, element_type: int, output: Tensor) -> int:
    """Allocate an output of its dimensions, and set its address and type; the OrtStatus of a failure, or 0."""
    here = field_address(output, "address")
    status = call_api(api, "KernelContext_GetOutput", (context, i, address_of(output.dims), output.rank, here))
    if status == 0 and output.address != 0:
        output.type = element_type
        status = call_api(api, "GetTensorMutableData", (output.address, here))
    return status


@compiled
def _type_of_output(definition: Definition, call: Call, i: int) -> int:
    """The element type of an output: that of the first input of the same type variable, or its only one."""
    variable = definition.tensors[definition.input_count + i].type_variable
    return given_type(definition, call, variable, definition.input_count) or definition.types[variable].types[0]


@compiled
def _itemsize(element_type: int) -> int:
    kind = 1 << element_type
    return 8 if kind & _EIGHT_BYTES else 4 if kind & _FOUR_BYTES else 2 if kind & _TWO_BYTES else 1


@compiled
def _bytes(tensor: Tensor) -> int:
    """The number of bytes of a tensor's elements; _TOO_MANY if there are as many or more."""
    size = _itemsize(tensor.type)
    for k in range(tensor.rank):
        if tensor.dims[k] == 0:
            return 0
        size = _TOO_MANY if size > _TOO_MANY // tensor.dims[k] else size * tensor.dims[k]
    return size


@compiled
def _align(tensors: list[Tensor], count: int, copies: bool) -> int:
    """Replace the memory of unaligned tensors, as a binding or a NumPy array that is fed may have, and where there is none.

    Returns:
        A bit for each tensor that has memory of its own now; -1 if memory ran out, and then none has.
    """
    replaced = 0
    for i in range(count):
        tensor = tensors[i]
        if tensor.type != 0 and (tensor.address == 0 or tensor.address % _itemsize(tensor.type) != 0):
            memory = _calloc(_bytes(tensor) // 8 + 1, 8)  # zeros, since users' functions may leave some as they are
            if memory == 0:
                _free(tensors, count, replaced)
                return -1
            if copies:
                _memcpy(memory, tensor.address, _bytes(tensor))
            tensor.address = memory
            replaced |= 1 << i
    return replaced


@compiled
def _free(tensors: list[Tensor], count: int, replaced: int) -> None:
    for i in range(count):
        if replaced >> i & 1:
            release(int64_pointer(tensors[i].address))
