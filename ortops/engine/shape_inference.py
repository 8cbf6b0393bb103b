"""Shape inference in sessions, through ONNX Runtime's C interface for custom operators."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from typing import Any

from ortops.engine.c_api import ATTRIBUTE_TYPES, ELEMENT_TYPES, Api, ort_api
from ortops.shapes import Axes
from ortops.spec import MAX_RANK, Attribute, AttributeValue, Length, Operator

_MAX_STRING_BYTES = 256
"""No attribute allows a longer string."""


def infer_output_shapes(operator: Operator, context: int) -> int:
    """Set the element type and the shape of each output, as far as inputs and attributes determine them, and return 0.

    ONNX Runtime uses one such function for all element types of an operator, so this reads the types from the inputs.

    Args:
        operator: the definition.
        context: the address of an OrtShapeInferContext.

    Raises:
        TypeError, ValueError: an attribute or a known shape breaks a rule of the operator.
        OrtError: ONNX Runtime refuses a call.
    """
    api = ort_api()
    given = {attribute.name: _attribute(api, context, attribute) for attribute in operator.attributes}
    known = {name: value for name, value in given.items() if value is not None}
    axes = Axes(operator, operator.check_attributes(known))
    types = dict(ELEMENT_TYPES)
    count = c_size_t()
    api.check(api.ShapeInferContext_GetInputCount(context, byref(count)))
    for i, tensor in enumerate(operator.inputs[: count.value]):
        element_type, lengths = _input(api, context, i)
        if element_type:
            types.setdefault(tensor.type, element_type)
        if lengths:
            axes.bind_shape(tensor, lengths)
    for i, tensor in enumerate(operator.outputs):
        shape = axes.shape_of(tensor)
        # The interface cannot express an unknown length: it takes -1 for a length.
        if tensor.type in types and shape is not None and None not in shape:
            _set_output(api, context, i, types[tensor.type], shape)
    return 0


def _attribute(api: Api, context: int, attribute: Attribute) -> AttributeValue | None:
    handle, size = c_void_p(), c_size_t()
    if not api.succeeds(api.ShapeInferContext_GetAttribute(context, attribute.name.encode(), byref(handle))):
        return None
    cells: dict[str, Callable[[], Any]] = {
        "INT": c_int64,
        "FLOAT": c_float,
        "STRING": lambda: ctypes.create_string_buffer(_MAX_STRING_BYTES),
        "INTS": c_int64 * MAX_RANK,
        "FLOATS": c_float * MAX_RANK,
    }
    cell = cells[attribute.type]()
    status = api.ReadOpAttr(handle, ATTRIBUTE_TYPES[attribute.type], byref(cell), ctypes.sizeof(cell), byref(size))
    if not api.succeeds(status):
        return None  # of another type or too long, which the kernel reports
    if attribute.is_list:
        return list(cell[: size.value // ctypes.sizeof(cell._type_)])
    return cell.value.decode(errors="replace") if attribute.type == "STRING" else cell.value


def _input(api: Api, context: int, i: int) -> tuple[int, list[Length]]:
    """The element type of an input, 0 if unknown, and its lengths, None for an unknown one and [] for an unknown rank."""
    info, element_type, rank = c_void_p(), c_int(), c_size_t()
    if not api.succeeds(api.ShapeInferContext_GetInputTypeShape(context, i, byref(info))) or not info:
        return 0, []
    api.check(api.GetTensorElementType(info, byref(element_type)))
    api.check(api.GetDimensionsCount(info, byref(rank)))
    lengths, names = (c_int64 * rank.value)(), (c_char_p * rank.value)()
    api.check(api.GetDimensions(info, lengths, rank.value))
    api.check(api.GetSymbolicDimensions(info, names, rank.value))
    known = zip(lengths, names, strict=True)
    shape: list[Length] = [length if length >= 0 else (name.decode() if name else None) for length, name in known]
    return element_type.value, shape


def _set_output(api: Api, context: int, i: int, element_type: int, shape: Sequence[Length]) -> None:
    info, rank = c_void_p(), len(shape)
    api.check(api.CreateTensorTypeAndShapeInfo(byref(info)))
    try:
        api.check(api.SetTensorElementType(info, element_type))
        lengths = (c_int64 * rank)(*(length if isinstance(length, int) else -1 for length in shape))
        names = (c_char_p * rank)(*(length.encode() if isinstance(length, str) else b"" for length in shape))
        api.check(api.SetDimensions(info, lengths, rank))
        api.check(api.SetSymbolicDimensions(info, names, rank))
        api.check(api.ShapeInferContext_SetOutputTypeShape(context, i, info))
    finally:
        api.ReleaseTensorTypeAndShapeInfo(info)
