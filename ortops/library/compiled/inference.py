"""Infer the shapes of a node's outputs in a model, through OrtApi's shape inference for custom operators."""

from __future__ import annotations

from ortops.calls.definition_words import (
    AXES,
    DERIVED_FROM,
    ELEMENT_TYPE_COUNT,
    ELEMENT_TYPES,
    INPUT_COUNT,
    IS_VARIABLE_RANK,
    LEAST_RANK,
    NONE,
    OUTPUT_COUNT,
    TENSOR_ITEM_WORDS,
    TENSORS_AT,
    TYPE_ITEM_WORDS,
    TYPE_VARIABLE,
    TYPES_AT,
)
from ortops.calls.layout import (
    CALL_WORDS,
    DEFINITION,
    DIMS,
    DIMS_COUNT,
    FAILED,
    MAX_DIMS,
    MAX_TENSORS,
    OK,
    RUNNER,
    SHAPES,
    STATUS,
    TENSOR_WORDS,
    TENSORS,
    TEXT,
    TYPE,
)
from ortops.calls.messages import write_int, write_text
from ortops.engine.compiled.ort_api import call_api
from ortops.jit.compile import compiled, noinline
from ortops.jit.elements import Words
from ortops.jit.parallel import call_unchecked, exchange_if, static_word
from ortops.jit.scalar import address_of, byte_pointer, int64_pointer, minimum, offset
from ortops.jit.text import text

SCRATCH_WORDS = CALL_WORDS + MAX_TENSORS * MAX_DIMS
"""A call, and behind it for each dimension of each tensor the address of its symbolic name, or 0."""


@compiled
def infer_outputs(node: Words, call: Words, api: int, context: int) -> int:
    """Set the element type and the shape of each output, if the inputs and attributes determine its rank.

    OrtApi takes -1 without a name for a length, so an unknown length gets a name that no other one in the process has.

    Args:
        node: the node, with its attributes.
        call: SCRATCH_WORDS words.
        api: the address of OrtApi.
        context: the OrtShapeInferContext.

    Returns:
        As a compiled call (`calls.layout`): OK, INVALID or FAILED.
    """
    definition = int64_pointer(node[DEFINITION])
    inputs, outputs = definition[INPUT_COUNT], definition[OUTPUT_COUNT]
    tensors, names = offset(call, TENSORS), offset(call, CALL_WORDS)
    call[RUNNER] = 0
    for i in range(TENSORS, CALL_WORDS + MAX_TENSORS * MAX_DIMS):
        call[i] = 0
    status: int = call_api(api, "ShapeInferContext_GetInputCount", (context, address_of(offset(call, STATUS))))
    count = minimum(call[STATUS], inputs)
    for i in range(inputs):
        tensor = offset(tensors, i * TENSOR_WORDS)
        tensor[DIMS_COUNT] = -1
        if status == 0 and i < count:
            status = _describe(tensor, offset(names, i * MAX_DIMS), api, context, i)
    if status == 0:
        for i in range(inputs, inputs + outputs):
            tensors[i * TENSOR_WORDS + TYPE] = _element_type(definition, tensors, i)
        for i in range(inputs):
            tensors[i * TENSOR_WORDS + TYPE] = 1  # so that no input counts as absent, of which nothing may be known
        result: int = call_unchecked(int64_pointer(node[SHAPES])[0], (node, call))
        if result != OK:
            return result
        for i in range(inputs, inputs + outputs):
            tensor = offset(tensors, i * TENSOR_WORDS)
            if status == 0 and tensor[TYPE] != 0 and tensor[DIMS_COUNT] >= 0:
                _name_lengths(definition, call, names, i)
                status = _set_output(tensor, offset(names, i * MAX_DIMS), api, context, i - inputs)
    call[STATUS] = status
    return OK if status == 0 else FAILED


@noinline
def _describe(tensor: Words, names: Words, api: int, context: int, i: int) -> int:
    """Set the element type of an input, its dimensions and their names; an OrtStatus."""
    here = address_of(tensor)
    status: int = call_api(api, "ShapeInferContext_GetInputTypeShape", (context, i, here))
    info = tensor[0]
    if status != 0:
        call_api(api, "ReleaseStatus", (status,))
    if status != 0 or info == 0:
        return 0
    status = call_api(api, "GetTensorElementType", (info, here + 8 * TYPE))
    if status == 0:
        status = call_api(api, "GetDimensionsCount", (info, here + 8 * DIMS_COUNT))
    rank = minimum(tensor[DIMS_COUNT], MAX_DIMS)
    if status == 0:
        status = call_api(api, "GetDimensions", (info, here + 8 * DIMS, rank))
    if status == 0:
        status = call_api(api, "GetSymbolicDimensions", (info, address_of(names), rank))
    tensor[0], tensor[DIMS_COUNT] = 0, rank if rank > 0 else -1
    for k in range(rank):
        if tensor[DIMS + k] < 0:
            tensor[DIMS + k] = -1
        if names[k] != 0 and (tensor[DIMS + k] >= 0 or byte_pointer(names[k])[0] == 0):
            names[k] = 0
    return status


