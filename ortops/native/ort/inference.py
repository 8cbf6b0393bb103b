# SPDX-License-Identifier: MIT
"""Infer the shapes of a node's outputs in a model, through OrtApi's shape inference for custom operators."""

from __future__ import annotations

from typing import Annotated

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.parallel import call as invoke
from ortops.compiler.parallel import exchange_if, static_word
from ortops.compiler.scalar import address_of, byte_pointer, minimum
from ortops.compiler.struct_types import clear_struct, field_address
from ortops.compiler.text import text
from ortops.native.elements import Words
from ortops.native.node.messages import write_int, write_text
from ortops.native.node.shapes import given_type
from ortops.native.ort.inputs import describe_info
from ortops.native.ort.ort_api import call_api
from ortops.native.structs import Struct
from ortops.native.types import FAILED, MAX_DIMS, MAX_TENSORS, NONE, OK, Call, Definition, Node, Tensor


class Scratch(Struct):
    """A call, and for each dimension of each tensor the address of its symbolic name, or 0."""

    call: Call
    names: Annotated[list[Annotated[list[int], MAX_DIMS]], MAX_TENSORS]


@compiled
def infer_outputs(node: Node, scratch: Scratch, api: int, context: int) -> int:
    """Set the element type and the shape of each output, if the inputs and attributes determine its rank.

    OrtApi takes -1 without a name for a length, so an unknown length gets a name that no other one in the process has. The
    result is that of a compiled call: OK, INVALID or FAILED.
    """
    clear_struct(scratch)
    definition, call = node.definition, scratch.call
    inputs, tensors = definition.input_count, call.tensors
    end = inputs + definition.output_count
    status = call_api(api, "ShapeInferContext_GetInputCount", (context, field_address(call, "status")))
    count = minimum(call.status, inputs)
    for i in range(inputs):
        tensors[i].rank = -1
        if status == 0 and i < count:
            status = _describe(tensors[i], scratch.names[i], api, context, i)
    if status == 0:
        for i in range(inputs, end):
            tensors[i].type = _element_type(definition, call, i)
        for i in range(inputs):
            tensors[i].type = 1  # so that no input counts as absent, of which nothing may be known
        result = invoke(node.shapes.infer, (node, call))
        if result != OK:
            return result
        for i in range(inputs, end):
            if status == 0 and tensors[i].type != 0 and tensors[i].rank >= 0:
                _name_lengths(definition, scratch, i)
                status = _set_output(tensors[i], scratch.names[i], api, context, i - inputs)
    call.status = status
    return OK if status == 0 else FAILED


@noinline
def _describe(tensor: Tensor, names: Words, api: int, context: int, i: int) -> int:
    """Set the element type of an input, its dimensions and their names; an OrtStatus."""
    status = call_api(api, "ShapeInferContext_GetInputTypeShape", (context, i, field_address(tensor, "address")))
    info = tensor.address
    if status != 0:
        call_api(api, "ReleaseStatus", (status,))
    if status != 0 or info == 0:
        return 0
    status = describe_info(api, info, tensor, MAX_DIMS)
    rank = tensor.rank
    if status == 0:
        status = call_api(api, "GetSymbolicDimensions", (info, address_of(names), rank))
    tensor.address, tensor.rank = 0, rank if rank > 0 else -1
    for k in range(rank):
        if tensor.dims[k] < 0:
            tensor.dims[k] = -1
        if names[k] != 0 and (tensor.dims[k] >= 0 or byte_pointer(names[k])[0] == 0):
            names[k] = 0
    return status


@compiled
def _element_type(definition: Definition, call: Call, output: int) -> int:
    """The element type of an output: its only one, or that of inputs with its type variable; 0 if that is unknown."""
    variable = definition.tensors[output].type_variable
    allowed = definition.types[variable]
    only = allowed.types[0] if allowed.count == 1 else 0
    return given_type(definition, call, variable, definition.input_count) or only


@noinline
def _name_lengths(definition: Definition, scratch: Scratch, i: int) -> None:
    """Name the unknown lengths of an output as the same axes of inputs are, or anew; the call's text has the new names."""
    call, count = scratch.call, static_word()
    call.text_size = 0
    for k in range(call.tensors[i].rank):
        if call.tensors[i].dims[k] < 0:
            name = _name_of(definition, scratch, _axis(definition, call.tensors[i], i, k))
            if name == 0:
                name = address_of(call.text) + call.text_size
                write_text(call, text("ortops_unknown_"))
                write_int(call, address_of(count))  # other libraries count, too
                number = count[0]
                while not exchange_if(count, number, number + 1):
                    number = count[0]
                write_text(call, text("_"))
                write_int(call, number)
                call.text_size += 1  # behind the zero byte
            scratch.names[i][k] = name


@compiled
def _axis(definition: Definition, tensor: Tensor, i: int, k: int) -> int:
    """The number of the axis of dimension k of tensor i; negative if it has no name."""
    defined = definition.tensors[i]
    if defined.derived_from != NONE:
        return -1
    leading = 0 if defined.is_variable_rank else tensor.rank - defined.least_rank
    return defined.axes[k - leading] if k >= leading else -1


@compiled
def _name_of(definition: Definition, scratch: Scratch, axis: int) -> int:
    """The first symbolic name of an axis in the inputs; 0 if it has none."""
    for i in range(definition.input_count):
        tensor = scratch.call.tensors[i]
        for k in range(tensor.rank):
            if axis >= 0 and scratch.names[i][k] != 0 and _axis(definition, tensor, i, k) == axis:
                return scratch.names[i][k]
    return 0


@noinline
def _set_output(tensor: Tensor, names: Words, api: int, context: int, i: int) -> int:
    """Tell ONNX Runtime the type and the shape of output i; an OrtStatus."""
    status = call_api(api, "CreateTensorTypeAndShapeInfo", (field_address(tensor, "address"),))
    if status != 0:
        return status
    info, rank = tensor.address, tensor.rank
    for k in range(rank):
        if names[k] == 0:
            names[k] = text("")
    status = call_api(api, "SetTensorElementType", (info, tensor.type))
    if status == 0:
        status = call_api(api, "SetDimensions", (info, address_of(tensor.dims), rank))
    if status == 0:
        status = call_api(api, "SetSymbolicDimensions", (info, address_of(names), rank))
    if status == 0:
        status = call_api(api, "ShapeInferContext_SetOutputTypeShape", (context, i, info))
    call_api(api, "ReleaseTensorTypeAndShapeInfo", (info,))
    return status