@compiled
def _element_type(definition: Words, tensors: Words, output: int) -> int:
    """The element type of an output: its only one, or that of inputs with its type variable; 0 if that is unknown."""
    items = offset(definition, definition[TENSORS_AT])
    variable = items[output * TENSOR_ITEM_WORDS + TYPE_VARIABLE]
    for i in range(definition[INPUT_COUNT]):
        is_alike = items[i * TENSOR_ITEM_WORDS + TYPE_VARIABLE] == variable
        if is_alike and tensors[i * TENSOR_WORDS + TYPE] != 0:
            return tensors[i * TENSOR_WORDS + TYPE]
    allowed = offset(definition, definition[TYPES_AT] + variable * TYPE_ITEM_WORDS)
    return allowed[ELEMENT_TYPES] if allowed[ELEMENT_TYPE_COUNT] == 1 else 0


@noinline
def _name_lengths(definition: Words, call: Words, names: Words, i: int) -> None:
    """Name the unknown lengths of an output as the same axes of inputs are, or anew; the call's text has the new names."""
    tensors, count = offset(call, TENSORS), static_word()
    call[TEXT] = 0
    for k in range(tensors[i * TENSOR_WORDS + DIMS_COUNT]):
        if tensors[i * TENSOR_WORDS + DIMS + k] < 0:
            name = _name_of(definition, tensors, names, _axis(definition, tensors, i, k))
            if name == 0:
                name = address_of(offset(call, TEXT + 1)) + call[TEXT]
                write_text(call, text("ortops_unknown_"))
                write_int(call, address_of(count))  # other libraries count, too
                number = count[0]
                while not exchange_if(count, number, number + 1):
                    number = count[0]
                write_text(call, text("_"))
                write_int(call, number)
                call[TEXT] += 1  # behind the zero byte
            names[i * MAX_DIMS + k] = name


@compiled
def _axis(definition: Words, tensors: Words, i: int, k: int) -> int:
    """The number of the axis of a tensor's dimension k; negative if it has no name."""
    item = offset(definition, definition[TENSORS_AT] + i * TENSOR_ITEM_WORDS)
    if item[DERIVED_FROM] != NONE:
        return -1
    leading = 0 if item[IS_VARIABLE_RANK] else tensors[i * TENSOR_WORDS + DIMS_COUNT] - item[LEAST_RANK]
    return item[AXES + k - leading] if k >= leading else -1


@compiled
def _name_of(definition: Words, tensors: Words, names: Words, axis: int) -> int:
    """The first symbolic name of an axis in the inputs; 0 if it has none."""
    for i in range(definition[INPUT_COUNT]):
        for k in range(tensors[i * TENSOR_WORDS + DIMS_COUNT]):
            if axis >= 0 and names[i * MAX_DIMS + k] != 0 and _axis(definition, tensors, i, k) == axis:
                return names[i * MAX_DIMS + k]
    return 0


@noinline
def _set_output(tensor: Words, names: Words, api: int, context: int, i: int) -> int:
    """Tell ONNX Runtime the type and the shape of output i; an OrtStatus."""
    here, rank, element_type = address_of(tensor), tensor[DIMS_COUNT], tensor[TYPE]
    status: int = call_api(api, "CreateTensorTypeAndShapeInfo", (here,))
    if status != 0:
        return status
    info = tensor[0]
    for k in range(rank):
        if names[k] == 0:
            names[k] = text("")
    status = call_api(api, "SetTensorElementType", (info, element_type))
    if status == 0:
        status = call_api(api, "SetDimensions", (info, here + 8 * DIMS, rank))
    if status == 0:
        status = call_api(api, "SetSymbolicDimensions", (info, address_of(names), rank))
    if status == 0:
        status = call_api(api, "ShapeInferContext_SetOutputTypeShape", (context, i, info))
    call_api(api, "ReleaseTensorTypeAndShapeInfo", (info,))
    return status
